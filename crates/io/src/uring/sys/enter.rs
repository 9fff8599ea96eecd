use io_uring::types::Timespec;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use rustix::io_uring::{
    IoringEnterFlags, IoringRegisterOp, io_uring_enter, io_uring_enter_arg, io_uring_getevents_arg, io_uring_ptr,
    io_uring_register, io_uring_rsrc_update,
};
use std::ptr;
use std::thread::{self, ThreadId};
use std::time::Duration;

/// Longest single wait; the caller waits again.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The way into the kernel. Its thread knows the ring by a registered number, which spares the kernel a look-up with
/// two atomic operations for each call (`IORING_REGISTER_RING_FDS`, Linux 5.18).
#[derive(Default)]
pub(super) struct Enter {
    /// Numbers are those of one thread: another's may name another ring.
    number: Option<(ThreadId, u32)>,
}

impl Enter {
    /// Registers the calling thread. Where that fails, as a thread can register 16 rings only, the descriptor serves.
    pub(super) fn open(&mut self, ring: BorrowedFd<'_>) {
        let mut update = io_uring_rsrc_update::default();
        update.offset = u32::MAX;
        update.data = io_uring_ptr::new(ptr::without_provenance_mut(usize::try_from(ring.as_raw_fd()).unwrap_or(0)));
        // SAFETY: the argument is one update, which the kernel writes the number to.
        let registered =
            unsafe { io_uring_register(ring, IoringRegisterOp::RegisterRingFds, (&raw mut update).cast(), 1) };
        self.number = registered.is_ok().then(|| (thread::current().id(), update.offset));
    }

    /// Forgets the number, without which the ring would live as long as the thread.
    pub(super) fn close(&mut self, ring: BorrowedFd<'_>) {
        let Some(offset) = self.number() else { return };
        self.number = None;
        let mut update = io_uring_rsrc_update::default();
        update.offset = offset;
        // SAFETY: the argument is one update.
        let _ = unsafe { io_uring_register(ring, IoringRegisterOp::UnregisterRingFds, (&raw const update).cast(), 1) };
    }

    /// The number, on the thread that it holds for.
    fn number(&self) -> Option<u32> {
        self.number.filter(|(thread, _)| *thread == thread::current().id()).map(|(_, number)| number)
    }

    /// `io_uring_enter(2)`: hands the kernel `submit` requests and waits for `least` completions at most `timeout`,
    /// for ever where it is `None`.
    ///
    /// # Safety
    /// Memory that the requests name must outlive them.
    pub(super) unsafe fn enter(
        &self,
        ring: BorrowedFd<'_>,
        submit: u32,
        least: u32,
        timeout: Option<Duration>,
    ) -> Result<u32, Errno> {
        #[cfg(test)]
        crate::faults::Call::Enter.may_fail()?;
        // Completes what has become ready, without which nothing is under `DEFER_TASKRUN`.
        let mut flags = IoringEnterFlags::GETEVENTS;
        let mut by = ring;
        if let Some(number) = self.number().and_then(|number| i32::try_from(number).ok()) {
            flags |= IoringEnterFlags::REGISTERED_RING;
            // SAFETY: no descriptor but an index, which the flag says and nobody closes.
            by = unsafe { BorrowedFd::borrow_raw(number) };
        }
        match timeout {
            // SAFETY: promised by the caller; without an argument.
            None => unsafe { io_uring_enter(by, submit, least, flags) },
            // SAFETY: promised by the caller; without an argument.
            Some(Duration::ZERO) => unsafe { io_uring_enter(by, submit, 0, flags) },
            Some(timeout) => {
                let timeout = timeout.min(LONGEST);
                let timeout = Timespec::new().sec(timeout.as_secs()).nsec(timeout.subsec_nanos());
                let ts = io_uring_ptr::new((&raw const timeout).cast_mut().cast());
                let arg = io_uring_getevents_arg { ts, ..Default::default() };
                // SAFETY: promised by the caller; the argument and what it points to live until it returns.
                unsafe { io_uring_enter_arg(by, submit, least, flags | IoringEnterFlags::EXT_ARG, Some(&arg)) }
            }
        }
    }
}
