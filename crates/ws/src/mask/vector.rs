//! Masking, generic over the width of vectors.
//!
//! Vectors at the ends may overlap others, so that no loop over single bytes is needed there. Two vectors that overlap
//! are both loaded before either is stored. They then store equal bytes where they overlap, also if the masking is in
//! place.

use super::rotate::rotate;

/// A vector of bytes in a CPU register.
///
/// # Safety
/// `load` must read and `store` write exactly `WIDTH` bytes at any alignment, and `WIDTH` must be a power of two and a
/// multiple of 4.
pub(super) unsafe trait Vector: Copy {
    /// Size of the vector in bytes.
    const WIDTH: usize;

    /// Makes a vector of repeated keys.
    ///
    /// # Safety
    /// The CPU must have this vector.
    unsafe fn splat(key: [u8; 4]) -> Self;

    /// Loads a vector.
    ///
    /// # Safety
    /// The CPU must have this vector, and `src` must be readable for `WIDTH` bytes.
    unsafe fn load(src: *const u8) -> Self;

    /// XORs two vectors.
    ///
    /// # Safety
    /// The CPU must have this vector.
    unsafe fn xor(self, other: Self) -> Self;

    /// Stores the vector.
    ///
    /// # Safety
    /// The CPU must have this vector, and `dst` must be writable for `WIDTH` bytes.
    unsafe fn store(self, dst: *mut u8);
}

/// Masks up to 4 bytes.
///
/// # Safety
/// `src` must be readable and `dst` writable for `len` bytes; the two must be equal or not overlap.
#[inline(always)]
pub(super) unsafe fn xor_bytes(src: *const u8, dst: *mut u8, len: usize, key: [u8; 4]) {
    for (i, key) in key.into_iter().enumerate().take(len) {
        // SAFETY: `i` is below `len`, and `src` is readable for `len` bytes.
        let byte = unsafe { src.wrapping_add(i).read() };
        // SAFETY: `i` is below `len`, and `dst` is writable for `len` bytes.
        unsafe { dst.wrapping_add(i).write(byte ^ key) };
    }
}

/// Masks one to two vectors' length.
///
/// # Safety
/// As [`xor_bytes`]; `len` must be `V::WIDTH` to twice that, and the CPU must have `V`.
#[inline(always)]
pub(super) unsafe fn xor_ends<V: Vector>(src: *const u8, dst: *mut u8, len: usize, key: [u8; 4]) {
    let last_at = len - V::WIDTH;
    // SAFETY: `len` is at least `WIDTH`.
    let first = unsafe { load_masked::<V>(src, 0, key) };
    // SAFETY: the vector ends at `len`.
    let last = unsafe { load_masked::<V>(src, last_at, key) };
    // SAFETY: `len` is at least `WIDTH`.
    unsafe { first.store(dst) };
    // SAFETY: the vector ends at `len`.
    unsafe { last.store(dst.wrapping_add(last_at)) };
}

/// Masks two to four vectors' length.
///
/// # Safety
/// As [`xor_bytes`]; `len` must be twice `V::WIDTH` to four times that, and the CPU must have `V`.
#[inline(always)]
pub(super) unsafe fn xor_two_ends<V: Vector>(src: *const u8, dst: *mut u8, len: usize, key: [u8; 4]) {
    let third_at = len - 2 * V::WIDTH;
    // SAFETY: `len` is at least twice `WIDTH`.
    let first = unsafe { load_masked::<V>(src, 0, key) };
    // SAFETY: `len` is at least twice `WIDTH`.
    let second = unsafe { load_masked::<V>(src, V::WIDTH, key) };
    // SAFETY: the vector ends at `len - WIDTH`.
    let third = unsafe { load_masked::<V>(src, third_at, key) };
    // SAFETY: the vector ends at `len`.
    let fourth = unsafe { load_masked::<V>(src, third_at + V::WIDTH, key) };
    // SAFETY: as for `first`.
    unsafe { first.store(dst) };
    // SAFETY: as for `second`.
    unsafe { second.store(dst.wrapping_add(V::WIDTH)) };
    // SAFETY: as for `third`.
    unsafe { third.store(dst.wrapping_add(third_at)) };
    // SAFETY: as for `fourth`.
    unsafe { fourth.store(dst.wrapping_add(third_at + V::WIDTH)) };
}

/// Masks at least one vector's length, with aligned stores.
///
/// All vectors but the first and the last are stored at multiples of `V::WIDTH`. A store across two cache lines costs
/// twice as much, and frame headers put payloads at odd addresses.
///
/// # Safety
/// As [`xor_bytes`]; `len` must be at least `V::WIDTH`, and the CPU must have `V`.
#[inline(always)]
pub(super) unsafe fn xor_aligned<V: Vector>(src: *const u8, dst: *mut u8, len: usize, key: [u8; 4]) {
    const UNROLL: usize = 4;
    let last_at = len - V::WIDTH;
    // SAFETY: `len` is at least `WIDTH`.
    let first = unsafe { load_masked::<V>(src, 0, key) };
    // SAFETY: the vector ends at `len`.
    let last = unsafe { load_masked::<V>(src, last_at, key) };
    // `at` is 1 to WIDTH; `first` covers the bytes before it.
    let mut at = V::WIDTH - dst.addr() % V::WIDTH;
    // WIDTH is a multiple of 4, so one rotation suits all vectors from here on.
    // SAFETY: the CPU has `V`.
    let mask = unsafe { V::splat(rotate(key, at)) };
    while len - at >= UNROLL * V::WIDTH {
        for i in 0..UNROLL {
            // SAFETY: the `UNROLL` vectors from `at` on end at `len` or before.
            unsafe { xor_one(src, dst, at + i * V::WIDTH, mask) };
        }
        at += UNROLL * V::WIDTH;
    }
    while len - at >= V::WIDTH {
        // SAFETY: the vector at `at` ends at `len` or before.
        unsafe { xor_one(src, dst, at, mask) };
        at += V::WIDTH;
    }
    // SAFETY: `len` is at least `WIDTH`.
    unsafe { first.store(dst) };
    // SAFETY: the vector ends at `len`.
    unsafe { last.store(dst.wrapping_add(last_at)) };
}

/// Loads and masks the vector at `at`.
///
/// # Safety
/// `src` must be readable for `at + V::WIDTH` bytes, and the CPU must have `V`.
#[inline(always)]
unsafe fn load_masked<V: Vector>(src: *const u8, at: usize, key: [u8; 4]) -> V {
    // SAFETY: the caller's promise.
    let bytes = unsafe { V::load(src.wrapping_add(at)) };
    // SAFETY: the CPU has `V`.
    let mask = unsafe { V::splat(rotate(key, at)) };
    // SAFETY: the CPU has `V`.
    unsafe { bytes.xor(mask) }
}

/// Masks the vector at `at`.
///
/// # Safety
/// `src` must be readable and `dst` writable for `at + V::WIDTH` bytes, and the CPU must have `V`.
#[inline(always)]
unsafe fn xor_one<V: Vector>(src: *const u8, dst: *mut u8, at: usize, mask: V) {
    // SAFETY: the caller's promise.
    let bytes = unsafe { V::load(src.wrapping_add(at)) };
    // SAFETY: the CPU has `V`.
    let bytes = unsafe { bytes.xor(mask) };
    // SAFETY: the caller's promise.
    unsafe { bytes.store(dst.wrapping_add(at)) };
}
