use crate::Waker;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The receiving end of [`Waker`]s: an eventfd(2) that is never read where it is watched edge-triggered.
///
/// `set` is true from the first wake until the driver notices it: only the first of many wakes costs a system call.
pub(crate) struct Wake {
    state: Arc<State>,
    waker: Waker,
}

struct State {
    fd: OwnedFd,
    set: AtomicBool,
}

impl Wake {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let state = Arc::new(State { fd, set: AtomicBool::new(false) });
        let remote = Arc::clone(&state);
        let waker = Waker::new(move || {
            // Release: what the waking thread wrote before is visible to the driver once it has cleared the flag.
            if !remote.set.swap(true, Ordering::AcqRel) {
                // It can only fail at a count of 2^64 - 2, where the driver has an edge to see anyway.
                let _ = rustix::io::write(&remote.fd, &1_u64.to_ne_bytes());
            }
        });
        Ok(Self { state, waker })
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Lets the next wake write again. Comes before the sink hears of it, so that no wake is lost in between.
    pub(crate) fn clear(&self) {
        self.state.set.swap(false, Ordering::AcqRel);
    }

    /// Makes the descriptor unreadable, for drivers that are told of it as long as it is. Comes before
    /// [`clear`](Self::clear), so that it takes no later wake away.
    pub(crate) fn drain(&self) {
        let _ = rustix::io::read(&self.state.fd, &mut [0; 8]);
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.state.fd.as_fd()
    }
}
