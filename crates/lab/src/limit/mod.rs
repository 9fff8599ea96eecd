//! What WebSockets are judged by: echo over bare TCP, with as little as a loop can do.
//!
//! Server and load are hand-written over epoll(7): level-triggered, one `recv` and one `send` per event, one buffer per
//! thread, no frames, no timers, no limits, nobody to call back. What a server costs above this is what TLS, WebSocket
//! and the engine cost.

mod load;
mod server;

pub use load::Load;
pub use server::{listen, serve};

use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::time::Duration;

/// Bytes of the buffer, which also bounds what one event moves.
const BUFFER: usize = 64 * 1024;

/// Events fetched at a time.
const EVENTS: usize = 256;

/// One epoll instance with room for what it tells.
pub(crate) struct Poll {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Poll {
    pub(crate) fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, events: Vec::with_capacity(EVENTS) })
    }

    /// The same instance, for another thread to make a [`Poll`] [`of`](Self::of).
    pub(crate) fn share(&self) -> Result<OwnedFd, Errno> {
        rustix::io::fcntl_dupfd_cloexec(&self.epoll, 0)
    }

    /// What was [shared](Self::share), to take so many events at a time.
    pub(crate) fn of(epoll: OwnedFd, events: usize) -> Self {
        Self { epoll, events: Vec::with_capacity(events) }
    }

    /// How many events there are.
    pub(crate) const fn events(&self) -> usize {
        self.events.len()
    }

    pub(crate) fn add(&self, source: impl AsFd, key: usize, interest: epoll::EventFlags) -> Result<(), Errno> {
        epoll::add(&self.epoll, source, epoll::EventData::new_u64(key as u64), interest)
    }

    pub(crate) fn modify(&self, source: impl AsFd, key: usize, interest: epoll::EventFlags) -> Result<(), Errno> {
        epoll::modify(&self.epoll, source, epoll::EventData::new_u64(key as u64), interest)
    }

    /// Waits for events, at most `timeout`; nothing where a signal came first.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<(), Errno> {
        self.events.clear();
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(timeout.subsec_nanos()) };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The `i`th event's key.
    pub(crate) fn key(&self, i: usize) -> usize {
        usize::try_from(self.events[i].data.u64()).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests;
