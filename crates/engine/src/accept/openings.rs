//! A turn's time for connections that open, and those that wait for a turn with time.

use crate::accept::admission::Kind;
use crate::accept::pace::Pace;
use crate::config::Limits;
use crate::link::state::{Awaits, Link};
use crate::turn::clock::Clock;
use std::collections::VecDeque;
use std::time::Duration;
use tautline_io::Token;

/// Time for connections that open in each turn, if others need less.
pub(crate) const LEAST: Duration = Duration::from_micros(50);
/// Most time for them in a turn, so that a turn which was interrupted for long is not made twice as long.
pub(crate) const MOST: Duration = Duration::from_micros(200);
/// Time for them in a turn while nobody else has anything to do. Only they wait for the end of such a turn, and each turn costs
/// them a wait of the driver.
pub(crate) const ALONE: Duration = Duration::from_micros(500);
/// For how long nobody else has had anything to do by then.
pub(crate) const QUIET: Duration = Duration::from_secs(1);
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
    /// Whether one of them had a step in the turn before.
    had_stepped: bool,
    /// Whether connections were accepted in this turn.
    has_accepted: bool,
    /// Whether others had something to do since the turn began.
    has_served: bool,
    /// When they last had. None if they never had.
    served_at: Option<Duration>,
    /// Whether nobody else has had anything to do for a while.
    are_alone: bool,
    /// The cost of handshakes with clients.
    pub(crate) pace: Pace,
}

impl Openings {
    /// A turn begins to handle its events.
    pub(crate) fn begin(&mut self, now: Duration) {
        self.begun = now;
        self.spent = Duration::ZERO;
        self.had_stepped = self.has_stepped;
        self.has_stepped = false;
        self.has_accepted = false;
        if self.has_served {
            self.served_at = Some(now);
            self.has_served = false;
        } else if !self.are_alone {
            self.are_alone = self.served_at.is_none_or(|at| now.saturating_sub(at) >= QUIET);
        }
    }

    /// Others have something to do in this turn. Turns are short from now on.
    #[inline]
    pub(crate) const fn serve(&mut self) {
        self.has_served = true;
        self.are_alone = false;
    }

    /// Whether a step may come before other events of the turn. If steps follow each other, they come at the ends of turns: a
    /// message that has arrived during the last one does not wait for the next one too.
    pub(crate) fn may_come_first(&self) -> bool {
        (self.are_alone || !self.had_stepped) && !self.are_waiting()
    }

    /// Whether one waits that may have a step in this turn's time.
    #[inline]
    pub(crate) fn go_on(&self, clock: &Clock) -> bool {
        self.are_waiting() && self.may_step(|| clock.elapsed())
    }

    /// Whether one of those that wait may have a step. Each turn does one, whatever its time, but a turn that accepted leaves it
    /// to the next one.
    fn may_step(&self, now: impl FnOnce() -> Duration) -> bool {
        let is_put_off = self.has_accepted && self.had_stepped && !self.are_alone;
        !is_put_off && (!self.has_stepped || self.has_time(now))
    }

    /// Whether a connection may be accepted. If others wait for their step, turns that accept and turns with a step alternate.
    pub(crate) fn may_accept(&self) -> bool {
        self.are_alone || self.had_stepped || !self.are_waiting()
    }

    /// Whether another connection is to be accepted in this turn. If many wait for their step, further ones wait in the kernel's
    /// backlog.
    pub(crate) fn take_another(&self, limits: &Limits, clock: &Clock) -> bool {
        self.may_accept() && self.len() < Kind::Handshake.limit(limits) && self.has_time(|| clock.elapsed())
    }

    /// Begins a step of a connection that opens: the time now. None if its input has to wait.
    #[cold]
    pub(crate) fn begin_step<S, T>(&mut self, link: &Link<S, T>, clock: &Clock) -> Option<Duration> {
        let now = clock.elapsed();
        let is_next = link.awaits != Awaits::Opening && self.may_come_first() && self.has_time(|| now);
        self.has_stepped |= is_next;
        is_next.then_some(now)
    }

    /// Counts the time of a step that began at `begun`.
    #[cold]
    pub(crate) fn end_step(&mut self, begun: Duration, clock: &Clock) {
        let took = clock.elapsed().saturating_sub(begun);
        self.spend(took);
        self.pace.measure(took);
    }

    /// A connection was accepted.
    pub(crate) const fn accepted(&mut self) {
        self.has_accepted = true;
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

    /// The input of a connection is processed or dropped now, if it waits.
    pub(crate) fn forget_input<S, T>(&mut self, link: &Link<S, T>) {
        if link.awaits == Awaits::Opening {
            self.kept -= link.carry.len();
        }
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
    #[inline]
    pub(crate) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Counts time of this turn.
    pub(crate) fn spend(&mut self, time: Duration) {
        self.spent = self.spent.saturating_add(time);
    }

    /// Whether this turn may do another step.
    pub(crate) fn has_time(&self, now: impl FnOnce() -> Duration) -> bool {
        let least = if self.are_alone { ALONE } else { LEAST };
        self.spent < least || {
            let others = now().saturating_sub(self.begun).saturating_sub(self.spent);
            self.spent < others.min(MOST)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ALONE, LEAST, MOST, Openings, QUIET};
    use std::time::Duration;
    use tautline_io::Token;

    /// A turn begins at `now` in which others have something to do.
    fn begin_busy(openings: &mut Openings, now: Duration) {
        openings.begin(now);
        openings.serve();
    }

    #[test]
    fn a_turn_has_the_least_time_or_as_much_as_it_had_for_others() {
        let mut openings = Openings::default();
        let begun = Duration::from_secs(7);
        begin_busy(&mut openings, begun);
        assert!(openings.has_time(|| unreachable!("no clock is read within the least time")));
        openings.spend(LEAST);
        // All time so far was for connections that open.
        assert!(!openings.has_time(|| begun + LEAST));
        assert!(!openings.has_time(|| begun + 2 * LEAST), "as much for others");
        assert!(openings.has_time(|| begun + 3 * LEAST));
        openings.spend(LEAST);
        assert!(!openings.has_time(|| begun + 3 * LEAST));
        openings.spend(MOST - 2 * LEAST);
        assert!(!openings.has_time(|| begun + 9 * MOST), "the others took long, or the loop did not run");
        openings.begin(begun + 3 * LEAST);
        assert!(openings.has_time(|| unreachable!()));
    }

    #[test]
    fn a_turn_has_more_time_until_others_have_something_to_do() {
        let mut openings = Openings::default();
        openings.push(Token { index: 1, generation: 1 });
        let begun = Duration::from_secs(7);
        openings.begin(begun);
        openings.accepted();
        openings.has_stepped = true;
        openings.begin(begun);
        openings.accepted();
        openings.spend(ALONE - Duration::from_nanos(1));
        assert!(openings.may_accept() && openings.may_step(|| unreachable!()), "whatever the turn before did");
        openings.serve();
        assert!(!openings.may_step(|| begun + ALONE));
        openings.begin(begun + QUIET);
        openings.spend(LEAST);
        assert!(!openings.has_time(|| begun + QUIET + LEAST), "others had something to do in the turn before");
        openings.begin(begun + 2 * QUIET);
        openings.spend(LEAST);
        assert!(openings.has_time(|| unreachable!()), "they had nothing for a while");
    }

    #[test]
    fn a_step_in_the_next_turn_comes_after_its_other_events() {
        let mut openings = Openings::default();
        begin_busy(&mut openings, Duration::ZERO);
        assert!(openings.may_come_first());
        openings.has_stepped = true;
        assert!(openings.may_come_first(), "it is the same turn");
        begin_busy(&mut openings, Duration::ZERO);
        assert!(!openings.may_come_first());
        openings.begin(Duration::ZERO);
        assert!(openings.may_come_first());
    }

    #[test]
    fn turns_that_accept_and_turns_with_a_step_alternate() {
        let mut openings = Openings::default();
        openings.push(Token { index: 1, generation: 1 });
        begin_busy(&mut openings, Duration::ZERO);
        let may_step = |openings: &Openings| openings.may_step(|| Duration::ZERO);
        assert!(!openings.may_accept() && may_step(&openings));
        openings.has_stepped = true;
        openings.begin(Duration::ZERO);
        assert!(openings.may_accept() && may_step(&openings), "nobody was accepted so far");
        openings.accepted();
        assert!(!may_step(&openings));
        openings.begin(Duration::ZERO);
        assert!(!openings.may_accept() && may_step(&openings));
        openings.pop();
        assert!(openings.may_accept(), "nobody waits");
    }
}
