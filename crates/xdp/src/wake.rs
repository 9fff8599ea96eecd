use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tautline_io::Waker;

/// The receiving end of [`Waker`]s: a flag, which a spinning driver looks at, and an eventfd(2) for a sleeping one.
pub(crate) struct Wake {
    state: Arc<State>,
    /// A waker has set the flag, but not written yet when the flag was taken.
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
            // Release: what the waking thread wrote before is visible to the driver once it has taken the flag. Only the
            // first of many wakes costs a system call.
            if !state.set.swap(true, Ordering::AcqRel) {
                // It can only fail at a count of 2^64 - 2, where the driver wakes anyway.
                let _ = rustix::io::write(&state.fd, &1_u64.to_ne_bytes());
            }
        })
    }

    pub(crate) fn is_set(&self) -> bool {
        self.state.set.load(Ordering::Acquire)
    }

    /// Whether the eventfd will be written once more for a wake that was taken.
    pub(crate) const fn is_owed(&self) -> bool {
        self.owed
    }

    /// Reads what was owed, if it is there now, and nothing but that has happened.
    pub(crate) fn settle(&mut self) -> bool {
        if self.owed && !self.is_set() {
            self.owed = rustix::io::read(&self.state.fd, &mut [0; 8]).is_err();
            // A new wake may have been read with it.
            return !self.owed && !self.is_set();
        }
        false
    }

    /// Whether a waker was used since the last call.
    pub(crate) fn take(&mut self) -> bool {
        let set = self.is_set();
        if set || self.owed {
            // Read before the flag falls: what is written behind it belongs to a later wake.
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
