use crate::codes::{
    Code, TAUT_ERR_ALERT, TAUT_ERR_CERTIFICATE, TAUT_ERR_CONFIG, TAUT_ERR_LIBRARY, TAUT_ERR_PEER, TAUT_ERR_STATE,
};
use std::borrow::Cow;
use tautline_tls::Error;
use tautline_tls::alert::Alert;

/// An error on its way to the caller.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    /// The alert that was received, or else the one that was sent.
    pub(crate) alert: Option<Alert>,
    pub(crate) text: Cow<'static, str>,
}

/// A value that a defect of this library ends.
pub(crate) trait Fail {
    fn fail(&mut self, failure: Failure);
}

impl Failure {
    pub(crate) const fn new(code: Code, text: &'static str) -> Self {
        Self { code, alert: None, text: Cow::Borrowed(text) }
    }

    pub(crate) fn with_text(code: Code, text: String) -> Self {
        Self { code, alert: None, text: Cow::Owned(text) }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (code, received) = match &error {
            Error::ApiMisuse(_) => (TAUT_ERR_STATE, None),
            Error::Config(_) => (TAUT_ERR_CONFIG, None),
            Error::Peer(_) => (TAUT_ERR_PEER, None),
            Error::Alert(alert) => (TAUT_ERR_ALERT, Some(*alert)),
            Error::Certificate(_) => (TAUT_ERR_CERTIFICATE, None),
            _ => (TAUT_ERR_LIBRARY, None),
        };
        Self { alert: received, ..Self::with_text(code, error.to_string()) }
    }
}
