//! Standard output, whose reader may go away at any time, as in `taut doctor | head -1`.

use crate::failure::Failure;
use std::fmt::Display;
use std::io::Write;

/// Writes `text` and flushes it.
///
/// # Errors
/// If the output takes no more. [`Failure::output`] tells how the program ends then.
pub(crate) fn print(text: impl Display) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    write!(out, "{text}").and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}
