//! Listening and accepting.

use crate::conn::{Conn, Phase};
use crate::driver::Driver;
use crate::frame::Segment;
use crate::listeners::Entry;
use crate::wire::Wire;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use smoltcp::socket::tcp::State;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tautline_io::{ListenOptions, Listener, Sink, Token};

/// Most connections that one turn accepts.
const ACCEPTS: usize = 64;

/// Time limit of a peer's handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// The outcome of a segment that opens a connection.
pub(crate) enum Admission {
    NoListener,
    /// There are too many connections. The segment is dropped, and the peer tries again.
    Full,
    Admitted(Token),
}

impl<W: Wire> Driver<W> {
    pub(crate) fn start_listening(
        &mut self,
        at: SocketAddr,
        options: &ListenOptions,
    ) -> io::Result<(Listener, SocketAddr)> {
        let addresses = self.addresses_of(at.ip());
        if addresses.is_empty() {
            let all: Vec<_> = self.info.addresses.iter().map(|(address, _)| address.to_string()).collect();
            let name = &self.info.name;
            let text = format!("{} is no address of {name}, which has {}", at.ip(), all.join(", "));
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text));
        }
        let is_taken =
            |address: &IpAddr| self.listening.by_endpoint.contains_key(&SocketAddr::new(*address, at.port()));
        if addresses.iter().any(is_taken) {
            return Err(Errno::ADDRINUSE.into());
        }
        let (reserved, at) = reserve(at, Purpose::Listen)?;
        let endpoints: Vec<_> = addresses.into_iter().map(|address| SocketAddr::new(address, at.port())).collect();
        for (done, &endpoint) in endpoints.iter().enumerate() {
            if let Err(error) = self.claim(endpoint) {
                endpoints[..done].iter().for_each(|&claimed| self.release(claimed));
                return Err(error);
            }
        }
        let number = u32::try_from(self.listening.all.len()).unwrap_or(u32::MAX);
        let backlog = usize::try_from(options.backlog).unwrap_or(0).max(1);
        self.listening.all.push(Entry { reserved: Some(reserved), backlog });
        self.listening.by_endpoint.extend(endpoints.into_iter().map(|endpoint| (endpoint, number)));
        Ok((Listener(number), at))
    }

    /// The addresses of the interface that `address` stands for; it may be unspecified.
    fn addresses_of(&self, address: IpAddr) -> Vec<IpAddr> {
        let meant = |own: &IpAddr| {
            if address.is_unspecified() { own.is_ipv4() == address.is_ipv4() } else { *own == address }
        };
        self.stack.addresses().filter(meant).collect()
    }

    pub(crate) fn end_listening(&mut self) {
        for (endpoint, _) in std::mem::take(&mut self.listening.by_endpoint) {
            self.release(endpoint);
        }
        self.listening.all.iter_mut().for_each(|entry| entry.reserved = None);
        let half_open = std::mem::take(&mut self.listening.half_open);
        for id in half_open.into_iter().chain(std::mem::take(&mut self.listening.ready)) {
            if self.conns.get(id).is_some_and(|conn| matches!(conn.phase, Phase::HalfOpen(_) | Phase::Waiting(_))) {
                self.abort(id);
            }
        }
    }

    /// Makes a connection for a segment that opens one.
    pub(crate) fn admit(&mut self, segment: &Segment) -> Admission {
        let Some(&listener) = self.listening.by_endpoint.get(&segment.pair.local) else {
            return Admission::NoListener;
        };
        let backlog = self.listening.all.get(listener as usize).map_or(0, |entry| entry.backlog);
        if self.conns.count() >= self.config.connections as usize || self.listening.ready.len() >= backlog {
            return Admission::Full;
        }
        self.evict_half_open();
        let Ok(tcp) = self.stack.passive(segment.pair.local) else { return Admission::Full };
        if self.claim(segment.pair.local).is_err() {
            return Admission::Full;
        }
        let mut conn = Conn::new(tcp, segment.pair, segment.reply_header, Phase::HalfOpen(listener));
        conn.deadline = Some(self.now + HANDSHAKE);
        let id = self.conns.put(conn);
        self.pairs.insert(segment.pair, id);
        self.listening.half_open.push_back(id);
        self.listening.half_open_count += 1;
        Admission::Admitted(id)
    }

    /// Evicts the oldest connection with an incomplete handshake if there are too many, so that a SYN flood stays bounded.
    fn evict_half_open(&mut self) {
        let most = self.config.half_open as usize;
        let conns = &self.conns;
        let is_half_open = |&id: &Token| conns.get(id).is_some_and(|conn| matches!(conn.phase, Phase::HalfOpen(_)));
        if self.listening.half_open.len() >= 2 * most {
            // Most of the entries are complete or gone. Each is looked at once or twice.
            self.listening.half_open.retain(is_half_open);
        }
        while let Some(&oldest) = self.listening.half_open.front() {
            let real = is_half_open(&oldest);
            if real && self.listening.half_open_count < most {
                return;
            }
            self.listening.half_open.pop_front();
            if real {
                return self.remove(oldest);
            }
        }
    }

    /// Advances a connection that is not accepted yet, after a segment arrived.
    pub(crate) fn handshake(&mut self, id: Token) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        match (conn.phase, conn.state()) {
            // The peer reset it.
            (_, State::Listen | State::Closed) => self.remove(id),
            (_, State::SynReceived) | (Phase::Waiting(_), _) => {}
            (Phase::HalfOpen(listener), _) => {
                conn.phase = Phase::Waiting(listener);
                conn.deadline = None;
                self.listening.half_open_count -= 1;
                self.listening.ready.push_back(id);
            }
            _ => {}
        }
    }

    pub(crate) fn has_to_accept(&self) -> bool {
        !self.listening.paused && !self.listening.ready.is_empty()
    }

    pub(crate) fn accept(&mut self, buffer: &mut [u8], sink: &mut dyn Sink) {
        for _ in 0..ACCEPTS {
            if self.listening.paused {
                return;
            }
            let Some(id) = self.listening.ready.pop_front() else { return };
            let Some(conn) = self.conns.get_mut(id) else { continue };
            let Phase::Waiting(listener) = conn.phase else { continue };
            let token = self.tokens.put(id);
            conn.phase = Phase::Open;
            conn.token = Some(token);
            sink.accepted(self, token, Listener(listener));
            // Delivers bytes that arrived with the handshake.
            self.serve(id, buffer, sink);
        }
    }
}

/// The purpose for which a port is reserved.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To listen: connections that the kernel still remembers do not matter.
    Listen,
    /// To connect: no other socket may have the port.
    Connect,
}

/// Reserves a port, so that no other program can bind it. The kernel selects a port for 0.
pub(crate) fn reserve(at: SocketAddr, purpose: Purpose) -> io::Result<(OwnedFd, SocketAddr)> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // A port that the kernel selects must be unused.
    if purpose == Purpose::Listen && at.port() != 0 {
        sockopt::set_socket_reuseaddr(&fd, true)?;
    }
    if at.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    net::bind(&fd, &at)?;
    let bound = SocketAddr::try_from(net::getsockname(&fd)?).map_err(|_| Errno::AFNOSUPPORT)?;
    Ok((fd, SocketAddr::new(bound.ip(), bound.port())))
}
