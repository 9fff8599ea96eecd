//! The unsafe part: control messages, whose contents no safe wrapper reads.
#![expect(
    unsafe_code,
    reason = "setsockopt(2) and recvmsg(2) take memory by address; the processor's counter is an instruction"
)]

use super::arrival::{Arrival, Clock};
use super::departure::Departure;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
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
pub(crate) unsafe fn stamp(control: &[u8]) -> Option<Arrival> {
    let mut arrival = None;
    for (kind, data) in Messages(control) {
        match kind {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                arrival = time(data).map(|nanos| Arrival { clock: Clock::Realtime, nanos });
            }
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                for fd in data.as_chunks().0 {
                    // SAFETY: the kernel has just opened it for us, and nobody else knows it.
                    drop(unsafe { OwnedFd::from_raw_fd(RawFd::from_ne_bytes(*fd)) });
                }
            }
            _ => {}
        }
    }
    arrival
}

/// Control messages as the kernel has put them: the level and type of each, and its data.
struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = ((i32, i32), &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let header = self.0.first_chunk::<HEADER>()?;
        // The length (a usize), level and type (4 bytes each).
        let len = usize::from_ne_bytes(*header.first_chunk()?);
        let number = |at: usize| header.get(at..)?.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
        let data = self.0.get(HEADER..len)?;
        self.0 = self.0.get(len.next_multiple_of(size_of::<usize>())..).unwrap_or_default();
        Some(((number(HEADER - 8)?, number(HEADER - 4)?), data))
    }
}

/// The `struct timespec` at the beginning of a message, in nanoseconds; `None` for an empty one.
fn time(data: &[u8]) -> Option<u64> {
    let time: &[u8; size_of::<libc::timespec>()] = data.first_chunk()?;
    // SAFETY: as many bytes as it has, and any make one: two numbers.
    let time = unsafe { time.as_ptr().cast::<libc::timespec>().read_unaligned() };
    let (secs, nanos) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
    let nanos = secs.checked_mul(1_000_000_000)?.checked_add(nanos)?;
    (nanos > 0).then_some(nanos)
}

/// Flags of `SO_TIMESTAMPING` (linux/net_tstamp.h). A send asks for a stamp when its last byte goes to the network card.
const TX_SOFTWARE: u32 = 1 << 1;
/// Stamps of software are reported.
const SOFTWARE: u32 = 1 << 4;
/// Stamps are numbered, ...
const OPT_ID: u32 = 1 << 7;
/// ... come without their packets, ...
const OPT_TSONLY: u32 = 1 << 11;
/// ... and the numbers count the bytes that are written from now on. Without this, bytes that the peer has not
/// acknowledged count too.
const OPT_ID_TCP: u32 = 1 << 16;

/// Has the kernel number the bytes that are sent from now on, and report stamps that [`send_stamped`] asks for.
pub(super) fn number_bytes(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    // The numbers begin anew only if there were none before. Another process may have had the socket.
    set_stamping(socket, 0)?;
    while departed(socket).is_ok() {}
    set_stamping(socket, SOFTWARE | OPT_ID | OPT_TSONLY | OPT_ID_TCP)
}

fn set_stamping(socket: BorrowedFd<'_>, flags: u32) -> Result<(), Errno> {
    let (fd, len) = (socket.as_raw_fd(), libc::socklen_t::from(4_u8));
    let (level, name) = (libc::SOL_SOCKET, libc::SO_TIMESTAMPING);
    // SAFETY: the value's address is valid for its length.
    let result = unsafe { libc::setsockopt(fd, level, name, (&raw const flags).cast(), len) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// Sends as send(2) does, and has the kernel stamp the last of the bytes that it takes.
pub(super) fn send_stamped(socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    #[repr(C)]
    struct Control(libc::cmsghdr, u32);

    // SAFETY: zeros are a header, and a number.
    let mut control: Control = unsafe { mem::zeroed() };
    control.0.cmsg_len = (HEADER + size_of::<u32>()) as _;
    control.0.cmsg_level = libc::SOL_SOCKET;
    control.0.cmsg_type = libc::SO_TIMESTAMPING;
    control.1 = TX_SOFTWARE;
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: a message of zeros is one without name, data and control.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    // Not by `libc::sendmsg`, for the reason at `receive`.
    let (fd, flags) = (socket.as_raw_fd(), libc::MSG_NOSIGNAL);
    // SAFETY: the kernel reads the bytes and the control message, which outlive the call.
    let len = unsafe { libc::syscall(libc::SYS_sendmsg, fd, &raw const message, flags) };
    usize::try_from(len).map_err(|_| last_error())
}

/// Takes the next report out of a socket's error queue; `None` if it is no stamp of a sent byte.
///
/// # Errors
/// `EAGAIN` if the queue is empty.
pub(super) fn departed(socket: BorrowedFd<'_>) -> Result<Option<Departure>, Errno> {
    /// More than a stamp (three `struct timespec`) and its `struct sock_extended_err` with an address need.
    #[repr(C, align(8))]
    struct Control([u8; 256]);

    let mut control = Control([0; 256]);
    // SAFETY: a message of zeros is one without name, data and control.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    let (fd, flags) = (socket.as_raw_fd(), libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT);
    // SAFETY: the kernel writes at most 256 bytes to `control`, which outlives the call.
    let len = unsafe { libc::syscall(libc::SYS_recvmsg, fd, &raw mut message, flags) };
    if len < 0 {
        return Err(last_error());
    }
    let written = (message.msg_controllen as usize).min(control.0.len());
    let (mut nanos, mut number) = (None, None);
    for (kind, data) in Messages(&control.0[..written]) {
        match kind {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => nanos = time(data),
            (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR) => number = stamped(data),
            _ => {}
        }
    }
    Ok(number.zip(nanos).map(|(number, nanos)| Departure { number, nanos }))
}

/// The kind of a stamp that was made when the packet went to the network card (`SCM_TSTAMP_SND`).
const SENT: u32 = 0;

/// The number of the byte that a `struct sock_extended_err` is about (linux/errqueue.h): errno, four bytes of which the
/// first is the origin, the kind of the stamp, and the number.
fn stamped(data: &[u8]) -> Option<u32> {
    let [errno, origin, kind, number] = *data.as_chunks::<4>().0.first_chunk()?;
    let is_stamp = i32::from_ne_bytes(errno) == libc::ENOMSG && origin[0] == libc::SO_EE_ORIGIN_TIMESTAMPING;
    (is_stamp && u32::from_ne_bytes(kind) == SENT).then(|| u32::from_ne_bytes(number))
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
