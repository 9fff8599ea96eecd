//! An allocator whose large allocations fail by a seed, for test binaries to include.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;

thread_local! {
    /// The state of the generator; 0 lets all succeed.
    static SEED: Cell<u64> = const { Cell::new(0) };
    static FAILED: Cell<u64> = const { Cell::new(0) };
}

/// Allocations of fewer bytes never fail, since most of Rust's standard library aborts then.
const LARGE: usize = 32 << 10;

/// Has one of four large allocations of this thread fail from now on, or none if the seed is 0. Returns how many have
/// failed so far.
pub(crate) fn fail_by(seed: u64) -> u64 {
    SEED.set(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    FAILED.get()
}

fn fails(size: usize) -> bool {
    let Ok(mut seed) = SEED.try_with(Cell::get) else { return false };
    if seed == 0 || size < LARGE {
        return false;
    }
    // xorshift64, for which 0 is a fixed point.
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    let fails = seed >> 62 == 0;
    let _ = SEED.try_with(|state| state.set(seed));
    let _ = FAILED.try_with(|count| count.set(count.get() + u64::from(fails)));
    fails
}

struct Failing;

// SAFETY: every call goes to the system's allocator unchanged, or fails as that may; deciding allocates nothing.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if fails(layout.size()) {
            return ptr::null_mut();
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // Buffers ask for memory first, and take it zeroed then: what was just there has not gone in one thread.
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Failing = Failing;
