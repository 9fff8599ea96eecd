use super::Config;
use rustix::event::epoll::EventFlags;
use rustix::fd::BorrowedFd;
use std::io;
use std::time::Duration;

/// How the kernel is asked which descriptors are ready: a small epoll(7).
///
/// Interest with `EventFlags::ET` is told of once; what is left in the kernel is told of again after
/// [`rearm`](Self::rearm), or after something new has come, or both. A descriptor is removed before it is closed.
pub trait Poll: Sized + 'static {
    /// The driver's name.
    const NAME: &'static str;

    /// Something new is told of by itself, so that a descriptor that stays ready need not be silenced.
    const EDGES: bool;

    /// # Errors
    /// No descriptors are left.
    fn new(config: &Config) -> io::Result<Self>;

    /// Tells of a descriptor from now on, as `data`, beginning with what there is.
    ///
    /// # Errors
    /// The kernel has no memory, or does not take this descriptor.
    fn add(&mut self, fd: BorrowedFd<'_>, data: u64, interest: EventFlags) -> io::Result<()>;

    /// Changes what it is told of and as what, beginning with what there is.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    fn modify(&mut self, fd: BorrowedFd<'_>, data: u64, interest: EventFlags) -> io::Result<()>;

    /// Forgets a descriptor, which is about to be closed.
    fn remove(&mut self, fd: BorrowedFd<'_>);

    /// All that was told of in `what` was dealt with.
    fn rearm(&mut self, fd: BorrowedFd<'_>, what: EventFlags);

    /// Waits for events at most `timeout`, for ever where it is `None`; a signal ends the wait. Returns how many there are.
    ///
    /// # Errors
    /// Only what makes the driver itself useless.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize>;

    /// The event of this number: the data, and what is ready.
    fn event(&self, number: usize) -> (u64, EventFlags);
}
