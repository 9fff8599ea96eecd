use crate::clock::now;
use crate::plan::{FailureKind, Time};

/// How the certificate and its renewal are, for operators.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Status {
    /// When the certificate in use expires; `None` before the first one.
    pub expiry: Option<Time>,
    /// When the certificate in use was stored; `None` before the first one.
    pub last_success: Option<Time>,
    /// When the certificate is to be renewed.
    pub due: Option<Time>,
    /// Orders that this process has completed.
    pub orders: u64,
    /// Failures of this process, by kind, in the order of [`FailureKind::ALL`].
    pub failures: [u64; FailureKind::ALL.len()],
    /// Whether the certificate in use names an OCSP responder.
    pub names_responder: bool,
    /// When the OCSP response beside the certificate expires; `None` without one.
    pub response_expiry: Option<Time>,
    /// OCSP responses that this process has fetched.
    pub responses: u64,
    /// Requests of this process for an OCSP response that failed.
    pub response_failures: u64,
    /// Whether this process is the one of several that orders.
    pub orders_itself: bool,
    /// The latest failure since the last success.
    pub last_failure: Option<String>,
    /// No order begins before this time; `None` unless one has failed.
    pub paused_until: Option<Time>,
}

impl Status {
    /// Why the server has no certificate that anybody trusts; `None` once it has one.
    #[must_use]
    pub fn unreadiness(&self) -> Option<String> {
        if self.expiry.is_some() {
            return None;
        }
        let why = self.last_failure.as_deref().unwrap_or("the first one is being ordered");
        let left = self.paused_until.map(|until| until.saturating_sub(now()).as_secs()).filter(|left| *left > 0);
        let next = left.map(|left| format!("; the next attempt is in {left} seconds")).unwrap_or_default();
        Some(format!("there is no certificate yet: {why}{next}"))
    }

    pub(crate) fn count(&mut self, kind: FailureKind) {
        let index = FailureKind::ALL.iter().position(|one| *one == kind);
        index.into_iter().for_each(|index| self.failures[index] += 1);
    }
}
