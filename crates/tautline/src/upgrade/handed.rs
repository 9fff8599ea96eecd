//! The result of an upgrade.

use std::time::Duration;
use tautline_engine::Staying;

/// The result of a [hand-over](crate::ServerHandle::hand_over).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandedOver {
    /// Connections that have moved.
    pub moved: usize,
    /// Connections that the new process could not go on with, and those with more than 256 MiB to move. They are drained.
    pub refused: usize,
    /// Connections that could not move, by the reason. They are drained.
    pub staying: Staying,
    /// The time during which no connection was served: from the first loop that stopped to the last one that goes on.
    pub pause: Duration,
}
