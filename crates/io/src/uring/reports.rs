use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;

/// A descriptor that is readable when a turn may have something to do, for the loop of somebody else.
///
/// The ring's own descriptor would not do: with deferred task work the kernel reports nothing there. It writes to an eventfd
/// instead. Wakes are watched beside it, since the kernel can put off such a write while it handles one to another eventfd.
pub(super) struct Reports {
    /// Watches both edge-triggered, so that one call makes it unreadable.
    epoll: OwnedFd,
    completions: OwnedFd,
}

impl Reports {
    pub(super) fn new(wake: BorrowedFd<'_>) -> io::Result<Self> {
        // Readable at once, since completions that wait already are not reported.
        let completions = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        for fd in [completions.as_fd(), wake] {
            epoll::add(&epoll, fd, EventData::new_u64(0), EventFlags::IN | EventFlags::ET)?;
        }
        Ok(Self { epoll, completions })
    }

    /// Where the kernel reports completions.
    pub(super) fn completions(&self) -> BorrowedFd<'_> {
        self.completions.as_fd()
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Makes the descriptor unreadable. Comes before the kernel is asked for completions, so that no later one is lost.
    pub(super) fn clear(&self) {
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 2];
        // If a signal interrupts it, the next turn comes sooner.
        let _ = epoll::wait(&self.epoll, &mut events[..], Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    }
}
