//! 16 bytes at a time, on every AArch64.

use super::vector::Vector;
use core::arch::aarch64::{uint8x16_t, vdupq_n_u32, veorq_u8, vld1q_u8, vreinterpretq_u8_u32, vst1q_u8};

// SAFETY: the intrinsics read and write 16 bytes at any alignment.
unsafe impl Vector for uint8x16_t {
    const WIDTH: usize = 16;

    #[inline(always)]
    unsafe fn splat(key: [u8; 4]) -> Self {
        // SAFETY: the caller's promise.
        let words = unsafe { vdupq_n_u32(u32::from_ne_bytes(key)) };
        // SAFETY: the caller's promise.
        unsafe { vreinterpretq_u8_u32(words) }
    }

    #[inline(always)]
    unsafe fn load(src: *const u8) -> Self {
        // SAFETY: the caller's promise.
        unsafe { vld1q_u8(src) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe { veorq_u8(self, other) }
    }

    #[inline(always)]
    unsafe fn store(self, dst: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { vst1q_u8(dst, self) };
    }
}
