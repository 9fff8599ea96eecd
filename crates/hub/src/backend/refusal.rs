//! Refusals of a log by the program behind it, which no wait changes: only an operator does.

use crate::lock::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Why a program refuses a log, as long as it does. Clones are the same one.
///
/// An outage passes, and clients repeat what they have sent. A refusal stays until somebody changes the configuration or the
/// program: a server without room for messages, for example. It is logged once as a warning. A server that shows it in its
/// readiness (`Admin::with_readiness`) gets no clients that it could not serve.
#[derive(Clone, Debug)]
pub struct Refusal {
    name: &'static str,
    reasons: Arc<Mutex<BTreeMap<&'static str, Arc<str>>>>,
}

impl Refusal {
    /// None so far, of the program with this name.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self { name, reasons: Arc::default() }
    }

    /// The reason, with its remedy, as long as the program refuses something.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        lock(&self.reasons).values().next().map(ToString::to_string)
    }

    /// The program refuses `what` now.
    pub fn set(&self, what: &'static str, reason: &str) {
        let mut reasons = lock(&self.reasons);
        if reasons.get(what).is_none_or(|known| **known != *reason) {
            log::warn!("{} refuses the log of topics: {reason}", self.name);
            reasons.insert(what, reason.into());
        }
    }

    /// The program does not refuse `what` any more.
    pub fn clear(&self, what: &'static str) {
        let mut reasons = lock(&self.reasons);
        if reasons.remove(what).is_some() && reasons.is_empty() {
            log::warn!("{} refuses nothing of the log of topics any more", self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Refusal;

    #[test]
    fn a_refusal_stays_until_all_reasons_are_gone() {
        let refusal = Refusal::new("program");
        let shown = refusal.clone();
        refusal.set("connection", "wrong password");
        refusal.set("messages", "no room");
        refusal.clear("connection");
        assert_eq!(shown.reason().as_deref(), Some("no room"));
        refusal.clear("messages");
        assert_eq!(shown.reason(), None);
    }
}
