//! The unsafe part: control messages, whose contents no safe wrapper reads.
#![expect(
    unsafe_code,
    reason = "setsockopt(2) and recvmsg(2) take memory by address; the processor's counter is an instruction"
)]

use super::arrival::{Arrival, Clock};
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::mem;

/// Has packets for this socket stamped when the kernel takes them from the card (`SO_TIMESTAMPNS`,
/// Documentation/networking/timestamping.rst, section 1.2). `SO_TIMESTAMPING` has the same stamp and room for two more,
/// which costs 30 ns for each receive.
pub(crate) fn enable(socket: impl AsFd) -> Result<(), Errno> {
    let on = 1_i32;
    let (fd, len) = (socket.as_fd().as_raw_fd(), libc::socklen_t::from(4_u8));
    // SAFETY: the value's address is valid for its length.
    let result = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, (&raw const on).cast(), len) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// Room for the control message that [`enable`] has the kernel bring: one `struct timespec` behind its header.
pub(crate) const CONTROL: usize = HEADER + size_of::<libc::timespec>();

/// `CMSG_LEN(0)`.
const HEADER: usize = size_of::<libc::cmsghdr>();

/// Receives as recv(2) does, and says when the last of the bytes arrived where the kernel knows.
pub(crate) fn receive(socket: impl AsFd, buf: &mut [u8]) -> Result<(usize, Option<Arrival>), Errno> {
    /// Aligned as headers are.
    #[repr(C, align(8))]
    struct Control([u8; CONTROL]);

    let mut control = Control([0; CONTROL]);
    let mut part = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    // SAFETY: a message of zeros is one without name, data and control.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL as _;
    // Not by `libc::recvmsg`, a point where threads can be cancelled (pthreads(7)): glibc spends 40 ns on that.
    let (fd, flags) = (socket.as_fd().as_raw_fd(), libc::MSG_CMSG_CLOEXEC);
    // SAFETY: the kernel writes at most `buf.len()` bytes to `buf` and `CONTROL` to `control`; both outlive the call.
    let len = unsafe { libc::syscall(libc::SYS_recvmsg, fd, &raw mut message, flags) };
    let Ok(len) = usize::try_from(len) else { return Err(last_error()) };
    let written = (message.msg_controllen as usize).min(CONTROL);
    // SAFETY: the kernel wrote so much, and nobody looks at it again.
    Ok((len, unsafe { stamp(&control.0[..written]) }))
}

/// The software stamp among control messages. Descriptors that the peer of a Unix socket passed (`SCM_RIGHTS`,
/// unix(7)) are closed, as recv(2) does: nobody asked for them.
///
/// # Safety
/// The kernel wrote them (with `MSG_CMSG_CLOEXEC`), and they are looked at once: descriptors in them are ours.
pub(crate) unsafe fn stamp(mut control: &[u8]) -> Option<Arrival> {
    let mut arrival = None;
    while let Some(header) = control.first_chunk::<HEADER>() {
        // The length (a usize), level and type (4 bytes each).
        let len = usize::from_ne_bytes(*header.first_chunk()?);
        let number = |at: usize| header.get(at..)?.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
        let Some(data) = control.get(HEADER..len) else { break };
        match (number(HEADER - 8)?, number(HEADER - 4)?) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => arrival = arrived(data),
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                for fd in data.as_chunks().0 {
                    // SAFETY: the kernel has just opened it for us, and nobody else knows it.
                    drop(unsafe { OwnedFd::from_raw_fd(RawFd::from_ne_bytes(*fd)) });
                }
            }
            _ => {}
        }
        control = control.get(len.next_multiple_of(size_of::<usize>())..).unwrap_or_default();
    }
    arrival
}

fn arrived(data: &[u8]) -> Option<Arrival> {
    let time: &[u8; size_of::<libc::timespec>()] = data.first_chunk()?;
    // SAFETY: as many bytes as it has, and any make one: two numbers.
    let time = unsafe { time.as_ptr().cast::<libc::timespec>().read_unaligned() };
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
