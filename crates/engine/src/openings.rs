//! A turn's time for connections that open, and those that wait for a turn with time.

use std::collections::VecDeque;
use std::time::Duration;
use tautline_io::Token;

/// Time for connections that open in each turn, if others need less.
pub(crate) const LEAST: Duration = Duration::from_micros(50);
/// Most bytes of input that wait. Thousands of honest clients have less: a ClientHello and a request take some hundreds of bytes.
pub(crate) const MOST_KEPT: usize = 8 << 20;

/// Connections that open, and a turn's time for them.
#[derive(Debug, Default)]
pub(crate) struct Openings {
    /// The connections whose input waits, in the order of its arrival. Some may have ended.
    waiting: VecDeque<Token>,
    /// The bytes of that input.
    kept: usize,
    /// When the turn's wait ended.
    begun: Duration,
    /// Time of this turn that connections took which open.
    spent: Duration,
    /// Whether one of them had a step in this turn.
    pub(crate) has_stepped: bool,
}

impl Openings {
    /// A turn begins to handle its events.
    pub(crate) const fn begin(&mut self, now: Duration) {
        self.begun = now;
        self.spent = Duration::ZERO;
        self.has_stepped = false;
    }

    /// Connections whose input waits.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// A connection's input waits behind that of the others.
    pub(crate) fn push(&mut self, token: Token) {
        self.waiting.push_back(token);
    }

    /// Input is kept.
    pub(crate) const fn keep(&mut self, len: usize) {
        self.kept += len;
    }

    /// Kept input is processed or dropped.
    pub(crate) const fn forget(&mut self, len: usize) {
        self.kept -= len;
    }

    /// Whether more input waits than memory is for.
    pub(crate) fn hold_too_much(&self) -> bool {
        self.kept > MOST_KEPT && self.are_waiting()
    }

    /// The bytes of input that wait.
    #[cfg(test)]
    pub(crate) const fn kept(&self) -> usize {
        self.kept
    }

    /// The connection whose input has waited longest.
    pub(crate) fn pop(&mut self) -> Option<Token> {
        self.waiting.pop_front()
    }

    /// Whether input waits.
    pub(crate) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Counts time of this turn.
    pub(crate) fn spend(&mut self, time: Duration) {
        self.spent = self.spent.saturating_add(time);
    }

    /// Whether this turn may do another step.
    pub(crate) fn has_time(&self, now: impl FnOnce() -> Duration) -> bool {
        self.spent < LEAST || {
            let others = now().saturating_sub(self.begun).saturating_sub(self.spent);
            self.spent < others
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LEAST, Openings};
    use std::time::Duration;

    #[test]
    fn a_turn_has_the_least_time_or_as_much_as_it_had_for_others() {
        let mut openings = Openings::default();
        let begun = Duration::from_secs(7);
        openings.begin(begun);
        assert!(openings.has_time(|| unreachable!("no clock is read within the least time")));
        openings.spend(LEAST);
        // All time so far was for connections that open.
        assert!(!openings.has_time(|| begun + LEAST));
        assert!(!openings.has_time(|| begun + 2 * LEAST), "as much for others");
        assert!(openings.has_time(|| begun + 3 * LEAST));
        openings.spend(LEAST);
        assert!(!openings.has_time(|| begun + 3 * LEAST));
        openings.begin(begun + 3 * LEAST);
        assert!(openings.has_time(|| unreachable!()));
    }
}
