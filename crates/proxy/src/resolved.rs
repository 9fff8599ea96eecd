use arc_swap::ArcSwap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tautline::Address;

/// The addresses of a name. Clones are the same one, and a reload keeps them.
///
/// Before the first answer there is none, and each connection looks the name up by itself.
#[derive(Clone, Debug, Default)]
pub struct Resolved(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// In ascending order.
    addresses: ArcSwap<Vec<SocketAddr>>,
    /// Counts connections, so that each address has its turn.
    turn: AtomicUsize,
}

/// The news of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    None,
    /// Addresses that came, and those that went.
    Changed(Vec<SocketAddr>, Vec<SocketAddr>),
    /// There was no address, and the old ones stay.
    Failed(String),
}

impl Resolved {
    /// The addresses to connect to, beginning with the one whose turn it is.
    #[must_use]
    pub fn next(&self) -> Vec<SocketAddr> {
        let mut addresses = self.0.addresses.load().to_vec();
        if !addresses.is_empty() {
            let at = self.0.turn.fetch_add(1, Ordering::Relaxed) % addresses.len();
            addresses.rotate_left(at);
        }
        addresses
    }

    /// Whether the name still has an address, so that a connection to it may get another request.
    #[must_use]
    pub fn has(&self, address: &Address) -> bool {
        let addresses = self.0.addresses.load();
        match address {
            Address::Tcp(address) => addresses.is_empty() || addresses.contains(address),
            _ => true,
        }
    }

    /// Takes an answer. An empty one is a failure.
    pub(crate) fn take(&self, answer: io::Result<Vec<SocketAddr>>) -> News {
        let mut found = match answer {
            Ok(found) if !found.is_empty() => found,
            Ok(_) => return News::Failed("it has no address".to_owned()),
            Err(error) => return News::Failed(error.to_string()),
        };
        found.sort_unstable();
        found.dedup();
        let before = self.0.addresses.load_full();
        if *before == found {
            return News::None;
        }
        let without = |list: &[SocketAddr], other: &[SocketAddr]| -> Vec<SocketAddr> {
            list.iter().filter(|address| !other.contains(address)).copied().collect()
        };
        let news = News::Changed(without(&found, &before), without(&before, &found));
        self.0.addresses.store(Arc::new(found));
        news
    }

    /// Takes the addresses of an answer.
    pub fn set(&self, addresses: Vec<SocketAddr>) {
        let _ = self.take(Ok(addresses));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(addresses: &[&str]) -> Vec<SocketAddr> {
        addresses.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[test]
    fn a_failed_answer_keeps_the_addresses() {
        let resolved = Resolved::default();
        assert!(resolved.next().is_empty() && resolved.has(&"10.0.0.9:1".parse().unwrap()));
        let came = at(&["10.0.0.1:1", "10.0.0.2:1"]);
        let news = resolved.take(Ok(at(&["10.0.0.2:1", "10.0.0.1:1", "10.0.0.2:1"])));
        assert_eq!(news, News::Changed(came.clone(), vec![]));
        assert_eq!(resolved.take(Ok(came.clone())), News::None);
        assert!(matches!(resolved.take(Ok(vec![])), News::Failed(_)));
        assert!(matches!(resolved.take(Err(io::ErrorKind::TimedOut.into())), News::Failed(_)));
        assert!(resolved.has(&"10.0.0.1:1".parse().unwrap()) && !resolved.has(&"10.0.0.3:1".parse().unwrap()));
        // Each has its turn.
        assert_eq!([resolved.next()[0], resolved.next()[0], resolved.next()[0]], [came[0], came[1], came[0]]);
        let news = resolved.take(Ok(at(&["10.0.0.2:1", "10.0.0.3:1"])));
        assert_eq!(news, News::Changed(at(&["10.0.0.3:1"]), at(&["10.0.0.1:1"])));
    }
}
