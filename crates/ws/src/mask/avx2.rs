//! 32 bytes at a time, on x86-64 with AVX2.

use super::vector::{self, Vector};
use core::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_set1_epi32, _mm256_storeu_si256, _mm256_xor_si256};

/// Masks at least 32 bytes.
///
/// # Safety
/// As [`xor`](super::xor); `len` must be at least 32, and the CPU must have AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn xor(src: *const u8, dst: *mut u8, len: usize, key: [u8; 4]) {
    // SAFETY: the caller's promise.
    unsafe { vector::xor_aligned::<__m256i>(src, dst, len, key) };
}

// SAFETY: the intrinsics read and write 32 bytes at any alignment.
unsafe impl Vector for __m256i {
    const WIDTH: usize = 32;

    #[inline(always)]
    unsafe fn splat(key: [u8; 4]) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm256_set1_epi32(i32::from_ne_bytes(key)) }
    }

    #[inline(always)]
    unsafe fn load(src: *const u8) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_si256(src.cast()) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm256_xor_si256(self, other) }
    }

    #[inline(always)]
    unsafe fn store(self, dst: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_si256(dst.cast(), self) };
    }
}
