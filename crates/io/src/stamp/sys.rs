//! The unsafe part: control messages, whose contents no safe wrapper reads.
#![expect(
    unsafe_code,
    reason = "setsockopt(2) and recvmsg(2) take memory by address; the processor's counter is an instruction"
)]

use super::{Arrival, Clock};
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::mem::{self, MaybeUninit};

/// Has packets for this socket stamped when the kernel takes them from the card (`SO_TIMESTAMPING`,
/// Documentation/networking/timestamping.rst, section 1.3).
pub(crate) fn enable(socket: impl AsFd) -> Result<(), Errno> {
    let flags: u32 = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    let (fd, len) = (socket.as_fd().as_raw_fd(), libc::socklen_t::from(4_u8));
    // SAFETY: the value's address is valid for its length.
    let result =
        unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, (&raw const flags).cast(), len) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// Receives as recv(2) does, and says when the last of the bytes arrived where the kernel knows.
pub(crate) fn receive(socket: impl AsFd, buf: &mut [u8]) -> Result<(usize, Option<Arrival>), Errno> {
    /// Room for one `struct scm_timestamping` behind its header, aligned as headers are.
    #[repr(C, align(8))]
    struct Control([MaybeUninit<u8>; 128]);

    let mut control = Control([MaybeUninit::uninit(); 128]);
    let mut part = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    // SAFETY: a message of zeros is one without name, data and control.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: the kernel writes at most `buf.len()` bytes to `buf` and `msg_controllen` to `control`; both outlive the call.
    let len = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let Ok(len) = usize::try_from(len) else { return Err(last_error()) };
    Ok((len, stamp(&message)))
}

/// The software stamp among the control messages that recvmsg(2) wrote. Descriptors that the peer of a Unix socket passed
/// (`SCM_RIGHTS`, unix(7)) are closed, as recv(2) does: nobody asked for them.
fn stamp(message: &libc::msghdr) -> Option<Arrival> {
    let mut arrival = None;
    // SAFETY: `message` is as recvmsg(2) left it, and its control buffer is alive.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give null or a header that the kernel wrote within the buffer.
        let header = unsafe { next.read_unaligned() };
        // SAFETY: as above.
        let data = unsafe { libc::CMSG_DATA(next) };
        match (header.cmsg_level, header.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => {
                // SAFETY: the data of this type is a `struct scm_timestamping`: three times, of which the first is the kernel's.
                arrival = arrived(unsafe { data.cast::<libc::timespec>().read_unaligned() });
            }
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                let end = next as usize + header.cmsg_len as usize;
                for number in 0..end.saturating_sub(data as usize) / size_of::<RawFd>() {
                    // SAFETY: the data of this type is descriptors, up to the message's end.
                    let fd = unsafe { data.cast::<RawFd>().wrapping_add(number).read_unaligned() };
                    // SAFETY: the kernel has just opened it for us, and nobody else knows it.
                    drop(unsafe { OwnedFd::from_raw_fd(fd) });
                }
            }
            _ => {}
        }
        // SAFETY: as for the first.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    arrival
}

fn arrived(time: libc::timespec) -> Option<Arrival> {
    let (secs, nanos) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
    let nanos = secs.checked_mul(1_000_000_000)?.checked_add(nanos)?;
    (nanos > 0).then_some(Arrival { clock: Clock::Realtime, nanos })
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Nanoseconds of a clock of the kernel.
pub(super) fn nanos(clock: Clock) -> u64 {
    let id = match clock {
        Clock::Realtime => ClockId::Realtime,
        Clock::Monotonic => ClockId::Monotonic,
    };
    let now = clock_gettime(id);
    // Neither is set before 1970.
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// The processor's counter.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(super) mod tsc {
    use std::arch::x86_64::{__cpuid, _rdtsc};

    /// Whether it runs at one rate whatever the processor does.
    pub(crate) fn is_invariant() -> bool {
        /// "Advanced power management" and "extended features": the largest leaf is told by the first.
        const LEAVES: u32 = 0x8000_0000;
        let invariant = 1 << 8;
        __cpuid(LEAVES).eax >= LEAVES + 7 && __cpuid(LEAVES + 7).edx & invariant != 0
    }

    #[inline]
    pub(crate) fn read() -> u64 {
        // SAFETY: all x86-64 processors have the instruction, and it touches no memory.
        unsafe { _rdtsc() }
    }
}

/// There is none that could be relied upon.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(super) mod tsc {
    pub(crate) const fn is_invariant() -> bool {
        false
    }

    pub(crate) const fn read() -> u64 {
        0
    }
}
