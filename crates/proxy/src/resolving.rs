//! Addresses of servers' names, looked up again and again: a thread for each name. All loops see what they find.

use crate::plan::{Endpoint, Place, Plan};
use crate::resolved::{News, Resolved};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

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
