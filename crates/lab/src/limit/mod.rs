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
struct Poll {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Poll {
    fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, events: Vec::with_capacity(EVENTS) })
    }

    fn add(&self, source: impl AsFd, key: usize, interest: epoll::EventFlags) -> Result<(), Errno> {
        epoll::add(&self.epoll, source, epoll::EventData::new_u64(key as u64), interest)
    }

    fn modify(&self, source: impl AsFd, key: usize, interest: epoll::EventFlags) -> Result<(), Errno> {
        epoll::modify(&self.epoll, source, epoll::EventData::new_u64(key as u64), interest)
    }

    /// Waits for events, at most `timeout`; nothing where a signal came first.
    fn wait(&mut self, timeout: Duration) -> Result<(), Errno> {
        self.events.clear();
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(timeout.subsec_nanos()) };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The `i`th event's key.
    fn key(&self, i: usize) -> usize {
        usize::try_from(self.events[i].data.u64()).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests;
