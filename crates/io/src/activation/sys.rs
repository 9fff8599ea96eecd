//! The unsafe part: descriptors that are known by their number alone.
#![expect(unsafe_code, reason = "a passed descriptor has no owner yet")]

use rustix::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::{Errno, FdFlags, fcntl_getfd, fcntl_setfd};
use std::io;

/// Takes a descriptor that the program had from its start.
///
/// It passed execve(2), so programs that this one starts would get it too. From here on they do not. A descriptor that
/// this process has opened by itself, or that was taken before, is known by that flag, and is refused.
pub(super) fn take(number: RawFd) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(io::Error::from_raw_os_error(Errno::BADF.raw_os_error()));
    }
    // SAFETY: the kernel checks the number, and is asked for flags alone.
    let passed = unsafe { BorrowedFd::borrow_raw(number) };
    let flags = fcntl_getfd(passed).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "it is not open"))?;
    if flags.contains(FdFlags::CLOEXEC) {
        let what = "it was not passed by the supervisor, or something else has taken it already";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    fcntl_setfd(passed, flags | FdFlags::CLOEXEC)?;
    // SAFETY: it is open. The process that started this program has given it away, and the flag shows that nobody in this
    // program has taken it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
