//! Masking (RFC 6455, section 5.3): byte `i` of a payload is XORed with byte `i % 4` of the key.
//!
//! Masking twice with one key restores the payload, so masking and unmasking are one operation. It has two forms:
//! [`mask`] works in place, and [`mask_copy`] is for payloads that have to move anyway.
//!
//! Payloads of up to 64 bytes take a few overlapping words or 16-byte vectors, which every CPU of the architecture has.
//! Larger ones take the widest vectors of this CPU.
//!
//! All paths are instances of the functions in `vector`. These take a source and a destination pointer, which are equal
//! if the payload is masked in place. `scalar` makes vectors of plain words, for short payloads and for other
//! architectures.

mod rotate;
mod scalar;
mod vector;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod sse2;

pub use rotate::rotate;

#[cfg(target_arch = "aarch64")]
use core::arch::aarch64::uint8x16_t as Bytes16;
#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::__m128i as Bytes16;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
type Bytes16 = u128;

/// Masks or unmasks `data` in place.
///
/// `key` applies from the first byte on. [`rotate()`] makes the key for the next piece of a payload.
#[inline]
pub fn mask(data: &mut [u8], key: [u8; 4]) {
    let at = data.as_mut_ptr();
    // SAFETY: source and destination are the same `data.len()` bytes, which are borrowed mutably.
    unsafe { xor(at.cast_const(), at, data.len(), key) }
}

/// Copies `src` to `dst`, masked or unmasked.
///
/// # Panics
/// If the two differ in length.
#[inline]
pub fn mask_copy(src: &[u8], dst: &mut [u8], key: [u8; 4]) {
    assert!(src.len() == dst.len(), "source and destination differ in length");
    // SAFETY: both are `src.len()` bytes long, and a shared and an exclusive borrow do not overlap.
    unsafe { xor(src.as_ptr(), dst.as_mut_ptr(), src.len(), key) }
}

/// Copies `src` to `dst`, which may begin at any place.
///
/// memcpy of this size is `rep movsb` on many processors. If `dst` begins at an odd place, that is up to 20 times slower
/// than vectors on Zen 3 and Zen 4 (`docs/experiments.md`, "Copies").
///
/// # Panics
/// If the two differ in length.
#[inline]
pub(crate) fn copy(src: &[u8], dst: &mut [u8]) {
    /// Least bytes that glibc copies by `rep movsb`, rounded down.
    const REP_MOVSB: usize = 2048;
    if src.len() < REP_MOVSB {
        dst.copy_from_slice(src);
    } else {
        mask_copy(src, dst, [0; 4]);
    }
}

/// Masks `len` bytes, by the path that suits their number.
///
/// # Safety
/// `src` must be readable and `dst` writable for `len` bytes; the two must be equal or not overlap.
#[inline]
unsafe fn xor(src: *const u8, dst: *mut u8, len: usize, key: [u8; 4]) {
    match len {
        // SAFETY: the caller's promise.
        0..4 => unsafe { vector::xor_bytes(src, dst, len, key) },
        // SAFETY: the caller's promise, and `len` is 4 to 8.
        4..=8 => unsafe { vector::xor_ends::<u32>(src, dst, len, key) },
        // SAFETY: the caller's promise, and `len` is 8 to 16.
        9..=16 => unsafe { vector::xor_ends::<u64>(src, dst, len, key) },
        // SAFETY: the caller's promise, `len` is 16 to 32, and every CPU of this architecture has these vectors.
        17..=32 => unsafe { vector::xor_ends::<Bytes16>(src, dst, len, key) },
        // SAFETY: the caller's promise, `len` is 32 to 64, and every CPU of this architecture has these vectors.
        33..=64 => unsafe { vector::xor_two_ends::<Bytes16>(src, dst, len, key) },
        // SAFETY: the caller's promise, and `len` is above 64.
        _ => unsafe { xor_large(src, dst, len, key) },
    }
}

/// Masks `len` bytes with the widest vectors of this CPU.
///
/// # Safety
/// As [`xor`], and `len` must be at least 64.
#[inline(never)]
unsafe fn xor_large(src: *const u8, dst: *mut u8, len: usize, key: [u8; 4]) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the caller's promise, and the CPU has AVX-512F.
            return unsafe { avx512::xor(src, dst, len, key) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the caller's promise, and the CPU has AVX2.
            return unsafe { avx2::xor(src, dst, len, key) };
        }
    }
    // SAFETY: the caller's promise, and every CPU of this architecture has these vectors.
    unsafe { vector::xor_aligned::<Bytes16>(src, dst, len, key) }
}

#[cfg(test)]
mod tests;
