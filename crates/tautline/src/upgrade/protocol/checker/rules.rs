//! The rule, and wrong ones. One of them is the rule of the protocol's first version.

use crate::upgrade::kind::Kind;
use crate::upgrade::protocol::{Input, New, NewDo, Old, OldDo, Wrote};

/// The decisions of both processes.
pub(super) trait Rule {
    fn old_side(state: Old, input: Input) -> (Old, OldDo) {
        state.handle(input)
    }

    /// `is_dead` tells whether the old process has ended, as the first version of the protocol asked.
    fn new_side(state: New, input: Input, _is_dead: bool) -> (New, NewDo) {
        state.handle(input)
    }
}

pub(super) struct Correct;

impl Rule for Correct {}

/// The first version: a step that fails counts as taken if the old process has ended, also if that had given up and served again.
pub(super) struct GoesOnAfterDeath;

impl Rule for GoesOnAfterDeath {
    fn new_side(state: New, input: Input, is_dead: bool) -> (New, NewDo) {
        let takes = matches!(state, New::Taking | New::Complete | New::Waiting);
        match state.handle(input) {
            (New::Withdrawn, _) if takes && is_dead => (New::Owner, NewDo::GoOn),
            next => next,
        }
    }
}

/// The new process goes on if Running cannot be written, also if the old process could still read it.
pub(super) struct GoesOnUnwritten;

impl Rule for GoesOnUnwritten {
    fn new_side(state: New, input: Input, _: bool) -> (New, NewDo) {
        match (state, input) {
            (New::Committed { .. }, Input::Wrote(Wrote::Nothing)) => (New::Owner, NewDo::GoOn),
            _ => state.handle(input),
        }
    }
}

/// The old process takes a part of Running for none.
pub(super) struct OldTakesCutForEnd;

impl Rule for OldTakesCutForEnd {
    fn old_side(state: Old, input: Input) -> (Old, OldDo) {
        match (state, input) {
            (Old::Committed, Input::End { .. }) => (Old::Kept, OldDo::Resume),
            _ => state.handle(input),
        }
    }
}

/// The old process takes a failed write of Commit for one that wrote nothing.
pub(super) struct OldTakesFailureForUnwritten;

impl Rule for OldTakesFailureForUnwritten {
    fn old_side(state: Old, input: Input) -> (Old, OldDo) {
        match (state, input) {
            (Old::Committed, Input::Failed) => (Old::Kept, OldDo::Resume),
            _ => state.handle(input),
        }
    }
}

/// The old process takes a frame that it does not expect for the end of the new one, as in the first version.
pub(super) struct OldTakesStrangeForEnd;

impl Rule for OldTakesStrangeForEnd {
    fn old_side(state: Old, input: Input) -> (Old, OldDo) {
        match (state, input) {
            (Old::Committed, Input::Frame(kind)) if kind != Kind::Running => (Old::Kept, OldDo::Resume),
            _ => state.handle(input),
        }
    }
}

/// The old process does not wait for ever for a new one that has Commit.
pub(super) struct OldTiresOfWaiting;

impl Rule for OldTiresOfWaiting {
    fn old_side(state: Old, input: Input) -> (Old, OldDo) {
        match (state, input) {
            (Old::Committed, Input::Late) => (Old::Kept, OldDo::Resume),
            _ => state.handle(input),
        }
    }
}

/// The new process waits for Commit without a deadline.
pub(super) struct WaitsForEver;

impl Rule for WaitsForEver {
    fn new_side(state: New, input: Input, _: bool) -> (New, NewDo) {
        match (state, input) {
            (New::Waiting, Input::Late) => (state, NewDo::Wait),
            _ => state.handle(input),
        }
    }
}
