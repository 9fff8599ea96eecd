//! The unsafe part: options that no library names.
#![expect(unsafe_code, reason = "setsockopt(2) with options that no library names")]

use rustix::fd::{AsRawFd, BorrowedFd};
use std::io;

/// Has the kernel choose the port of a bound socket when the socket connects (`IP_BIND_ADDRESS_NO_PORT`).
///
/// It then knows the other end, so that a port can serve connections to several. A port chosen earlier belongs to one.
pub(super) fn choose_port_at_connect(socket: BorrowedFd<'_>) -> io::Result<()> {
    // Sockets of either family take the option at the level of IPv4 (ip(7)).
    let on: libc::c_int = 1;
    set(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, &on.to_ne_bytes())
}

/// Has the socket send and receive through this interface alone (`SO_BINDTODEVICE`).
pub(super) fn bind_to_interface(socket: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    if name.is_empty() {
        // The kernel would take it for no interface at all.
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    set(socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name.as_bytes())
}

fn set(socket: BorrowedFd<'_>, level: libc::c_int, option: libc::c_int, value: &[u8]) -> io::Result<()> {
    let len = libc::socklen_t::try_from(value.len()).map_err(io::Error::other)?;
    // SAFETY: the socket is open, and the kernel reads `len` bytes of `value`.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value.as_ptr().cast(), len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
