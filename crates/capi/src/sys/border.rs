//! The way out: errors become codes and texts.

use super::guard::guard;
use super::memory::check_sized;
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
    let result = guard(|| {
        if !error.is_null() {
            // SAFETY: it is not null, so the caller gives a struct that can be read.
            unsafe { check_sized(error.cast_const()) }?;
        }
        call()
    });
    // SAFETY: as above. A struct of another size is left alone.
    if !error.is_null() && unsafe { check_sized(error.cast_const()) }.is_ok() {
        // SAFETY: as above, and the size fits.
        unsafe { describe(error, result.as_ref().err()) };
    }
    result.map_or_else(|failure| failure.code, |()| TAUT_OK)
}

/// Writes a failure, or its absence, into `error`.
///
/// # Safety
/// `error` points to a `taut_error` that may be written, with `room` bytes at `text`.
pub(super) unsafe fn describe(error: *mut ErrorDetail, failure: Option<&Failure>) {
    // SAFETY: the caller gives the struct away for this call.
    let error = unsafe { &mut *error };
    let text = failure.map_or("", |failure| &failure.text);
    error.len = text.len();
    error.code = failure.map_or(TAUT_OK, |failure| failure.code);
    error.alert = failure.and_then(|failure| failure.alert).map_or(TAUT_NO_ALERT, i32::from);
    if !error.text.is_null() && error.room > 0 {
        // SAFETY: the caller gives `room` bytes at `text` away.
        let room = unsafe { core::slice::from_raw_parts_mut(error.text, error.room) };
        put_text(room, text);
    }
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
