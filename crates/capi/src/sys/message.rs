//! The messages that callers give.

use super::memory::{NOT_UTF8, bytes};
use super::shapes::Message;
use super::sized;
use crate::codes::{TAUT_KEYED, TAUT_TEXT, TAUT_UNCOMPRESSED};
use crate::failure::Failure;
use tautline::{Kind, Outgoing};

/// The message that a caller gives.
///
/// # Safety
/// `message` is null, or a `taut_message` whose bytes can be read and that nothing changes during `'a`.
#[inline]
pub(super) unsafe fn message<'a>(message: *const Message) -> Result<Outgoing<'a>, Failure> {
    // SAFETY: the caller gives null or a `taut_message`.
    let Message { flags, data, len, key, .. } = unsafe { sized::read(message) }?;
    // SAFETY: the caller gives bytes that can be read.
    let mut outgoing = Outgoing::binary(unsafe { bytes(data, len) }?);
    if flags & TAUT_TEXT != 0 {
        str::from_utf8(outgoing.payload).map_err(|_| NOT_UTF8)?;
        outgoing.kind = Kind::Text;
    }
    outgoing.compress = flags & TAUT_UNCOMPRESSED == 0;
    outgoing.key = (flags & TAUT_KEYED != 0).then_some(key);
    Ok(outgoing)
}
