use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tautline_io::Waker;

/// The receiving end of [`Waker`]s: a flag for a spinning driver, and an eventfd(2) for a sleeping one.
pub(crate) struct Wake {
    state: Arc<State>,
    /// Whether the flag was taken before its waker wrote to the eventfd.
    owed: bool,
}

struct State {
    fd: OwnedFd,
    set: AtomicBool,
}

impl Wake {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: Arc::new(State { fd, set: AtomicBool::new(false) }), owed: false })
    }

    pub(crate) fn waker(&self) -> Waker {
        let state = Arc::clone(&self.state);
        Waker::new(move || {
            // Release: the driver sees all earlier writes of this thread once it has taken the flag. Only the first of
            // many wakes makes a system call.
            if !state.set.swap(true, Ordering::AcqRel) {
                // The write fails only at a count of 2^64 - 2, at which the driver wakes anyway.
                let _ = rustix::io::write(&state.fd, &1_u64.to_ne_bytes());
            }
        })
    }

    pub(crate) fn is_set(&self) -> bool {
        self.state.set.load(Ordering::Acquire)
    }

    /// Whether a write to the eventfd is still to come for a wake that was taken.
    pub(crate) const fn is_owed(&self) -> bool {
        self.owed
    }

    /// Reads the late write of a taken wake. Returns whether it was there, and no new wake with it.
    pub(crate) fn take_owed(&mut self) -> bool {
        if self.owed && !self.is_set() {
            self.owed = rustix::io::read(&self.state.fd, &mut [0; 8]).is_err();
            // The read may have included a new wake.
            return !self.owed && !self.is_set();
        }
        false
    }

    /// Takes the flag. Returns whether a waker was used since the last call.
    pub(crate) fn take(&mut self) -> bool {
        let set = self.is_set();
        if set || self.owed {
            // The read precedes the clearing of the flag: a write after it belongs to a later wake.
            self.owed = rustix::io::read(&self.state.fd, &mut [0; 8]).is_err();
        }
        set && self.state.set.swap(false, Ordering::AcqRel)
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.state.fd.as_fd()
    }
}
