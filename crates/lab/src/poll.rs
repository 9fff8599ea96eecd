//! epoll(7), and the socket calls of loops that are written by hand.

use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags, sockopt};
use std::time::Duration;
use tautline::layers::buf::Buf;

/// Events fetched at a time.
const EVENTS: usize = 256;

/// An epoll instance with a buffer for its events.
pub(crate) struct Poll {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Poll {
    pub(crate) fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, events: Vec::with_capacity(EVENTS) })
    }

    /// Duplicates the descriptor, for another thread's [`Poll::of`].
    pub(crate) fn share(&self) -> Result<OwnedFd, Errno> {
        rustix::io::fcntl_dupfd_cloexec(&self.epoll, 0)
    }

    /// Uses a [shared](Self::share) instance and fetches at most `events` at a time.
    pub(crate) fn of(epoll: OwnedFd, events: usize) -> Self {
        Self { epoll, events: Vec::with_capacity(events) }
    }

    pub(crate) fn add(&self, source: impl AsFd, key: usize, interest: epoll::EventFlags) -> Result<(), Errno> {
        epoll::add(&self.epoll, source, epoll::EventData::new_u64(key as u64), interest)
    }

    pub(crate) fn modify(&self, source: impl AsFd, key: usize, interest: epoll::EventFlags) -> Result<(), Errno> {
        epoll::modify(&self.epoll, source, epoll::EventData::new_u64(key as u64), interest)
    }

    /// Waits for events, at most `timeout`. A signal ends the wait without events.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<(), Errno> {
        self.events.clear();
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(timeout.subsec_nanos()) };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Number of events of the last wait.
    pub(crate) const fn events(&self) -> usize {
        self.events.len()
    }

    /// Key of the `i`th event.
    pub(crate) fn key(&self, i: usize) -> usize {
        usize::try_from(self.events[i].data.u64()).unwrap_or(usize::MAX)
    }

    /// Flags of the `i`th event.
    pub(crate) fn flags(&self, i: usize) -> epoll::EventFlags {
        self.events[i].flags
    }
}

/// Accepts a connection as a non-blocking socket without Nagle's algorithm; `None` if none is waiting.
pub(crate) fn accept(listener: impl AsFd) -> Result<Option<OwnedFd>, Errno> {
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
pub(crate) fn receive(socket: impl AsFd, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
    match net::recv(socket, buffer, RecvFlags::empty()) {
        Ok((received, _)) => Ok(Some(received)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sends once; returns the number of bytes that the kernel took.
pub(crate) fn send(socket: impl AsFd, bytes: &[u8]) -> Result<usize, Errno> {
    match net::send(socket, bytes, SendFlags::NOSIGNAL) {
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        result => result,
    }
}

/// Sends from `out` until it is empty or the kernel takes no more.
pub(crate) fn send_all(socket: impl AsFd, out: &mut Buf) -> Result<(), Errno> {
    while !out.is_empty() {
        match send(&socket, out.filled())? {
            0 => break,
            sent => out.take(sent),
        }
    }
    Ok(())
}
