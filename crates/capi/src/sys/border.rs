//! The way out: errors become codes and texts.

use super::exclusive::Exclusive;
use super::guard::guard;
use super::memory::check;
use super::sized;
use super::types::ErrorDetail;
use crate::codes::{Code, TAUT_NO_ALERT, TAUT_OK};
use crate::failure::Failure;
use core::ffi::c_char;

/// The code of a result.
#[inline]
pub(super) fn code(result: Result<(), Failure>) -> Code {
    result.map_or_else(|failure| failure.code, |()| TAUT_OK)
}

/// Runs `call`, and reports its failure in `error`, which may be null.
///
/// # Safety
/// `error` is null, or points to a `taut_error` that may be written, with `room` bytes at `text`.
pub(super) unsafe fn report(error: *mut ErrorDetail, call: impl FnOnce() -> Result<(), Failure>) -> Code {
    if error.is_null() {
        return code(guard(call));
    }
    // SAFETY: it is not null, so the caller gives a struct that can be read.
    let result = unsafe { sized::read(error.cast_const()) }.and_then(|given| {
        let result = guard(call);
        // SAFETY: as above, and it begins with its size.
        unsafe { describe(error, given, result.as_ref().err()) }.and(result)
    });
    code(result)
}

/// Drops an object of [`give`](super::memory::give). Null is ignored.
///
/// # Safety
/// `object` is null, or this is its last use.
pub(super) unsafe fn free<T>(object: *mut T) -> Result<(), Failure> {
    if object.is_null() {
        return Ok(());
    }
    check(object)?;
    // SAFETY: it comes from `Box::into_raw`, and the caller uses it for the last time.
    let owned = unsafe { Box::from_raw(object) };
    guard(move || {
        drop(owned);
        Ok(())
    })
}

/// Drops an object that serves one call at a time, as [`free`] does, unless a call uses it. `of` is what calls enter.
///
/// # Safety
/// That of [`free`].
pub(super) unsafe fn free_exclusive<T, P>(object: *mut T, of: impl FnOnce(&T) -> &Exclusive<P>) -> Code {
    if object.is_null() {
        return TAUT_OK;
    }
    // SAFETY: not null, so the caller gives an object.
    let result = of(unsafe { &*object }).enter().and_then(|entered| {
        // A call that comes too late is still answered while the object is being freed.
        core::mem::forget(entered);
        // SAFETY: no call uses the object, and this is the last one.
        unsafe { free(object) }
    });
    code(result)
}

/// Writes a failure, or its absence, into `error`, which `given` was read from.
///
/// # Safety
/// `error` points to a `taut_error` that may be written, with `room` bytes at `text`.
pub(super) unsafe fn describe(
    error: *mut ErrorDetail,
    given: ErrorDetail,
    failure: Option<&Failure>,
) -> Result<(), Failure> {
    let text = failure.map_or("", |failure| &failure.text);
    if !given.text.is_null() && given.room > 0 {
        // SAFETY: the caller gives `room` bytes at `text` away.
        let room = unsafe { core::slice::from_raw_parts_mut(given.text, given.room) };
        put_text(room, text);
    }
    let described = ErrorDetail {
        len: text.len(),
        code: failure.map_or(TAUT_OK, |failure| failure.code),
        alert: failure.and_then(|failure| failure.alert).map_or(TAUT_NO_ALERT, |alert| alert.0.into()),
        ..given
    };
    // SAFETY: the caller gives the struct away for this call.
    unsafe { sized::write(error, &described) }
}

/// Copies a text with a zero byte behind it, cut between two characters if `room` is too small.
pub(super) fn put_text(room: &mut [c_char], text: &str) {
    let Some(most) = room.len().checked_sub(1) else { return };
    let len = (0..=most.min(text.len())).rev().find(|&len| text.is_char_boundary(len)).unwrap_or_default();
    for (place, byte) in room.iter_mut().zip(&text.as_bytes()[..len]) {
        *place = c_char::from_ne_bytes([*byte]);
    }
    room[len] = 0;
}

#[cfg(test)]
mod tests {
    use super::put_text;

    #[test]
    fn texts_are_cut_between_characters() {
        for (len, expected) in [(1, ""), (2, "a"), (3, "a"), (4, "a\u{e4}"), (9, "a\u{e4}b")] {
            let mut room = vec![7; len];
            put_text(&mut room, "a\u{e4}b");
            let text: Vec<u8> = room.iter().take_while(|&&byte| byte != 0).map(|byte| byte.to_ne_bytes()[0]).collect();
            assert_eq!(text, expected.as_bytes());
        }
        put_text(&mut [], "a");
    }
}
