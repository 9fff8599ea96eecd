//! The caller's memory as slices, and the checks before.

use super::types::{Slice, Window};
use crate::codes::{TAUT_ERR_NULL, TAUT_ERR_SIZE, TAUT_ERR_VALUE};
use crate::failure::Failure;
use core::ffi::{CStr, c_char};

const NULL: Failure = Failure::new(TAUT_ERR_NULL, "a pointer is null or not aligned");
pub(super) const NOT_UTF8: Failure = Failure::new(TAUT_ERR_VALUE, "a text is not UTF-8");
const TOO_LONG: Failure = Failure::new(TAUT_ERR_SIZE, "a length is impossible");

/// Checks that a pointer may point to a `T`.
#[inline]
pub(super) fn check<T>(pointer: *const T) -> Result<(), Failure> {
    if pointer.is_null() || !pointer.is_aligned() { Err(NULL) } else { Ok(()) }
}

/// The bytes at `data`.
///
/// # Safety
/// `data` is null, or points to `len` bytes that may be read and that nothing changes during `'a`.
#[inline]
pub(super) unsafe fn bytes<'a>(data: *const u8, len: usize) -> Result<&'a [u8], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    check_range(data, len)?;
    // SAFETY: not null, of a possible length, and the caller lets the bytes be read during `'a`.
    Ok(unsafe { core::slice::from_raw_parts(data, len) })
}

/// The bytes of a slice.
///
/// # Safety
/// That of [`bytes`].
#[inline]
pub(super) unsafe fn slice<'a>(slice: &Slice) -> Result<&'a [u8], Failure> {
    // SAFETY: the caller keeps the contract of `bytes`.
    unsafe { bytes(slice.data, slice.len) }
}

/// The memory at `data`, to be written.
///
/// # Safety
/// `data` is null, or points to `len` bytes that may be read and written, and that nothing else touches during `'a`.
#[inline]
pub(super) unsafe fn room<'a>(data: *mut u8, len: usize) -> Result<&'a mut [u8], Failure> {
    if len == 0 {
        return Ok(&mut []);
    }
    check_range(data, len)?;
    // SAFETY: not null, of a possible length, and the caller gives the bytes away during `'a`.
    Ok(unsafe { core::slice::from_raw_parts_mut(data, len) })
}

/// The memory of a window.
///
/// # Safety
/// That of [`room`].
#[inline]
pub(super) unsafe fn window<'a>(window: &Window) -> Result<&'a mut [u8], Failure> {
    // SAFETY: the caller keeps the contract of `room`.
    unsafe { room(window.data, window.len) }
}

/// The elements of an array of `count` elements.
///
/// # Safety
/// `data` is null, or points to `count` elements that may be read and that nothing changes during `'a`.
#[inline]
pub(super) unsafe fn array<'a, T>(data: *const T, count: usize) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    check(data)?;
    if count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(TOO_LONG);
    }
    // SAFETY: aligned, not null, of a possible length, and the caller lets the elements be read during `'a`.
    Ok(unsafe { core::slice::from_raw_parts(data, count) })
}

/// The text at `text`; `None` if it is null.
///
/// # Safety
/// `text` is null, or points to a text with a zero byte at its end that nothing changes during `'a`.
pub(super) unsafe fn text<'a>(text: *const c_char) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller gives a text with a zero byte at its end.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| NOT_UTF8)
}

/// The bytes at `data` as a text.
///
/// # Safety
/// That of [`bytes`].
pub(super) unsafe fn str_of<'a>(data: *const u8, len: usize) -> Result<&'a str, Failure> {
    // SAFETY: the caller keeps the contract of `bytes`.
    str::from_utf8(unsafe { bytes(data, len) }?).map_err(|_| NOT_UTF8)
}

/// Sets `*out` to a value that is made if `out` can be written.
///
/// # Safety
/// `out` is null, or points to memory that may be written.
pub(super) unsafe fn put<T>(out: *mut T, make: impl FnOnce() -> Result<T, Failure>) -> Result<(), Failure> {
    check(out)?;
    let made = make()?;
    // SAFETY: not null, and the caller lets it be written.
    unsafe { out.write(made) };
    Ok(())
}

/// Sets `*out` to an object that the caller frees by [`free`](super::border::free).
///
/// # Safety
/// That of [`put`].
pub(super) unsafe fn give<T>(out: *mut *mut T, make: impl FnOnce() -> Result<T, Failure>) -> Result<(), Failure> {
    // SAFETY: the caller keeps the contract.
    unsafe { put(out, || make().map(Box::new).map(Box::into_raw)) }
}

/// The place of a window, for [`overlap`].
#[inline]
pub(super) const fn span(window: &Window) -> (*const u8, usize) {
    (window.data.cast_const(), window.len)
}

/// Whether two ranges of memory share a byte.
#[inline]
pub(super) fn overlap(one: (*const u8, usize), other: (*const u8, usize)) -> bool {
    let (a, b) = (one.0.addr(), other.0.addr());
    one.1 > 0 && other.1 > 0 && a < b.saturating_add(other.1) && b < a.saturating_add(one.1)
}

#[inline]
fn check_range(data: *const u8, len: usize) -> Result<(), Failure> {
    check(data)?;
    if len > isize::MAX as usize || data.addr().checked_add(len).is_none() { Err(TOO_LONG) } else { Ok(()) }
}
