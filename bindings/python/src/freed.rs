//! Memory that was freed, and that large messages need again at once.

use std::hint::black_box;
use std::sync::Once;

/// Bytes of the block that teaches the allocator.
const BLOCK: usize = 16 << 20;

/// Has glibc keep memory that is freed for the next allocations, up to 32 MiB in a process.
///
/// At first it gives the end of its heap back to the kernel whenever 128 KiB of that are free. Objects of a batch of large
/// messages are freed together, so each batch would fault in all of its pages anew (docs/experiments.md). Once glibc has
/// freed a larger block, it keeps twice that. Other allocators have no such rule, and lose nothing.
pub(crate) fn keep() {
    static LEARNT: Once = Once::new();
    // No page of it is ever touched.
    LEARNT.call_once(|| drop(black_box(Vec::<u8>::with_capacity(BLOCK))));
}
