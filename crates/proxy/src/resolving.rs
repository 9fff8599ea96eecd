//! Addresses of servers' names, looked up again and again: a thread for each name. All loops see what they find.

use crate::plan::{Endpoint, Place, Plan};
use arc_swap::ArcSwap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;
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
enum News {
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
    fn take(&self, answer: io::Result<Vec<SocketAddr>>) -> News {
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

/// The look-ups of a plan. They end when it is dropped.
#[derive(Debug)]
pub struct Resolving {
    _running: Vec<Sender<()>>,
}

impl Resolving {
    /// Begins to look up the names of all servers whose backends want it.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(plan: &Plan) -> io::Result<Self> {
        let mut running = Vec::new();
        for backend in &plan.backends {
            let Some(every) = backend.resolve_every else { continue };
            for (endpoint, resolved) in backend.endpoints.iter().zip(&backend.resolved) {
                let Some((host, port)) = name_of(endpoint) else { continue };
                let (end, ended) = channel();
                let (host, resolved) = (host.to_owned(), resolved.clone());
                let look_up = move || (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
                let name = format!("backend {:?}: {}", backend.name, endpoint.authority());
                let work = move || run(&name, &resolved, every, &ended, look_up);
                thread::Builder::new().name("resolve".to_owned()).spawn(work)?;
                running.push(end);
            }
        }
        Ok(Self { _running: running })
    }
}

/// The name and the port of a server, if it has a name.
pub(crate) fn name_of(endpoint: &Endpoint) -> Option<(&str, u16)> {
    match &endpoint.place {
        Place::Tcp { host, port } if host.parse::<std::net::IpAddr>().is_err() => Some((host, *port)),
        _ => None,
    }
}

/// Looks a name up again and again, until the end.
fn run(
    name: &str,
    resolved: &Resolved,
    every: Duration,
    ended: &Receiver<()>,
    look_up: impl Fn() -> io::Result<Vec<SocketAddr>>,
) {
    let mut is_failing = false;
    loop {
        let news = resolved.take(look_up());
        let fails = matches!(news, News::Failed(_));
        match news {
            News::None => {}
            News::Changed(came, went) => log::info!("{name}: new addresses {came:?}, gone {went:?}"),
            News::Failed(why) if !is_failing => {
                log::warn!("{name}: its addresses stay as they are, since it cannot be looked up: {why}");
            }
            News::Failed(_) => {}
        }
        if is_failing && !fails {
            log::warn!("{name}: it can be looked up again");
        }
        is_failing = fails;
        if ended.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

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

    #[test]
    fn a_name_is_looked_up_until_the_end() {
        let resolved = Resolved::default();
        let (end, ended) = channel();
        let answers = Mutex::new(vec![at(&["10.0.0.2:1"]), vec![], at(&["10.0.0.1:1"])]);
        let end = Mutex::new(Some(end));
        run("test", &resolved, Duration::from_millis(1), &ended, || {
            let answer = answers.lock().unwrap().pop();
            if answer.is_none() {
                drop(end.lock().unwrap().take());
            }
            answer.ok_or_else(|| io::ErrorKind::TimedOut.into())
        });
        assert_eq!(resolved.next(), at(&["10.0.0.2:1"]));
    }
}
