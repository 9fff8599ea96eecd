//! A malloc(3) that counts its calls and forwards to glibc's. glibc permits programs to replace malloc alone: its free(3)
//! accepts the memory.

use std::cell::Cell;
use std::ffi::c_void;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// Calls of malloc(3) that this thread has made, including those of Rust's allocator.
pub(crate) fn c_allocations() -> u64 {
    CALLS.get()
}

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
}

// SAFETY: no other function of this name is in the program. This one keeps the contract of malloc(3), because glibc's
// does the work. The counter is a number in the thread's own memory, which needs no initialisation and no drop.
#[unsafe(no_mangle)]
extern "C" fn malloc(size: usize) -> *mut c_void {
    CALLS.set(CALLS.get() + 1);
    // SAFETY: every size is allowed.
    unsafe { __libc_malloc(size) }
}
