//! Opens connections to one endpoint, and counts them: never more than were announced.

use super::facts::{Sent, Trouble, TroubleKind};
use super::stream::{Stream, again, io_trouble};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tautline::Proxy;
use tautline::layers::buf::Buf;
use tautline::layers::engine::Tunnel;

/// The way to the endpoint, and what may still be sent there.
pub(crate) struct Dialer {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) proxy: Option<Proxy>,
    /// Longest wait for each step of a connection.
    pub(crate) timeout: Duration,
    plan: Sent,
    sent: Mutex<Sent>,
}

/// The kinds of things that a step sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Connection,
    Request,
    Ping,
    MessageHeader,
}

impl Dialer {
    pub(crate) fn new(host: &str, port: u16, proxy: Option<Proxy>, timeout: Duration, plan: Sent) -> Self {
        Self { host: host.to_owned(), port, proxy, timeout, plan, sent: Mutex::default() }
    }

    /// Counts one thing to be sent, and returns true if the plan allows it. Otherwise it must not be sent.
    pub(crate) fn allows(&self, kind: Kind) -> bool {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, most) = match kind {
            Kind::Connection => (&mut sent.connections, self.plan.connections),
            Kind::Request => (&mut sent.requests, self.plan.requests),
            Kind::Ping => (&mut sent.pings, self.plan.pings),
            Kind::MessageHeader => (&mut sent.message_headers, self.plan.message_headers),
        };
        let allowed = *count < most;
        *count += usize::from(allowed);
        allowed
    }

    pub(crate) fn sent(&self) -> Sent {
        *self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time by which a step that begins now must be done.
    pub(crate) fn until(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Connects to an address of the endpoint, or of the proxy, and returns the connection with the time that TCP took.
    pub(crate) fn connect(&self, address: SocketAddr) -> Result<(Stream, f64), Trouble> {
        if !self.allows(Kind::Connection) {
            let text = "not tried: the plan has no more connections".to_owned();
            return Err(Trouble { kind: TroubleKind::Other, text });
        }
        let start = Instant::now();
        let mut tcp = TcpStream::connect_timeout(&address, self.timeout).map_err(|error| io_trouble(&error))?;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        if let Some(proxy) = &self.proxy {
            self.tunnel(&mut tcp, proxy.clone())?;
        }
        Ok((Stream::plain(tcp), ms))
    }

    fn tunnel(&self, tcp: &mut TcpStream, proxy: Proxy) -> Result<(), Trouble> {
        let refused = |text| Trouble { kind: TroubleKind::Proxy, text };
        let failed = |error: std::io::Error| Trouble { kind: TroubleKind::Proxy, text: io_trouble(&error).text };
        let until = self.until();
        let mut out = Buf::new();
        let mut tunnel = Tunnel::new(proxy, &self.host, self.port, &mut out).map_err(refused)?;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(refused("no answer of the proxy in time".to_owned()));
            }
            tcp.set_read_timeout(Some(left)).and_then(|()| tcp.set_write_timeout(Some(left))).map_err(failed)?;
            tcp.write_all(out.filled()).map_err(failed)?;
            out.clear();
            // One byte at a time, so that no byte of the server behind the proxy is read here.
            let mut byte = [0; 1];
            if again(|| tcp.read(&mut byte)).map_err(failed)? == 0 {
                return Err(refused("the proxy closed the connection".to_owned()));
            }
            if tunnel.read(&byte, &mut out).map_err(refused)?.1 {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_sent_beyond_the_plan() {
        let plan = Sent { connections: 2, pings: 1, ..Sent::default() };
        let dialer = Dialer::new("localhost", 1, None, Duration::from_secs(1), plan);
        assert!(dialer.allows(Kind::Connection) && dialer.allows(Kind::Connection) && !dialer.allows(Kind::Connection));
        assert!(dialer.allows(Kind::Ping) && !dialer.allows(Kind::Ping) && !dialer.allows(Kind::Request));
        assert_eq!(dialer.sent(), plan);
        let refused = dialer.connect(([127, 0, 0, 1], 1).into()).err().unwrap();
        assert!(refused.text.contains("plan"), "{refused:?}");
    }
}
