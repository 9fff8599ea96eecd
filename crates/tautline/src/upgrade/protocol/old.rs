//! The old process's side of the rule.

use super::Input;
use crate::upgrade::kind::Kind;

/// The state of the old process.
///
/// ```text
///  Greeting ─Hello─► Offering ──► Offered ─Started─► Moving ──► Moved
///      │ anything else │             │                 │          │ Ready
///      │               │             │                 │          ▼
///      │               │             │                 │      Committed ──────┐
///      ▼               ▼             ▼                 ▼          │           │ Running
///  Kept ◄──────────────────────────────────────────────┴──────────┘           ▼
///   goes on with everything                           Abort, end            Left ─Resumed─► Done
///                                                                             └─ end ─────► Lost
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::upgrade) enum Old {
    /// Waits for Hello.
    Greeting,
    /// Sends its sockets.
    Offering,
    /// Waits for Started.
    Offered,
    /// Holds its loops, which send their connections.
    Moving,
    /// All last states are sent. Waits for Ready.
    Moved,
    /// Writes Commit, or has written it. Seals nothing.
    Committed,
    /// The connections are the new process's. Waits until they are served there.
    Left {
        /// The loops have forgotten them.
        forgotten: bool,
    },
    /// It goes on with all connections.
    Kept,
    /// The new process goes on with those that have moved.
    Done,
    /// The new process has ended after it had them.
    Lost,
}

/// The next step of the old process. After each one but the last comes an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::upgrade) enum Do {
    /// Wait for news of the new process.
    Wait,
    /// Send sockets.
    Offer,
    /// Hold all loops, and send the last states of connections.
    Move,
    /// Write Commit.
    Commit,
    /// Write Abort, and let the loops go on with everything.
    Abort,
    /// Let the loops go on with everything.
    Resume,
    /// Let the loops go on without the connections that have moved.
    Forget,
    /// Let the loops go on without these and without the listening sockets.
    Leave,
}

impl Old {
    pub(in crate::upgrade) const fn begin() -> (Self, Do) {
        (Self::Greeting, Do::Wait)
    }

    pub(in crate::upgrade) const fn handle(self, input: Input) -> (Self, Do) {
        use Input::{Done, End, Frame, Garbage, Late};
        match (self, input) {
            (Self::Greeting, Frame(Kind::Hello)) => (Self::Offering, Do::Offer),
            (Self::Offering, Done) => (Self::Offered, Do::Wait),
            (Self::Offered, Frame(Kind::Started)) => (Self::Moving, Do::Move),
            (Self::Moving, Done) => (Self::Moved, Do::Wait),
            (Self::Moved, Frame(Kind::Ready)) => (Self::Committed, Do::Commit),
            // Before Commit all that is not expected ends the upgrade.
            (Self::Greeting | Self::Offering | Self::Offered | Self::Moving | Self::Moved, _) => {
                (Self::Kept, Do::Abort)
            }
            // No time limit and no failure here lets the old process go on: the new one may do so a moment later.
            (Self::Committed, Frame(Kind::Running) | End { within: Some(Kind::Running) } | Garbage) => {
                (Self::Left { forgotten: false }, Do::Wait)
            }
            (Self::Committed, Frame(Kind::Abort) | End { .. }) => (Self::Kept, Do::Resume),
            (Self::Left { .. }, Frame(Kind::Resumed)) => (Self::Done, Do::Leave),
            (Self::Left { .. }, Frame(Kind::Abort) | End { .. } | Garbage) => (Self::Lost, Do::Forget),
            // The new process needs the CPUs first, but not for ever.
            (Self::Left { forgotten: false }, Late) => (Self::Left { forgotten: true }, Do::Forget),
            (Self::Committed | Self::Left { .. } | Self::Kept | Self::Done | Self::Lost, _) => (self, Do::Wait),
        }
    }

    pub(in crate::upgrade) const fn has_ended(self) -> bool {
        matches!(self, Self::Kept | Self::Done | Self::Lost)
    }
}
