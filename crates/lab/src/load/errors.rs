//! Errors of a load that goes on in spite of them.

use crate::Error;
use std::collections::BTreeMap;
use tautline::{Cause, Closed, ConnectError};

/// Most kinds that are counted apart. A server could make up as many as there are close codes.
const MOST_KINDS: usize = 32;

/// The errors of a load by kind, each kind with its number and the text of its first one.
#[derive(Clone, Debug, Default)]
pub struct Errors(BTreeMap<String, (u64, String)>);

impl Errors {
    pub(super) fn add(&mut self, kind: &str, count: u64, text: impl FnOnce() -> String) {
        if count == 0 {
            return;
        }
        let known = self.0.contains_key(kind) || self.0.len() < MOST_KINDS;
        let kind = if known { kind } else { "other" };
        let entry = self.0.entry(kind.to_owned()).or_insert_with(|| (0, text()));
        entry.0 += count;
    }

    /// A message was wrong, or could not be sent.
    pub(super) fn add_error(&mut self, error: &Error) {
        let kind = match error {
            Error::WrongReply(_) => "wrong reply",
            Error::Network(_) => "network",
            _ => "not sent",
        };
        self.add(kind, 1, || error.to_string());
    }

    pub(super) fn add_failed(&mut self, error: &ConnectError) {
        let kind = match error {
            ConnectError::Handshake(_) => {
                let status = error.refusal().map(|response| response.status().as_u16());
                status.map_or_else(|| "upgrade".to_owned(), |status| format!("upgrade refused with {status}"))
            }
            ConnectError::Ended(Cause::Tls(_)) => "TLS".to_owned(),
            ConnectError::Proxy(_) => "proxy".to_owned(),
            _ => "connect".to_owned(),
        };
        self.add(&kind, 1, || super::explain(error));
    }

    pub(super) fn add_closed(&mut self, closed: &Closed) {
        let code = closed.code.get();
        self.add(&format!("closed with {code}"), 1, || {
            let reason = if closed.reason.is_empty() { String::new() } else { format!(" {:?}", closed.reason) };
            format!("a connection ended ({code}{reason}): {:#}", closed.cause)
        });
    }

    /// Adds the errors of another part of the load.
    pub(super) fn merge(&mut self, other: Self) {
        for (kind, (count, text)) in other.0 {
            self.add(&kind, count, || text);
        }
    }

    /// All errors.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().map(|(count, _)| count).sum()
    }

    /// Each kind, its number, and the text of the first one.
    pub fn kinds(&self) -> impl Iterator<Item = (&str, u64, &str)> {
        self.0.iter().map(|(kind, (count, text))| (&**kind, *count, &**text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline::CloseCode;

    #[test]
    fn kinds_are_counted_apart_and_bounded() {
        let mut errors = Errors::default();
        errors.add_error(&Error::WrongReply("first".to_owned()));
        errors.add_error(&Error::WrongReply("second".to_owned()));
        for code in 4000..4100 {
            errors.add_closed(&Closed::new(CloseCode::new(code), Cause::Peer));
        }
        assert_eq!(errors.total(), 102);
        let all: Vec<_> = errors.kinds().collect();
        assert_eq!(all.len(), MOST_KINDS + 1);
        let wrong = all.iter().find(|(kind, ..)| *kind == "wrong reply").unwrap();
        assert!(wrong.1 == 2 && wrong.2.contains("first"), "{wrong:?}");
        assert_eq!(all.iter().find(|(kind, ..)| *kind == "other").unwrap().1, 102 - 2 - 31);
    }
}
