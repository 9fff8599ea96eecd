//! The reasons why an upgrade did not succeed.

use std::error::Error;
use std::fmt;
use std::io;

/// An upgrade that did not succeed. This server goes on: as before, or without the connections that it names as lost.
///
/// ```
/// use tautline::HandOverError;
///
/// fn report(error: &HandOverError) -> String {
///     match error {
///         HandOverError::Lost { connections, .. } => format!("{connections} clients have to connect again: {error}"),
///         _ => format!("nothing has changed: {error}"),
///     }
/// }
/// ```
#[non_exhaustive]
pub enum HandOverError {
    /// The new process did not take over. This server goes on as before.
    ///
    /// The kind is [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) if the new process ended, or closed its socket, without a
    /// reason: its exit status says more.
    Failed(io::Error),
    /// The new process took over, and ended before it served all connections. They have no owner any more: the new process may
    /// have used them, so this one must not. This server goes on listening, with the connections that did not move.
    Lost {
        /// The number of connections that had moved.
        connections: usize,
        /// The last that was heard of the new process.
        error: io::Error,
    },
}

impl fmt::Display for HandOverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::Lost { connections, error } => {
                write!(f, "the new process took over and then failed ({error}): {connections} connections are lost")
            }
        }
    }
}

impl fmt::Debug for HandOverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for HandOverError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(error) | Self::Lost { error, .. } => Some(error),
        }
    }
}
