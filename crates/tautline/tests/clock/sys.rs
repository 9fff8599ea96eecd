//! A wall clock that the test sets: `clock_gettime` of this binary, in place of the C library's, which Rust's standard
//! library calls. The monotonic clock is the machine's.

use rustix::time::{ClockId, clock_gettime as read};
use std::ffi::c_int;
use std::sync::atomic::{AtomicI64, Ordering};

/// Seconds by which the wall clock is wrong.
static WRONG: AtomicI64 = AtomicI64::new(0);

/// Sets the wall clock to the right time and so many seconds.
pub(crate) fn set_wrong_by(seconds: i64) {
    WRONG.store(seconds, Ordering::SeqCst);
}

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

/// # Safety
/// As of clock_gettime(2): `time` can be written.
// SAFETY: it has the signature and the meaning of the C library's function, on 64-bit Linux.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(id: c_int, time: *mut Timespec) -> c_int {
    // rustix asks the kernel, and not the C library.
    let (clock, wrong) = match id {
        0 => (ClockId::Realtime, WRONG.load(Ordering::SeqCst)),
        1 => (ClockId::Monotonic, 0),
        2 => (ClockId::ProcessCPUTime, 0),
        3 => (ClockId::ThreadCPUTime, 0),
        5 => (ClockId::RealtimeCoarse, WRONG.load(Ordering::SeqCst)),
        6 => (ClockId::MonotonicCoarse, 0),
        7 => (ClockId::Boottime, 0),
        _ => return -1,
    };
    let now = read(clock);
    // SAFETY: the caller's promise.
    unsafe { time.write(Timespec { seconds: now.tv_sec + wrong, nanoseconds: now.tv_nsec }) };
    0
}
