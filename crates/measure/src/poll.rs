//! epoll(7), and the socket calls of loops that are written by hand.

use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;
use tautline::layers::buf::Buf;

/// Events fetched at a time.
const EVENTS: usize = 256;

/// An epoll instance with a buffer for its events.
pub struct Poll {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Poll {
    /// An empty instance.
    ///
    /// # Errors
    /// `epoll_create(2)` failed.
    pub fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, events: Vec::with_capacity(EVENTS) })
    }

    /// Duplicates the descriptor, for another thread's [`Poll::of`].
    ///
    /// # Errors
    /// `fcntl(2)` failed.
    pub fn share(&self) -> Result<OwnedFd, Errno> {
        rustix::io::fcntl_dupfd_cloexec(&self.epoll, 0)
    }

    /// Uses a [shared](Self::share) instance and fetches at most `events` at a time.
    pub fn of(epoll: OwnedFd, events: usize) -> Self {
        Self { epoll, events: Vec::with_capacity(events) }
    }

    /// Watches `source` under a key.
    ///
    /// # Errors
    /// `epoll_ctl(2)` failed.
    pub fn add(&self, source: impl AsFd, key: usize, interest: epoll::EventFlags) -> Result<(), Errno> {
        epoll::add(&self.epoll, source, epoll::EventData::new_u64(key as u64), interest)
    }

    /// Changes what `source` is watched for.
    ///
    /// # Errors
    /// `epoll_ctl(2)` failed.
    pub fn modify(&self, source: impl AsFd, key: usize, interest: epoll::EventFlags) -> Result<(), Errno> {
        epoll::modify(&self.epoll, source, epoll::EventData::new_u64(key as u64), interest)
    }

    /// Waits for events, at most `timeout`. A signal ends the wait without events.
    ///
    /// # Errors
    /// `epoll_wait(2)` failed.
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Errno> {
        self.events.clear();
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(timeout.subsec_nanos()) };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Number of events of the last wait.
    pub const fn events(&self) -> usize {
        self.events.len()
    }

    /// Key of the `i`th event.
    pub fn key(&self, i: usize) -> usize {
        usize::try_from(self.events[i].data.u64()).unwrap_or(usize::MAX)
    }

    /// Flags of the `i`th event.
    pub fn flags(&self, i: usize) -> epoll::EventFlags {
        self.events[i].flags
    }
}

/// Listens at `address` with a backlog of 4,096 connections.
///
/// # Errors
/// `socket(2)`, `bind(2)` or `listen(2)` failed.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &address)?;
    net::listen(&socket, 4096)?;
    Ok(TcpListener::from(socket))
}

/// Accepts a connection as a non-blocking socket without Nagle's algorithm; `None` if none is waiting.
///
/// # Errors
/// `accept(2)` failed.
pub fn accept(listener: impl AsFd) -> Result<Option<OwnedFd>, Errno> {
    loop {
        match net::accept_with(&listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => {
                sockopt::set_tcp_nodelay(&socket, true)?;
                return Ok(Some(socket));
            }
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::CONNABORTED | Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Receives once. The number of bytes is 0 at the end of the stream; `None` means that nothing has arrived.
///
/// # Errors
/// `recv(2)` failed.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
    match net::recv(socket, buffer, RecvFlags::empty()) {
        Ok((received, _)) => Ok(Some(received)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sends once; returns the number of bytes that the kernel took.
///
/// # Errors
/// `send(2)` failed.
pub fn send(socket: impl AsFd, bytes: &[u8]) -> Result<usize, Errno> {
    match net::send(socket, bytes, SendFlags::NOSIGNAL) {
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        result => result,
    }
}

/// Sends from `out` until it is empty or the kernel takes no more.
///
/// # Errors
/// `send(2)` failed.
pub fn send_all(socket: impl AsFd, out: &mut Buf) -> Result<(), Errno> {
    while !out.is_empty() {
        match send(&socket, out.filled())? {
            0 => break,
            sent => out.take(sent),
        }
    }
    Ok(())
}
