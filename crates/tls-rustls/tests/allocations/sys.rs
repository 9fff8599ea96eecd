//! An allocator that counts, and the C library's, which counts too where that is glibc.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static OF_C: Cell<u64> = const { Cell::new(0) };
}

/// Allocations that this thread has made in Rust.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// Calls of malloc(3) that this thread has made, those behind Rust's allocations among them.
#[cfg(target_env = "gnu")]
pub(crate) fn of_c() -> u64 {
    OF_C.get()
}

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// glibc permits programs to bring their own malloc(3), which this is; all else stays glibc's, so what it gives is freed there.
#[cfg(target_env = "gnu")]
mod glibc {
    use super::OF_C;
    use std::ffi::c_void;

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
}
