use crate::alert::Alert;
use std::fmt;

/// A failure of a session or a configuration; each variant names the party at fault.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The calling code misused the API.
    ApiMisuse(&'static str),
    /// The configuration is not usable: the text names the part and the remedy.
    Config(String),
    /// The peer broke the protocol or did not authenticate.
    Peer(String),
    /// The peer sent a fatal alert.
    Alert(Alert),
    /// This end rejected the peer's certificate, for the reason given.
    Certificate(String),
    /// The TLS library failed on its own.
    Library(String),
}

impl Error {
    /// The error of an engine whose configuration asks for a kind of `what` that is younger than the engine.
    #[must_use]
    pub fn unknown(what: &str) -> Self {
        Self::Config(format!("{what}: this engine does not know this setting"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ApiMisuse(what) => write!(f, "TLS API misuse: {what}"),
            Self::Config(what) => write!(f, "TLS configuration: {what}"),
            Self::Peer(what) => write!(f, "TLS peer misbehaved: {what}"),
            Self::Alert(alert) => write!(f, "TLS peer sent the alert {alert}"),
            Self::Certificate(what) => write!(f, "peer certificate refused: {what}"),
            Self::Library(what) => write!(f, "TLS library: {what}"),
        }
    }
}

/// The text, which is all that a `main` that returns the error, or an `unwrap`, shows.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::Error;
    use crate::alert::Alert;

    #[test]
    fn debug_prints_the_text() {
        for error in [Error::Config("key.pem is encrypted".to_owned()), Error::Alert(Alert::UNKNOWN_CA)] {
            assert_eq!(format!("{error:?}"), error.to_string());
        }
        assert_eq!(
            format!("{:?}", Error::unknown("x")),
            "TLS configuration: x: this engine does not know this setting"
        );
    }
}
