//! 64 bytes at a time, on x86-64 with AVX-512F.

use super::vector::{self, Vector};
use core::arch::x86_64::{__m512i, _mm512_loadu_si512, _mm512_set1_epi32, _mm512_storeu_si512, _mm512_xor_si512};

/// Masks at least 64 bytes.
///
/// # Safety
/// As [`xor`](super::xor); `len` must be at least 64, and the CPU must have AVX-512F.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn xor(src: *const u8, dst: *mut u8, len: usize, key: [u8; 4]) {
    // SAFETY: the caller's promise.
    unsafe { vector::xor_aligned::<__m512i>(src, dst, len, key) };
}

// SAFETY: the intrinsics read and write 64 bytes at any alignment.
unsafe impl Vector for __m512i {
    const WIDTH: usize = 64;

    #[inline(always)]
    unsafe fn splat(key: [u8; 4]) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm512_set1_epi32(i32::from_ne_bytes(key)) }
    }

    #[inline(always)]
    unsafe fn load(src: *const u8) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm512_loadu_si512(src.cast()) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm512_xor_si512(self, other) }
    }

    #[inline(always)]
    unsafe fn store(self, dst: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_si512(dst.cast(), self) };
    }
}
