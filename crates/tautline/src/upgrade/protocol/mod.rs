//! The protocol's rule: which process goes on, as two state machines without I/O.
//!
//! [`Old`] and [`New`] take [inputs](Input), and return the next step. `hand_over` and `take_over` execute the steps.
//!
//! Commit is the token.
//! - Without it the new process never goes on. The death of the old one changes nothing about that. So the old process may give up
//!   at any time before, and needs no answer.
//! - From the first byte of Commit on, the old process seals nothing. A failed write counts as written. It goes on only after it
//!   has read Abort, or the end of the stream without a byte of Running before it.
//! - The new process writes Running before it touches a connection. Until then it keeps its end of the socket open. Without Running
//!   it goes on only if the old process's end is closed.
//! - After Running the old process goes on with none of these connections, whatever fails.
//!
//! | who dies or stops | when | connections |
//! |---|---|---|
//! | the old process dies | before Commit is written whole | are lost, as without an upgrade |
//! | | later | the new process serves them |
//! | the new process dies | before Running | the old process goes on with them |
//! | | later | are lost |
//! | the new process stops | after Commit | wait with the old process, until it continues or dies |
//!
//! # Proof that no nonce is used twice
//! Both processes can seal for one connection only if the old one seals after it has saved the last state, and the new one seals at
//! all. The new one seals only as [`New::Owner`], so it has read the whole Commit. So the old one has entered
//! [`Committed`](Old::Committed), with all its loops held. It leaves that state to seal only by [`Kept`](Old::Kept), for one of two
//! reasons:
//! 1. It has read the first byte of Abort. The new process writes Abort only as [`New::Withdrawn`], which it never leaves, and which
//!    it never enters from `Owner`. So there is no owner.
//! 2. It has read the end of the stream, without a byte of Running before it. The stream ends when the new process has ended, or has
//!    withdrawn, or is an owner and has closed its socket. An owner has either written a byte of Running, which the stream delivers
//!    before its end. Or it has found the old process's end closed. The old process closes its end only when it ends or is in a
//!    final state. Of these, `Kept` alone seals, and the old process can have reached it after Commit only for one of these two
//!    reasons, which came first. So there is no owner.
//!
//! The end of the stream says all this only if no further process has a copy of the socket: see `channel::private`.
//!
//! # Proof that somebody goes on
//! Before Commit each wait has a deadline, after which the old process goes on. Afterwards the old process waits for the new one,
//! which either goes on, or withdraws, or ends. The last two end the stream. The new process waits for Commit with a deadline, and
//! for nothing after that.
//!
//! `checker` tries all interleavings of crashes, stops, lateness and frames.

#[cfg(test)]
mod checker;
mod new;
mod old;

pub(super) use new::{Do as NewDo, New};
pub(super) use old::{Do as OldDo, Old};

use super::kind::Kind;

/// The news for one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Input {
    /// A whole frame of the other side.
    Frame(Kind),
    /// The end of the stream from the other side, perhaps within a frame of this kind.
    End { within: Option<Kind> },
    /// Bytes that are no frame. Frames after them cannot be found.
    Garbage,
    /// Nothing has come in time.
    Late,
    /// This side's step is done.
    Done,
    /// This side's step has failed.
    Failed,
    /// The result of the step that writes Running.
    Wrote(Wrote),
}

/// The result of writing a frame, where each byte counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Wrote {
    /// At least the first byte.
    Some,
    /// Nothing, since the other process has closed its end.
    Closed,
    /// Nothing, for another reason.
    Nothing,
}
