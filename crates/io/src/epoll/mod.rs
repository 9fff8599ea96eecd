//! The driver over epoll(7): runs on every Linux, without privileges.
//!
//! One `epoll_wait` a turn, one `recv` per readable connection and turn into the driver's only receive buffer, which
//! stays in the cache, and one `send` per [`send`](crate::Driver::send) unless the kernel's buffer is full.
//!
//! Connections are watched edge-triggered. This spares the kernel a second look at each that was served. Pausing,
//! resuming and a full send buffer need no system call. Nothing is lost by it, because the driver remembers
//! what it leaves in the kernel. If a receive filled the buffer, or something lies behind the bytes, the next turn
//! goes on without waiting. It does so after the other ready connections, so that a flooding peer cannot starve them.
//! A receive that is shorter than the buffer proves that all was received (epoll(7)). The one exception is a Unix peer
//! that passes descriptors: bytes that it sent behind them wait for its next byte.
//!
//! No lock, no hash table and no allocation lies on the message path.

mod wait;

pub use crate::readiness::Config;

use crate::Spin;
use crate::readiness::{self, Poll};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::time::Duration;

/// See the [module](self).
pub type Driver = readiness::Driver<Epoll>;

/// One epoll instance, and where the kernel puts events.
pub struct Epoll {
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl Poll for Epoll {
    const NAME: &'static str = "epoll";
    const EDGES: bool = true;

    fn new(config: &Config) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        if let Some(spin) = &config.spin {
            Spin::report("epoll", &spin.epoll(&epoll));
        }
        let events = vec![Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; config.events_per_turn];
        Ok(Self { epoll, events })
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn add(&mut self, fd: BorrowedFd<'_>, data: u64, interest: EventFlags) -> io::Result<()> {
        #[cfg(test)]
        crate::faults::Call::Watch.may_fail()?;
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(data), interest)?)
    }

    fn modify(&mut self, fd: BorrowedFd<'_>, data: u64, interest: EventFlags) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, EventData::new_u64(data), interest)?)
    }

    fn remove(&mut self, _: BorrowedFd<'_>) {
        // Closing the only descriptor of a socket does it.
    }

    fn give_away(&mut self, fd: BorrowedFd<'_>) {
        // The kernel watches until the last descriptor is closed, also those of other processes (epoll(7)).
        if let Err(error) = epoll::delete(&self.epoll, fd) {
            log::debug!("a socket of another process may still be reported: {error}");
        }
    }

    fn rearm(&mut self, _: BorrowedFd<'_>, _: EventFlags) {}

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        Ok(wait::wait(&self.epoll, &mut self.events, timeout)?)
    }

    fn event(&self, number: usize) -> (u64, EventFlags) {
        let event = self.events[number];
        (event.data.u64(), event.flags)
    }
}
