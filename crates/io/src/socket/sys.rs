//! The unsafe part: an option that no library names.
#![expect(unsafe_code, reason = "setsockopt(2) with an option that no library names")]

use rustix::fd::{AsRawFd, BorrowedFd};
use std::io;

/// Has the kernel choose the port of a bound socket when the socket connects (`IP_BIND_ADDRESS_NO_PORT`).
///
/// It then knows the other end, so that a port can serve connections to several. A port chosen earlier belongs to one.
pub(super) fn choose_port_at_connect(socket: BorrowedFd<'_>) -> io::Result<()> {
    // Sockets of either family take the option at the level of IPv4 (ip(7)).
    let on: libc::c_int = 1;
    let len = libc::socklen_t::try_from(size_of_val(&on)).map_err(io::Error::other)?;
    let option = libc::IP_BIND_ADDRESS_NO_PORT;
    // SAFETY: the socket is open, and the kernel reads `len` bytes of `on`.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_IP, option, (&raw const on).cast(), len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
