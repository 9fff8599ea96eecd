//! The unsafe part: options and control messages of `linux/tls.h`, for which there is no safe wrapper.
#![expect(unsafe_code, reason = "setsockopt(2), sendmsg(2) and their like take memory by address")]

use super::info::Info;
use super::socket::Socket;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{self, SendFlags, sockopt};
use std::mem;
use tautline_buf::kernel_tls::{DATA, Direction};

/// A control message with one byte of data (`struct cmsghdr`), or room for one.
///
/// ```text
/// length (usize)  level (4)  type (4)  data (1)  padding
/// ```
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// `CMSG_LEN(0)`.
const HEADER: usize = size_of::<libc::cmsghdr>();

/// `CMSG_SPACE(1)`.
const CONTROL: usize = HEADER + size_of::<usize>();

impl Control {
    const ROOM: Self = Self([0; CONTROL]);

    /// A control message that makes the kernel send a record of the type `kind`.
    fn record_type(kind: u8) -> Self {
        let mut control = Self::ROOM;
        control.0[..HEADER - 8].copy_from_slice(&(HEADER + 1).to_ne_bytes());
        control.0[HEADER - 8..HEADER - 4].copy_from_slice(&libc::SOL_TLS.to_ne_bytes());
        control.0[HEADER - 4..HEADER].copy_from_slice(&libc::TLS_SET_RECORD_TYPE.to_ne_bytes());
        control.0[HEADER] = kind;
        control
    }

    /// The type of the received record. The kernel wrote the first `len` bytes.
    fn received(&self, len: usize) -> Option<u8> {
        let number = |at: usize| self.0[at..].first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
        let is_type =
            number(HEADER - 8) == Some(libc::SOL_TLS) && number(HEADER - 4) == Some(libc::TLS_GET_RECORD_TYPE);
        (len > HEADER && is_type).then(|| self.0[HEADER])
    }
}

/// `setsockopt(TCP_ULP, "tls")`.
pub(super) fn attach(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    set(fd, libc::IPPROTO_TCP, libc::TCP_ULP, b"tls")
}

/// `setsockopt(SO_RCVLOWAT)`.
pub(super) fn set_receive_low_water(fd: BorrowedFd<'_>, bytes: i32) -> Result<(), Errno> {
    set(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, &bytes.to_ne_bytes())
}

impl Socket for BorrowedFd<'_> {
    fn send(&self, kind: u8, content: &[u8]) -> Result<usize, Errno> {
        if kind == DATA {
            return net::send(self, content, SendFlags::NOSIGNAL);
        }
        let mut control = Control::record_type(kind);
        let mut part = libc::iovec { iov_base: content.as_ptr().cast_mut().cast(), iov_len: content.len() };
        let message = message(&mut part, &mut control);
        // SAFETY: the kernel reads `content` and `control`, which outlive the call, and writes to neither.
        let sent = unsafe { libc::sendmsg(self.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        usize::try_from(sent).map_err(|_| last_error())
    }

    fn receive(&self, content: &mut [u8]) -> Result<(Option<u8>, usize), Errno> {
        let mut control = Control::ROOM;
        let mut part = libc::iovec { iov_base: content.as_mut_ptr().cast(), iov_len: content.len() };
        let mut message = message(&mut part, &mut control);
        // `libc::recvmsg` is a cancellation point of threads (pthreads(7)), which costs 40 ns in glibc.
        // SAFETY: the kernel writes at most `content.len()` bytes to `content` and `CONTROL` to `control`; both
        // outlive the call.
        let len = unsafe { libc::syscall(libc::SYS_recvmsg, self.as_raw_fd(), &raw mut message, 0) };
        let Ok(len) = usize::try_from(len) else { return Err(last_error()) };
        Ok((control.received(message.msg_controllen as _), len))
    }

    fn set(&self, keys: &Info) -> Result<(), Errno> {
        set(*self, libc::SOL_TLS, option(keys), keys.bytes())
    }

    fn clear_error(&self) {
        // Reading the error clears it.
        let _ = sockopt::socket_error(self);
    }

    fn sequence(&self, keys: &Info) -> Option<u64> {
        let mut bytes = [0; 64];
        let len = get(*self, libc::SOL_TLS, option(keys), &mut bytes[..keys.bytes().len()]).ok()?;
        let sequence = bytes[..len].last_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        bytes.fill(0);
        core::hint::black_box(&bytes);
        sequence
    }
}

/// A message of one part, with one control message or room for one.
fn message(part: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: a `msghdr` of zeros is valid. It has no name, no data and no control messages.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control.0).cast();
    message.msg_controllen = CONTROL as _;
    message
}

const fn option(keys: &Info) -> i32 {
    match keys.direction {
        Direction::Transmit => libc::TLS_TX,
        Direction::Receive => libc::TLS_RX,
    }
}

fn set(fd: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
    let len = libc::socklen_t::try_from(value.len()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the value's address is valid for its length.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), len) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// Reads an option. Returns the number of bytes that were written to `value`.
fn get(fd: BorrowedFd<'_>, level: i32, name: i32, value: &mut [u8]) -> Result<usize, Errno> {
    let mut len = libc::socklen_t::try_from(value.len()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel writes at most `len` bytes to `value`, and their number to `len`.
    let result = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut len) };
    if result == 0 { Ok((len as usize).min(value.len())) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A control message as the kernel writes it.
    fn received(level: i32, kind: i32, data: u8) -> Control {
        let mut control = Control::record_type(data);
        control.0[HEADER - 8..HEADER - 4].copy_from_slice(&level.to_ne_bytes());
        control.0[HEADER - 4..HEADER].copy_from_slice(&kind.to_ne_bytes());
        control
    }

    #[test]
    fn reads_the_type_and_nothing_else() {
        let alert = received(libc::SOL_TLS, libc::TLS_GET_RECORD_TYPE, 21);
        assert_eq!(alert.received(CONTROL), Some(21));
        assert_eq!(alert.received(HEADER + 1), Some(21));
        assert_eq!(alert.received(HEADER), None, "no byte of data");
        assert_eq!(Control::ROOM.received(0), None, "no message at all, as at the end of a stream");
        assert_eq!(received(libc::SOL_SOCKET, libc::TLS_GET_RECORD_TYPE, 21).received(CONTROL), None);
        assert_eq!(received(libc::SOL_TLS, libc::TLS_SET_RECORD_TYPE, 21).received(CONTROL), None);
    }

    #[test]
    fn matches_the_macros_of_socket_h() {
        // SAFETY: it computes a size and touches no memory.
        assert_eq!(unsafe { libc::CMSG_SPACE(1) } as usize, CONTROL);
        let mut control = Control::record_type(22);
        let mut part = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let message = message(&mut part, &mut control);
        // SAFETY: the message holds one control message.
        let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        // SAFETY: as above; `Control` is aligned for the header.
        let libc::cmsghdr { cmsg_len, cmsg_level, cmsg_type, .. } = unsafe { *header };
        // SAFETY: it computes a size and touches no memory.
        assert_eq!(cmsg_len, unsafe { libc::CMSG_LEN(1) } as _);
        assert_eq!((cmsg_level, cmsg_type), (libc::SOL_TLS, libc::TLS_SET_RECORD_TYPE));
        // SAFETY: the header lies in `control`, with its byte behind it.
        let data = unsafe { libc::CMSG_DATA(header) };
        // SAFETY: as above.
        assert_eq!(unsafe { *data }, 22);
    }
}
