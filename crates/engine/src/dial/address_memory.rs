use crate::turn::timer::Tick;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use tautline_conn::closed::{Cause, ConnectError};
use tautline_ws::handshake::HandshakeError;

/// Most addresses that are remembered. The one that failed longest ago gives way.
const MOST: usize = 256;

/// Time after which a failure is forgotten.
const FADES: Duration = Duration::from_secs(300);

/// The addresses at which attempts failed recently, so that further attempts begin with others.
///
/// An address may accept connections and then say nothing, when the server behind it is dead. Its next client begins with
/// the next address of the name. Times are those of any clock that does not go back.
///
/// ```
/// # mod tautline { pub use tautline_engine::{Cause, ConnectError}; pub mod layers { pub use tautline_engine as engine; } }
/// use std::time::Duration;
/// use tautline::layers::engine::AddressMemory;
/// use tautline::{Cause, ConnectError};
///
/// let (one, other) = ("10.0.0.1:443".parse().unwrap(), "10.0.0.2:443".parse().unwrap());
/// let mut memory = AddressMemory::default();
/// memory.failed(one, &ConnectError::Ended(Cause::Finished), Duration::ZERO);
/// assert_eq!(memory.order(vec![one, other], Duration::from_secs(1)), [other, one]);
/// memory.opened(&one);
/// assert_eq!(memory.order(vec![one, other], Duration::from_secs(1)), [one, other]);
/// ```
#[derive(Debug, Default)]
pub struct AddressMemory {
    /// When an attempt at each address failed last.
    failures: BTreeMap<SocketAddr, Duration>,
}

impl AddressMemory {
    /// An attempt at `address` failed. It counts if another address may do better.
    pub fn failed(&mut self, address: SocketAddr, error: &ConnectError, now: Duration) {
        if !is_of_address(error) {
            return;
        }
        self.failures.insert(address, now);
        if self.failures.len() > MOST
            && let Some(oldest) = self.failures.iter().min_by_key(|(_, at)| **at).map(|(address, _)| *address)
        {
            self.failures.remove(&oldest);
        }
    }

    /// An attempt failed at `tick`. It may have had no address.
    pub(crate) fn note(&mut self, address: Option<SocketAddr>, error: &ConnectError, tick: Tick) {
        if let Some(address) = address {
            self.failed(address, error, Duration::from_millis(tick));
        }
    }

    /// A connection to `address` was opened, so its failures are forgotten.
    pub fn opened(&mut self, address: &SocketAddr) {
        self.failures.remove(address);
    }

    /// The order in which to try the addresses of a name, which the resolver gave in its order of preference.
    ///
    /// Families alternate, beginning with that of the first (RFC 8305, section 4). Addresses that failed recently come last,
    /// and among them the one that failed longest ago first.
    pub fn order(&mut self, addresses: Vec<SocketAddr>, now: Duration) -> Vec<SocketAddr> {
        self.failures.retain(|_, at| now.saturating_sub(*at) < FADES);
        let (mut failed, fine): (Vec<_>, Vec<_>) =
            addresses.into_iter().partition(|address| self.failures.contains_key(address));
        failed.sort_by_key(|address| self.failures.get(address));
        let mut order = alternating(fine);
        order.append(&mut failed);
        order
    }
}

/// Orders addresses so that families alternate, beginning with that of the first.
fn alternating(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let mut order = Vec::with_capacity(addresses.len());
    let first = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let (a, b): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|address| address.is_ipv4() == first);
    let (mut a, mut b) = (a.into_iter(), b.into_iter());
    while a.len() + b.len() > 0 {
        order.extend(a.next());
        order.extend(b.next());
    }
    order
}

/// Whether a failure may be that of one address alone: silence, a reset, or the answer of a server that does not work.
fn is_of_address(error: &ConnectError) -> bool {
    match error {
        _ if error.is_permanent() => false,
        ConnectError::Io { .. } => true,
        ConnectError::Ended(cause) => !matches!(cause, Cause::Local | Cause::Stopped | Cause::Panicked),
        ConnectError::Handshake(error) => match &**error {
            HandshakeError::Rejected { response } => response.status().is_server_error(),
            HandshakeError::Redirected { .. } => false,
            _ => true,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{AddressMemory, FADES, MOST};
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::time::Duration;
    use tautline_conn::closed::{Cause, ConnectError, Deadline};
    use tautline_ws::handshake::HandshakeError;

    const SECOND: Duration = Duration::from_secs(1);

    fn parsed<const N: usize>(addresses: [&str; N]) -> Vec<SocketAddr> {
        addresses.iter().map(|address| address.parse().unwrap()).collect()
    }

    fn silence() -> ConnectError {
        ConnectError::Ended(Cause::Timeout(Deadline::Handshake))
    }

    #[test]
    fn families_alternate() {
        let order =
            AddressMemory::default().order(parsed(["[::1]:1", "[::2]:1", "1.1.1.1:1", "[::3]:1", "2.2.2.2:1"]), SECOND);
        assert_eq!(order, parsed(["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1", "[::3]:1"]));
        assert!(AddressMemory::default().order(Vec::new(), SECOND).is_empty());
    }

    #[test]
    fn addresses_that_failed_come_last_until_they_open_or_the_failure_fades() {
        let all = parsed(["[::1]:1", "1.1.1.1:1", "[::2]:1", "1.1.1.1:2"]);
        let mut memory = AddressMemory::default();
        memory.failed(all[0], &silence(), SECOND);
        memory.failed(all[1], &silence(), 2 * SECOND);
        // A failed address does not come between others for the sake of its family.
        assert_eq!(memory.order(all.clone(), 3 * SECOND), parsed(["[::2]:1", "1.1.1.1:2", "[::1]:1", "1.1.1.1:1"]));
        // If all fail, they take turns.
        memory.failed(all[2], &silence(), 3 * SECOND);
        memory.failed(all[3], &silence(), 4 * SECOND);
        memory.failed(all[0], &silence(), 5 * SECOND);
        assert_eq!(memory.order(all.clone(), 6 * SECOND), parsed(["1.1.1.1:1", "[::2]:1", "1.1.1.1:2", "[::1]:1"]));
        memory.opened(&all[2]);
        assert_eq!(memory.order(all.clone(), 6 * SECOND)[0], all[2]);
        assert_eq!(
            memory.order(all.clone(), 5 * SECOND + FADES),
            parsed(["[::1]:1", "1.1.1.1:1", "[::2]:1", "1.1.1.1:2"])
        );
        assert!(memory.failures.is_empty());
    }

    #[test]
    fn a_bounded_number_is_remembered() {
        let address = |n: usize| SocketAddr::from(([10, 0, 0, 1], u16::try_from(n + 1).unwrap()));
        let mut memory = AddressMemory::default();
        for n in 0..3 * MOST {
            memory.failed(address(n), &silence(), Duration::from_millis(n as u64));
        }
        assert_eq!(memory.failures.len(), MOST);
        assert!(memory.failures.contains_key(&address(3 * MOST - 1)) && !memory.failures.contains_key(&address(0)));
    }

    #[test]
    fn failures_that_no_other_address_mends_do_not_count() {
        let refused = |status: u16| {
            let response = Box::new(http::Response::builder().status(status).body(Vec::new()).unwrap());
            ConnectError::Handshake(Arc::new(HandshakeError::Rejected { response }))
        };
        let of_address = |error: &ConnectError| {
            let mut memory = AddressMemory::default();
            memory.failed(([10, 0, 0, 1], 1).into(), error, SECOND);
            !memory.failures.is_empty()
        };
        let handshake = |error| ConnectError::Handshake(Arc::new(error));
        for error in [
            silence(),
            refused(502),
            refused(503),
            ConnectError::Ended(Cause::Truncated),
            ConnectError::Ended(Cause::Tls(tautline_tls::Error::Certificate("expired".into()))),
            handshake(HandshakeError::Malformed("no HTTP")),
        ] {
            assert!(of_address(&error), "{error}");
        }
        for error in [
            refused(401),
            refused(404),
            refused(429),
            ConnectError::Ended(Cause::Local),
            ConnectError::Resolve("no such host".into()),
            ConnectError::Target("no host".into()),
            handshake(HandshakeError::Options("a subprotocol is named twice")),
        ] {
            assert!(!of_address(&error), "{error}");
        }
    }
}
