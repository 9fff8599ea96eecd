//! Socket options without a safe wrapper.

use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;

/// Sets an integer option at level `SOL_SOCKET`.
pub(super) fn set(fd: impl AsFd, name: libc::c_int, value: libc::c_int) -> Result<(), Errno> {
    let fd = fd.as_fd().as_raw_fd();
    let size = libc::socklen_t::try_from(size_of_val(&value)).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel reads `size` bytes of `value`, which outlives the call.
    let result = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, name, core::ptr::from_ref(&value).cast(), size) };
    if result == 0 {
        return Ok(());
    }
    Err(Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)))
}
