//! Timers of the application.
//!
//! Timers of connections are in a wheel of their own, exact to 64 ms: one may run for each of a million connections. A timer
//! has one lazy entry there, like the deadlines of a connection. Timers of the shard are few, and exact to a millisecond.

use crate::sized::map_memory;
use crate::turn::timer::{Tick, Wheel};
use std::collections::{BTreeSet, HashMap};
use tautline_io::Token;

/// Memory of a timer of the shard in the order of times: of a tree whose nodes are two thirds full.
const OF_SHARD: usize = 3 * size_of::<(Tick, u64)>() / 2;

/// A timer of a connection.
pub(crate) struct Timer {
    pub(crate) id: u64,
    /// When it is due; `Tick::MAX` once it was cancelled.
    pub(crate) at: Tick,
    /// When its entry in the wheel is due.
    pub(crate) scheduled: Tick,
}

/// All timers of the application on one shard.
pub(crate) struct Timers {
    wheel: Wheel,
    of_shard: BTreeSet<(Tick, u64)>,
    by_id: HashMap<u64, Tick>,
    /// When the first of all may be due. Every turn asks for it.
    next: Tick,
}

impl Timers {
    pub(crate) fn new() -> Self {
        Self { wheel: Wheel::new(), of_shard: BTreeSet::new(), by_id: HashMap::new(), next: Tick::MAX }
    }

    /// When the next timer may be due; [`Tick::MAX`] without one.
    #[inline]
    pub(crate) const fn due(&self) -> Tick {
        self.next
    }

    /// Whether a timer may be due.
    #[inline]
    pub(crate) const fn is_due(&self, now: Tick) -> bool {
        self.next <= now
    }

    /// Moves the connections whose timers may be due into `due`.
    pub(crate) fn advance(&mut self, now: Tick, due: &mut Vec<Token>) {
        self.wheel.advance(now, due);
    }

    /// Its memory, in bytes, but for the lists of connections.
    pub(crate) fn memory(&self) -> usize {
        let of_shard = self.of_shard.len();
        let by_id = if of_shard == 0 { 0 } else { map_memory(&self.by_id) };
        self.wheel.memory() + by_id + of_shard * OF_SHARD
    }

    /// The number of the shard's own timers that are due at `now`.
    pub(crate) fn due_of_shard(&self, now: Tick) -> usize {
        self.of_shard.range(..=(now, u64::MAX)).count()
    }

    /// Finds the first timer again, after some were due.
    pub(crate) fn find_next(&mut self) {
        let of_shard = self.of_shard.first().map_or(Tick::MAX, |(at, _)| *at);
        self.next = self.wheel.due().min(of_shard);
    }

    /// Schedules a timer of a connection.
    pub(crate) fn schedule(&mut self, token: Token, at: Tick, scheduled: Tick) -> Tick {
        let scheduled = self.wheel.schedule(token, at, scheduled);
        self.next = self.next.min(scheduled);
        scheduled
    }

    pub(crate) fn set(&mut self, id: u64, at: Tick) {
        self.cancel(id);
        self.of_shard.insert((at, id));
        self.next = self.next.min(at);
        self.by_id.insert(id, at);
    }

    pub(crate) fn cancel(&mut self, id: u64) -> bool {
        let Some(at) = self.by_id.remove(&id) else { return false };
        self.of_shard.remove(&(at, id))
    }

    /// Takes a timer of the shard that is due at `now`.
    pub(crate) fn take_due(&mut self, now: Tick) -> Option<u64> {
        let &(at, id) = self.of_shard.first()?;
        (at <= now && self.cancel(id)).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::Timers;
    use crate::turn::timer::Tick;

    #[test]
    fn timers_of_a_shard_are_due_in_order_and_once() {
        let mut timers = Timers::new();
        assert_eq!(timers.due(), Tick::MAX);
        for (id, at) in [(1, 30), (2, 10), (3, 20), (1, 5), (4, 40)] {
            timers.set(id, at);
        }
        assert!(timers.cancel(4));
        assert!(!timers.cancel(4));
        assert_eq!((timers.due(), timers.is_due(4), timers.is_due(5)), (5, false, true));
        let due: Vec<_> = std::iter::from_fn(|| timers.take_due(15)).collect();
        assert_eq!(due, [1, 2]);
        timers.find_next();
        assert_eq!(timers.due(), 20);
        assert_eq!(timers.take_due(20), Some(3));
        timers.find_next();
        assert_eq!((timers.take_due(100), timers.due()), (None, Tick::MAX));
        assert!(timers.by_id.is_empty());
    }
}
