//! sched_setattr(2), which rustix does not have.
#![expect(unsafe_code, reason = "sched_setattr(2) takes its attributes by address")]

use std::io;

/// Bytes of the attributes that every kernel knows, up to the period (`SCHED_ATTR_SIZE_VER0`).
const SIZE: u32 = 48;

/// Sets niceness and time slice (in ns) of the calling thread under the usual policy.
pub(super) fn set_fair(nice: i32, slice: u64) -> io::Result<()> {
    let attributes = libc::sched_attr {
        size: SIZE,
        sched_policy: libc::SCHED_OTHER.unsigned_abs(),
        sched_flags: 0,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: slice,
        sched_deadline: 0,
        sched_period: 0,
    };
    const { assert!(size_of::<libc::sched_attr>() >= SIZE as usize) };
    // SAFETY: the kernel reads `SIZE` bytes of the attributes, which are that long and live until it returns; thread 0 is
    // the calling one.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
