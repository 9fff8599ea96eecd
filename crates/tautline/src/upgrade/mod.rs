//! Upgrades without a disconnect: a new process takes over listening and established connections.
//!
//! ```text
//!  old                                                      new
//!                                                Hello ◄─── connects
//!  sockets for loops, listening ones, ticket keys ─► Loops, Listening, Offered
//!                                              Started ◄─── all its loops have begun
//!  loops save between turns ─── by loop: Ahead, AheadAgain ► restores
//!                                                Taken ◄─── is ready for more
//!  all loops stop, and save
//!  changes, others ─── by loop: Changed, Connections, End ──► restores
//!                                         Taken, Ready ◄─── has everything, and touches no connection
//!  ─────────────────────────────────────────────► Commit
//!                                              Running ◄─── goes on
//!                                              Resumed ◄─── all connections are served again
//!  forgets the connections, drains the others
//! ```
//! At each step exactly one process goes on with a connection. Until `Running` the old one has given nothing up, and only waits:
//! if the new process ends, or fails, the old one goes on. If the old process ends after it has saved connections, the new one
//! goes on with them, but for those of which it has no last state.

mod arriving;
mod batch;
mod channel;
mod hand_over;
mod ledger;
mod take_over;
mod upgrades;

pub(crate) use take_over::{Arrivals, TakeOver};
pub(crate) use upgrades::Legacy;
pub use upgrades::Upgrades;

use std::time::Duration;
use tautline_engine::Staying;

/// How long one process waits for the other, while connections wait for both.
const PATIENCE: Duration = Duration::from_secs(5);

/// Settings of [`ServerHandle::hand_over`](crate::ServerHandle::hand_over).
///
/// ```
/// use std::time::Duration;
/// use tautline::HandOver;
///
/// let mut settings = HandOver::default();
/// settings.deadline = Duration::from_secs(30);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HandOver {
    /// How long connections that cannot move have to close, after they got 1012. Default: 10 seconds.
    pub deadline: Duration,
    /// The user of the new process. Default: the user of this one.
    pub user: Option<u32>,
}

impl Default for HandOver {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(10), user: None }
    }
}

/// The result of a [hand-over](crate::ServerHandle::hand_over).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandedOver {
    /// Connections that have moved.
    pub moved: usize,
    /// Connections that the new process could not go on with. They are drained.
    pub refused: usize,
    /// Connections that could not move, by the reason. They are drained.
    pub staying: Staying,
    /// The time during which no connection was served: from the first loop that stopped to the last one that goes on.
    pub pause: Duration,
}

#[cfg(test)]
mod tests;
