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
    Greeting(Greeting),
    Offering(Offering),
    Offered(Offered),
    Moving(Moving),
    Moved(Moved),
    Committed(Committed),
    Left(Left),
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

/// Waits for Hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::upgrade) struct Greeting;

/// Sends its sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::upgrade) struct Offering;

/// Waits for Started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::upgrade) struct Offered;

/// Holds its loops, which send their connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::upgrade) struct Moving;

/// All last states are sent. Waits for Ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::upgrade) struct Moved;

/// Writes Commit, or has written it. Seals nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::upgrade) struct Committed;

/// The connections are the new process's. Waits until they are served there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::upgrade) struct Left {
    /// The loops have forgotten them.
    pub(in crate::upgrade) forgotten: bool,
}

impl Old {
    pub(in crate::upgrade) const fn begin() -> (Self, Do) {
        (Self::Greeting(Greeting), Do::Wait)
    }

    pub(in crate::upgrade) const fn handle(self, input: Input) -> (Self, Do) {
        match self {
            Self::Greeting(state) => state.handle(input),
            Self::Offering(state) => state.handle(input),
            Self::Offered(state) => state.handle(input),
            Self::Moving(state) => state.handle(input),
            Self::Moved(state) => state.handle(input),
            Self::Committed(state) => state.handle(input),
            Self::Left(state) => state.handle(input),
            Self::Kept | Self::Done | Self::Lost => (self, Do::Wait),
        }
    }

    pub(in crate::upgrade) const fn has_ended(self) -> bool {
        matches!(self, Self::Kept | Self::Done | Self::Lost)
    }
}

/// Before Commit all that is not expected ends the upgrade.
const ABORTED: (Old, Do) = (Old::Kept, Do::Abort);

impl Greeting {
    const fn handle(self, input: Input) -> (Old, Do) {
        match input {
            Input::Frame(Kind::Hello) => (Old::Offering(Offering), Do::Offer),
            _ => ABORTED,
        }
    }
}

impl Offering {
    const fn handle(self, input: Input) -> (Old, Do) {
        match input {
            Input::Done => (Old::Offered(Offered), Do::Wait),
            _ => ABORTED,
        }
    }
}

impl Offered {
    const fn handle(self, input: Input) -> (Old, Do) {
        match input {
            Input::Frame(Kind::Started) => (Old::Moving(Moving), Do::Move),
            _ => ABORTED,
        }
    }
}

impl Moving {
    const fn handle(self, input: Input) -> (Old, Do) {
        match input {
            Input::Done => (Old::Moved(Moved), Do::Wait),
            _ => ABORTED,
        }
    }
}

impl Moved {
    const fn handle(self, input: Input) -> (Old, Do) {
        match input {
            Input::Frame(Kind::Ready) => (Old::Committed(Committed), Do::Commit),
            _ => ABORTED,
        }
    }
}

impl Committed {
    /// No time limit and no failure here lets the old process go on: the new one may do so a moment later.
    const fn handle(self, input: Input) -> (Old, Do) {
        match input {
            Input::Frame(Kind::Running) | Input::End { within: Some(Kind::Running) } | Input::Garbage => {
                (Old::Left(Left { forgotten: false }), Do::Wait)
            }
            Input::Frame(Kind::Abort) | Input::End { .. } => (Old::Kept, Do::Resume),
            _ => (Old::Committed(self), Do::Wait),
        }
    }
}

impl Left {
    const fn handle(self, input: Input) -> (Old, Do) {
        match input {
            Input::Frame(Kind::Resumed) => (Old::Done, Do::Leave),
            Input::Frame(Kind::Abort) | Input::End { .. } | Input::Garbage => (Old::Lost, Do::Forget),
            // The new process needs the CPUs first, but not for ever.
            Input::Late if !self.forgotten => (Old::Left(Self { forgotten: true }), Do::Forget),
            _ => (Old::Left(self), Do::Wait),
        }
    }
}
