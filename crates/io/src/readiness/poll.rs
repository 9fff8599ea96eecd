use super::config::Config;
use rustix::event::epoll::EventFlags;
use rustix::fd::BorrowedFd;
use std::io;
use std::time::Duration;

/// How the kernel is asked which descriptors are ready: a small epoll(7).
///
/// Interest with `EventFlags::ET` is reported once. State that is left in the kernel is reported again after
/// [`rearm`](Self::rearm), or after something new has come, or after either. A descriptor is removed before it is
/// closed.
pub trait Poll: Sized + 'static {
    /// The driver's name.
    const NAME: &'static str;

    /// Whether new state is reported without [`rearm`](Self::rearm), so that a descriptor may stay ready.
    const EDGES: bool;

    /// A new instance, without descriptors to report.
    ///
    /// # Errors
    /// No descriptors are left.
    fn new(config: &Config) -> io::Result<Self>;

    /// A descriptor that is readable while there is something to report, if there is one.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Reports a descriptor as `data` from now on. State that is there already is reported too.
    ///
    /// # Errors
    /// The kernel has no memory, or does not take this descriptor.
    fn add(&mut self, fd: BorrowedFd<'_>, data: u64, interest: EventFlags) -> io::Result<()>;

    /// Changes a descriptor's data and interest. State that is there already is reported again.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    fn modify(&mut self, fd: BorrowedFd<'_>, data: u64, interest: EventFlags) -> io::Result<()>;

    /// Forgets a descriptor, which is about to be closed.
    fn remove(&mut self, fd: BorrowedFd<'_>);

    /// Forgets a descriptor whose socket stays open elsewhere.
    fn give_away(&mut self, fd: BorrowedFd<'_>) {
        self.remove(fd);
    }

    /// The user has dealt with all reports of the kinds in `what`.
    fn rearm(&mut self, fd: BorrowedFd<'_>, what: EventFlags);

    /// Waits for events at most `timeout`, for ever if it is `None`; a signal ends the wait. Returns their number.
    ///
    /// # Errors
    /// Only errors that make the driver itself useless.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize>;

    /// The event of this number: its data and its flags.
    fn event(&self, number: usize) -> (u64, EventFlags);
}
