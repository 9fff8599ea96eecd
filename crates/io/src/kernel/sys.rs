//! The unsafe part: options and control messages of `linux/tls.h`, which no safe wrapper has.
#![expect(unsafe_code, reason = "setsockopt(2), sendmsg(2) and their like take memory by address")]

use super::{Info, Socket};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{self, SendFlags, sockopt};
use std::mem;
use tautline_window::kernel::{DATA, Direction};

/// Room for one control message with one byte in it, aligned as its header is.
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// `CMSG_SPACE(1)`.
const CONTROL: usize = 24;

/// Where `tcpi_bytes_acked` lies in `struct tcp_info` (`linux/tcp.h`): behind 8 single bytes, 24 numbers of 4, 2 of 8.
const BYTES_ACKED: usize = 120;

/// `setsockopt(TCP_ULP, "tls")`.
pub(super) fn attach(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    set(fd, libc::IPPROTO_TCP, libc::TCP_ULP, b"tls")
}

impl Socket for BorrowedFd<'_> {
    fn send(&self, kind: u8, content: &[u8]) -> Result<usize, Errno> {
        if kind == DATA {
            return net::send(self, content, SendFlags::NOSIGNAL);
        }
        let mut control = Control([0; CONTROL]);
        let mut part = libc::iovec { iov_base: content.as_ptr().cast_mut().cast(), iov_len: content.len() };
        let message = message(&mut part, &mut control);
        // SAFETY: the message has room for one header, so the first is not null and lies in `control`.
        let header = unsafe { &mut *libc::CMSG_FIRSTHDR(&raw const message) };
        header.cmsg_level = libc::SOL_TLS;
        header.cmsg_type = libc::TLS_SET_RECORD_TYPE;
        // SAFETY: a computation.
        header.cmsg_len = unsafe { libc::CMSG_LEN(1) } as _;
        // SAFETY: the header lies in `control`, which has room for its one byte of data.
        let data = unsafe { libc::CMSG_DATA(header) };
        // SAFETY: as above.
        unsafe { data.write(kind) };
        // SAFETY: the kernel reads `content` and `control`, which outlive the call, and writes to neither.
        let sent = unsafe { libc::sendmsg(self.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        usize::try_from(sent).map_err(|_| last_error())
    }

    fn receive(&self, content: &mut [u8]) -> Result<(Option<u8>, usize), Errno> {
        let mut control = Control([0; CONTROL]);
        let mut part = libc::iovec { iov_base: content.as_mut_ptr().cast(), iov_len: content.len() };
        let mut message = message(&mut part, &mut control);
        // SAFETY: the kernel writes at most `content.len()` bytes to `content` and `CONTROL` to `control`; both outlive the
        // call.
        let len = unsafe { libc::recvmsg(self.as_raw_fd(), &raw mut message, 0) };
        let Ok(len) = usize::try_from(len) else { return Err(last_error()) };
        Ok((record_type(&control, message.msg_controllen as _), len))
    }

    fn set(&self, keys: &Info) -> Result<(), Errno> {
        set(*self, libc::SOL_TLS, option(keys), keys.bytes())
    }

    fn clear_error(&self) {
        // Asking takes it.
        let _ = sockopt::socket_error(self);
    }

    fn passed_on(&self) -> Option<u64> {
        // An acknowledgement between the two questions would count twice or not at all.
        (0..8).find_map(|_| {
            let acked = acked(*self)?;
            let unacked = unacked(*self)?;
            (self::acked(*self)? == acked).then_some(acked + unacked)
        })
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

/// The record type that recvmsg(2) left in the first `len` bytes of `control`.
fn record_type(control: &Control, len: usize) -> Option<u8> {
    // The kernel writes one message at most: length, level and type, then the byte.
    let data = CONTROL - 8;
    let [level, kind] = [8, 12].map(|at| control.0[at..].first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)));
    (len > data && level == Some(libc::SOL_TLS) && kind == Some(libc::TLS_GET_RECORD_TYPE)).then(|| control.0[data])
}

const _: () = assert!(size_of::<libc::cmsghdr>() == CONTROL - 8);

/// A message of one part with room for one control message.
fn message(part: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: a message of zeros is one without name, data and control.
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

/// Bytes that the peer has acknowledged.
fn acked(fd: BorrowedFd<'_>) -> Option<u64> {
    let mut info = [0; BYTES_ACKED + 8];
    let len = get(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info).ok()?;
    info[..len].get(BYTES_ACKED..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}

/// Bytes that TCP has and the peer has not acknowledged.
fn unacked(fd: BorrowedFd<'_>) -> Option<u64> {
    let mut len: libc::c_int = 0;
    // SAFETY: the kernel writes one int.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut len) };
    if result == 0 { u64::try_from(len).ok() } else { None }
}

fn set(fd: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
    let len = libc::socklen_t::try_from(value.len()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the value's address is valid for its length.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), len) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// Returns how much of `value` was written.
fn get(fd: BorrowedFd<'_>, level: i32, name: i32, value: &mut [u8]) -> Result<usize, Errno> {
    let mut len = libc::socklen_t::try_from(value.len()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel writes at most `len` bytes to `value`, and the number to `len`.
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
    fn control(len: usize, level: i32, kind: i32, data: u8) -> Control {
        let mut control = Control([0; CONTROL]);
        control.0[..8].copy_from_slice(&len.to_ne_bytes());
        control.0[8..12].copy_from_slice(&level.to_ne_bytes());
        control.0[12..16].copy_from_slice(&kind.to_ne_bytes());
        control.0[16] = data;
        control
    }

    #[test]
    fn reads_the_type_and_nothing_else() {
        let alert = control(17, libc::SOL_TLS, libc::TLS_GET_RECORD_TYPE, 21);
        assert_eq!(record_type(&alert, CONTROL), Some(21));
        assert_eq!(record_type(&alert, 17), Some(21));
        assert_eq!(record_type(&alert, 16), None, "no byte of data");
        assert_eq!(record_type(&alert, 0), None, "no message at all, as at the end of a stream");
        assert_eq!(record_type(&control(17, libc::SOL_SOCKET, libc::TLS_GET_RECORD_TYPE, 21), CONTROL), None);
        assert_eq!(record_type(&control(17, libc::SOL_TLS, libc::TLS_SET_RECORD_TYPE, 21), CONTROL), None);
    }

    #[test]
    fn the_room_is_what_the_macros_say() {
        // SAFETY: a computation.
        let space = unsafe { libc::CMSG_SPACE(1) };
        // SAFETY: a computation.
        let len = unsafe { libc::CMSG_LEN(1) };
        assert_eq!((space as usize, len as usize), (CONTROL, 17));
    }
}
