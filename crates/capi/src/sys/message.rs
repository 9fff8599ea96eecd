//! The messages that callers give.

use super::memory::{NOT_UTF8, bytes};
use super::shapes::Message;
use super::sized;
use crate::codes::{TAUT_ERR_VALUE, TAUT_FIRST, TAUT_KEYED, TAUT_LAST, TAUT_TEXT, TAUT_UNCOMPRESSED};
use crate::failure::Failure;
use tautline::{Kind, Outgoing};

/// The whole message that a caller gives.
///
/// # Safety
/// `message` is null, or a `taut_message` whose bytes can be read and that nothing changes during `'a`.
#[inline]
pub(super) unsafe fn message<'a>(message: *const Message) -> Result<Outgoing<'a>, Failure> {
    const FLAGS: Failure = Failure::new(
        TAUT_ERR_VALUE,
        "a whole message has no other flags than TAUT_TEXT, TAUT_UNCOMPRESSED, TAUT_KEYED",
    );
    // SAFETY: the caller gives null or a `taut_message`.
    let given = unsafe { sized::read(message) }?;
    if given.flags & !(TAUT_TEXT | TAUT_UNCOMPRESSED | TAUT_KEYED) != 0 {
        return Err(FLAGS);
    }
    // SAFETY: the caller keeps the contract.
    let mut outgoing = unsafe { outgoing(&given) }?;
    outgoing.key = (given.flags & TAUT_KEYED != 0).then_some(given.key);
    Ok(outgoing)
}

/// The piece of a message that a caller gives, and whether it is the last one.
///
/// # Safety
/// As for [`message`].
pub(super) unsafe fn piece<'a>(piece: *const Message) -> Result<(Outgoing<'a>, bool), Failure> {
    const FLAGS: Failure = Failure::new(
        TAUT_ERR_VALUE,
        "a piece has no other flags than TAUT_TEXT, TAUT_UNCOMPRESSED, TAUT_FIRST, TAUT_LAST",
    );
    // SAFETY: the caller gives null or a `taut_message`.
    let given = unsafe { sized::read(piece) }?;
    if given.flags & !(TAUT_TEXT | TAUT_UNCOMPRESSED | TAUT_FIRST | TAUT_LAST) != 0 {
        return Err(FLAGS);
    }
    // SAFETY: the caller keeps the contract.
    Ok((unsafe { outgoing(&given) }?, given.flags & TAUT_LAST != 0))
}

/// The bytes of a message, its kind, and whether it may be compressed.
///
/// # Safety
/// The bytes of `given` can be read, and nothing changes them during `'a`.
#[inline]
unsafe fn outgoing<'a>(given: &Message) -> Result<Outgoing<'a>, Failure> {
    // SAFETY: the caller keeps the contract.
    let mut outgoing = Outgoing::binary(unsafe { bytes(given.data, given.len) }?);
    if given.flags & TAUT_TEXT != 0 {
        str::from_utf8(outgoing.payload).map_err(|_| NOT_UTF8)?;
        outgoing.kind = Kind::Text;
    }
    outgoing.compress = given.flags & TAUT_UNCOMPRESSED == 0;
    Ok(outgoing)
}
