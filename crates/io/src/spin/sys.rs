//! The unsafe part: options of sockets and of epoll that no safe wrapper sets.
#![expect(unsafe_code, reason = "setsockopt(2) and ioctl(2) take memory by address")]

use super::config::Spin;
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use rustix::ioctl::{self, Setter, opcode};
use std::time::Duration;

/// `struct epoll_params` (`linux/eventpoll.h`, Linux 6.9).
#[repr(C)]
struct EpollParams {
    busy_poll_usecs: u32,
    busy_poll_budget: u16,
    prefer_busy_poll: u8,
    pad: u8,
}

/// `EPIOCSPARAMS`: lets epoll_wait(2) poll the card's queue.
pub(super) fn epoll(epoll: impl AsFd, spin: &Spin) -> Result<(), Errno> {
    const SET: ioctl::Opcode = opcode::write::<EpollParams>(0x8a, 1);
    let params = EpollParams {
        busy_poll_usecs: micros(spin.busy_poll),
        busy_poll_budget: spin.budget,
        prefer_busy_poll: 1,
        pad: 0,
    };
    // SAFETY: the operation reads one `struct epoll_params`.
    let set = unsafe { Setter::<SET, EpollParams>::new(params) };
    // SAFETY: as above; a descriptor that is none of epoll refuses it.
    unsafe { ioctl::ioctl(epoll, set) }
}

/// `SO_BUSY_POLL` (socket(7)): lets receiving poll the card's queue. Accepted sockets inherit it.
pub(super) fn busy_poll(socket: impl AsFd, spin: &Spin) -> Result<(), Errno> {
    option(socket, libc::SO_BUSY_POLL, micros(spin.busy_poll))
}

/// `SO_PREFER_BUSY_POLL` (Linux 5.11): holds interrupts back while somebody polls.
pub(super) fn prefer_busy_poll(socket: impl AsFd, _: &Spin) -> Result<(), Errno> {
    option(socket, 69, 1)
}

/// `SO_BUSY_POLL_BUDGET` (Linux 5.11): most packets for each poll.
pub(super) fn budget(socket: impl AsFd, spin: &Spin) -> Result<(), Errno> {
    option(socket, 70, spin.budget.into())
}

fn option(socket: impl AsFd, name: i32, value: u32) -> Result<(), Errno> {
    let (fd, len) = (socket.as_fd().as_raw_fd(), libc::socklen_t::from(4_u8));
    // SAFETY: the value's address is valid for its length.
    let result = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, name, (&raw const value).cast(), len) };
    if result == 0 { Ok(()) } else { Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)) }
}

pub(super) fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}
