//! The C library's malloc(3), which counts: glibc permits programs to bring their own. All else stays glibc's, so what it gives is
//! freed there.

use std::cell::Cell;
use std::ffi::c_void;

thread_local! {
    static OF_C: Cell<u64> = const { Cell::new(0) };
}

/// Calls of malloc(3) that this thread has made, those behind Rust's allocations among them.
pub(crate) fn of_c() -> u64 {
    OF_C.get()
}

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
}

// SAFETY: no other function of this name is in the program, and this one keeps the contract of malloc(3), as it is glibc's;
// the counter is a number in the thread's own memory, which needs neither to be made nor to be dropped.
#[unsafe(no_mangle)]
extern "C" fn malloc(size: usize) -> *mut c_void {
    OF_C.set(OF_C.get() + 1);
    // SAFETY: any size may be asked for.
    unsafe { __libc_malloc(size) }
}
