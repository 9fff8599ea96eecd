//! 16 bytes at a time, on every x86-64.

use super::vector::Vector;
use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_set1_epi32, _mm_storeu_si128, _mm_xor_si128};

// SAFETY: the intrinsics read and write 16 bytes at any alignment.
unsafe impl Vector for __m128i {
    const WIDTH: usize = 16;

    #[inline(always)]
    unsafe fn splat(key: [u8; 4]) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm_set1_epi32(i32::from_ne_bytes(key)) }
    }

    #[inline(always)]
    unsafe fn load(src: *const u8) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm_loadu_si128(src.cast()) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm_xor_si128(self, other) }
    }

    #[inline(always)]
    unsafe fn store(self, dst: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { _mm_storeu_si128(dst.cast(), self) };
    }
}
