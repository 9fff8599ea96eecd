//! The new process's side of the rule.

use super::{Input, Wrote};
use crate::upgrade::kind::Kind;

/// The state of the new process.
///
/// ```text
///  Greeting ──► Prepared ──► Taking ──► Complete ──► Waiting ─Commit─► Committed ─Running─► Owner
///     │            │           │           │            │                 │ a byte written, or nobody reads
///     ▼            ▼           ▼           ▼            ▼                 ▼
///  Withdrawn ◄─ anything else ──────────────────────────────── nothing can be written
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::upgrade) enum New {
    /// Gets the offer.
    Greeting,
    /// Prepares its server.
    Prepared,
    /// Takes connections.
    Taking,
    /// Has the last states of all.
    Complete,
    /// Has said so, and waits for Commit.
    Waiting,
    /// Has Commit, and writes Running.
    Committed {
        /// Attempts that wrote nothing.
        attempts: u8,
    },
    /// It goes on with the connections.
    Owner,
    /// It never goes on with a connection.
    Withdrawn,
}

/// The next step of the new process. After each one but the last two comes an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::upgrade) enum Do {
    /// Write Hello, and get the offer.
    Greet,
    /// Start the loops, and all that may fail.
    Prepare,
    /// Write Started, and take the connections.
    Take,
    /// Write Ready.
    SayReady,
    /// Wait for news of the old process.
    Wait,
    /// Write Running.
    SayRunning,
    /// Let the loops go on, and write Resumed.
    GoOn,
    /// Drop the loops, write Abort, and close the socket.
    Withdraw,
}

/// Most attempts to write Running. A system that lacks memory may take it a moment later.
const ATTEMPTS: u8 = 10;

impl New {
    pub(in crate::upgrade) const fn begin() -> (Self, Do) {
        (Self::Greeting, Do::Greet)
    }

    pub(in crate::upgrade) const fn handle(self, input: Input) -> (Self, Do) {
        match (self, input) {
            (Self::Greeting, Input::Done) => (Self::Prepared, Do::Prepare),
            (Self::Prepared, Input::Done) => (Self::Taking, Do::Take),
            (Self::Taking, Input::Done) => (Self::Complete, Do::SayReady),
            (Self::Complete, Input::Done) => (Self::Waiting, Do::Wait),
            (Self::Waiting, Input::Frame(Kind::Commit)) => (Self::Committed { attempts: 0 }, Do::SayRunning),
            (Self::Committed { .. }, Input::Wrote(Wrote::Some | Wrote::Closed)) => (Self::Owner, Do::GoOn),
            // The old process lives and has read nothing: going on now, and dying later, would look to it like a death before.
            (Self::Committed { attempts }, Input::Wrote(Wrote::Nothing)) if attempts < ATTEMPTS => {
                (Self::Committed { attempts: attempts + 1 }, Do::SayRunning)
            }
            (Self::Owner | Self::Withdrawn, _) => (self, Do::Wait),
            // Without Commit it never goes on, whatever became of the old process.
            _ => (Self::Withdrawn, Do::Withdraw),
        }
    }
}
