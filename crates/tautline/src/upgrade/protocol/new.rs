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
    Greeting(Greeting),
    Prepared(Prepared),
    Taking(Taking),
    Complete(Complete),
    Waiting(Waiting),
    Committed(Committed),
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

/// Gets the offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::upgrade) struct Greeting;

/// Prepares its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::upgrade) struct Prepared;

/// Takes connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::upgrade) struct Taking;

/// Has the last states of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::upgrade) struct Complete;

/// Has said so, and waits for Commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::upgrade) struct Waiting;

/// Has Commit, and writes Running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::upgrade) struct Committed {
    /// Attempts that wrote nothing.
    attempts: u8,
}

/// Most attempts to write Running. A system that lacks memory may take it a moment later.
const ATTEMPTS: u8 = 10;

impl New {
    pub(in crate::upgrade) const fn begin() -> (Self, Do) {
        (Self::Greeting(Greeting), Do::Greet)
    }

    pub(in crate::upgrade) const fn handle(self, input: Input) -> (Self, Do) {
        match (self, input) {
            (Self::Greeting(_), Input::Done) => (Self::Prepared(Prepared), Do::Prepare),
            (Self::Prepared(_), Input::Done) => (Self::Taking(Taking), Do::Take),
            (Self::Taking(_), Input::Done) => (Self::Complete(Complete), Do::SayReady),
            (Self::Complete(_), Input::Done) => (Self::Waiting(Waiting), Do::Wait),
            (Self::Waiting(_), Input::Frame(Kind::Commit)) => {
                (Self::Committed(Committed { attempts: 0 }), Do::SayRunning)
            }
            (Self::Committed(state), input) => state.handle(input),
            (Self::Owner | Self::Withdrawn, _) => (self, Do::Wait),
            // Without Commit it never goes on, whatever became of the old process.
            _ => (Self::Withdrawn, Do::Withdraw),
        }
    }
}

impl Committed {
    const fn handle(self, input: Input) -> (New, Do) {
        match input {
            Input::Wrote(Wrote::Some | Wrote::Closed) => (New::Owner, Do::GoOn),
            // The old process lives and has read nothing: going on now, and dying later, would look to it like a death before.
            Input::Wrote(Wrote::Nothing) if self.attempts < ATTEMPTS => {
                (New::Committed(Self { attempts: self.attempts + 1 }), Do::SayRunning)
            }
            _ => (New::Withdrawn, Do::Withdraw),
        }
    }
}
