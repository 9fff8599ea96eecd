//! Listening and accepting.

use crate::conn::{Conn, Phase};
use crate::driver::Driver;
use crate::frame::Segment;
use crate::wire::Wire;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use smoltcp::socket::tcp::State;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tautline_io::{ListenOptions, Listener, Sink, Token};

/// Most connections that one turn accepts.
const ACCEPTS: usize = 64;

/// How long a peer may take for its handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// What is listened at.
#[derive(Default)]
pub(crate) struct Listening {
    listeners: Vec<Place>,
    at: HashMap<SocketAddr, u32>,
    /// Connections whose handshake is not complete, the oldest first; some may be complete or gone.
    half_open: VecDeque<Token>,
    /// How many of those are neither.
    pub(crate) half_open_count: usize,
    /// Connections to accept, the oldest first; some may be gone.
    ready: VecDeque<Token>,
    pub(crate) paused: bool,
}

struct Place {
    /// A socket of the kernel that is bound, and never listens: no other program gets the port.
    reserved: Option<OwnedFd>,
    backlog: usize,
}

/// What becomes of a segment that opens a connection.
pub(crate) enum Admission {
    NobodyListens,
    /// Too many connections: the peer tries again.
    Full,
    As(Token),
}

#[cfg(test)]
impl Listening {
    pub(crate) fn half_open_len(&self) -> usize {
        self.half_open.len()
    }
}

impl<W: Wire> Driver<W> {
    pub(crate) fn start_listening(
        &mut self,
        at: SocketAddr,
        options: &ListenOptions,
    ) -> io::Result<(Listener, SocketAddr)> {
        let mine = self.addresses_of(at.ip());
        if mine.is_empty() {
            let all: Vec<_> = self.facts.addresses.iter().map(|(address, _)| address.to_string()).collect();
            let name = &self.facts.name;
            let text = format!("{} is no address of {name}, which has {}", at.ip(), all.join(", "));
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text));
        }
        let mine_is = |address: &IpAddr| self.listening.at.contains_key(&SocketAddr::new(*address, at.port()));
        if mine.iter().any(mine_is) {
            return Err(Errno::ADDRINUSE.into());
        }
        let (reserved, at) = reserve(at, Use::Listen)?;
        let endpoints: Vec<_> = mine.into_iter().map(|address| SocketAddr::new(address, at.port())).collect();
        for (done, &endpoint) in endpoints.iter().enumerate() {
            if let Err(error) = self.claim(endpoint) {
                endpoints[..done].iter().for_each(|&claimed| self.release(claimed));
                return Err(error);
            }
        }
        let number = u32::try_from(self.listening.listeners.len()).unwrap_or(u32::MAX);
        let backlog = usize::try_from(options.backlog).unwrap_or(0).max(1);
        self.listening.listeners.push(Place { reserved: Some(reserved), backlog });
        self.listening.at.extend(endpoints.into_iter().map(|endpoint| (endpoint, number)));
        Ok((Listener(number), at))
    }

    /// The addresses of the interface that are meant by one that may be unspecified.
    fn addresses_of(&self, address: IpAddr) -> Vec<IpAddr> {
        let meant = |own: &IpAddr| {
            if address.is_unspecified() { own.is_ipv4() == address.is_ipv4() } else { *own == address }
        };
        self.stack.addresses().filter(meant).collect()
    }

    pub(crate) fn end_listening(&mut self) {
        for (endpoint, _) in std::mem::take(&mut self.listening.at) {
            self.release(endpoint);
        }
        self.listening.listeners.iter_mut().for_each(|place| place.reserved = None);
        let half_open = std::mem::take(&mut self.listening.half_open);
        for id in half_open.into_iter().chain(std::mem::take(&mut self.listening.ready)) {
            if self.conns.get(id).is_some_and(|conn| matches!(conn.phase, Phase::HalfOpen(_) | Phase::Waiting(_))) {
                self.abort(id);
            }
        }
    }

    /// Makes a connection of a segment that opens one.
    pub(crate) fn admit(&mut self, segment: &Segment) -> Admission {
        let Some(&listener) = self.listening.at.get(&segment.pair.local) else { return Admission::NobodyListens };
        let backlog = self.listening.listeners.get(listener as usize).map_or(0, |place| place.backlog);
        if self.conns.len() >= self.config.connections as usize || self.listening.ready.len() >= backlog {
            return Admission::Full;
        }
        self.make_room_for_half_open();
        let Ok(tcp) = self.stack.passive(segment.pair.local) else { return Admission::Full };
        if self.claim(segment.pair.local).is_err() {
            return Admission::Full;
        }
        let mut conn = Conn::new(tcp, segment.pair, segment.back, Phase::HalfOpen(listener));
        conn.deadline = Some(self.now + HANDSHAKE);
        let id = self.conns.insert(conn);
        self.pairs.insert(segment.pair, id);
        self.listening.half_open.push_back(id);
        self.listening.half_open_count += 1;
        Admission::As(id)
    }

    /// A flood of first segments costs no more than the limit: the oldest that did not complete gives way.
    fn make_room_for_half_open(&mut self) {
        let most = self.config.half_open as usize;
        let conns = &self.conns;
        let is_half_open = |&id: &Token| conns.get(id).is_some_and(|conn| matches!(conn.phase, Phase::HalfOpen(_)));
        if self.listening.half_open.len() >= 2 * most {
            // Most of them are complete or gone; each is looked at once or twice.
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

    /// A segment came for a connection that is not accepted.
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

    pub(crate) fn accept<S: Sink<Self>>(&mut self, buffer: &mut [u8], sink: &mut S) {
        for _ in 0..ACCEPTS {
            if self.listening.paused {
                return;
            }
            let Some(id) = self.listening.ready.pop_front() else { return };
            let Some(conn) = self.conns.get_mut(id) else { continue };
            let Phase::Waiting(listener) = conn.phase else { continue };
            let token = self.tokens.insert(id);
            conn.phase = Phase::Open;
            conn.token = Some(token);
            sink.accepted(self, token, Listener(listener));
            // What came with the handshake.
            self.serve(id, buffer, sink);
        }
    }
}

/// What a port is kept for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Connections that the kernel still remembers do no harm.
    Listen,
    /// Nothing else may have it.
    Connect,
}

/// Keeps a port from all other programs; a port of 0 is chosen by the kernel.
pub(crate) fn reserve(at: SocketAddr, what_for: Use) -> io::Result<(OwnedFd, SocketAddr)> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // A port that the kernel chooses must be nobody's.
    if what_for == Use::Listen && at.port() != 0 {
        sockopt::set_socket_reuseaddr(&fd, true)?;
    }
    if at.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    net::bind(&fd, &at)?;
    let bound = SocketAddr::try_from(net::getsockname(&fd)?).map_err(|_| Errno::AFNOSUPPORT)?;
    Ok((fd, SocketAddr::new(bound.ip(), bound.port())))
}
