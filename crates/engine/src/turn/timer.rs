//! A hashed timer wheel with one lazy entry per connection.
//!
//! A deadline moves with every message, but moving an entry costs time. So an entry stays in its slot. When the slot is due,
//! the connection is asked for its present deadline, and is inserted again if that lies in the future.

use tautline_io::Token;

pub(crate) use tautline_conn::tick::Tick;

const SLOTS: usize = 1024;
const MASK: u64 = SLOTS as u64 - 1;
/// One slot spans 2^6 = 64 ms, the wheel 65.5 s. Later deadlines wait in the last slot and are inserted again.
const SHIFT: u32 = 6;

/// Entries that an emptied slot keeps room for. Without this bound, many entries that move together from slot to slot would
/// leave room for all of them in every slot.
const KEPT: usize = 64;

/// Tokens, by the slot in which their deadline is looked at.
pub(crate) struct Wheel {
    slots: Vec<Vec<Token>>,
    /// The number of entries, and the room for them in all slots.
    len: usize,
    room: usize,
    /// First slot that was not looked at yet, counted from the shard's begin, not wrapped.
    next: u64,
    /// First slot with an entry; `u64::MAX` if there is none. It is kept because every turn asks for it, and a search would
    /// walk through the wheel's memory.
    first: u64,
}

impl Wheel {
    pub(crate) fn new() -> Self {
        // Slot 0 is never used, since deadlines are rounded up.
        Self { slots: (0..SLOTS).map(|_| Vec::new()).collect(), len: 0, room: 0, next: 1, first: u64::MAX }
    }

    /// Inserts `token` for `deadline`, unless its entry that is due at `scheduled` will be looked at by then. Returns the tick
    /// at which it is due.
    ///
    /// That tick is at most 64 ms after the deadline, or before it if the deadline is beyond the wheel's span. `scheduled` is
    /// the latest tick that was returned for `token`, or 0.
    pub(crate) fn schedule(&mut self, token: Token, deadline: Tick, scheduled: Tick) -> Tick {
        let slot = scheduled >> SHIFT;
        // Slots are compared, not ticks: a deadline is before the tick of its own slot.
        if slot >= self.next && slot <= self.slot_for(deadline) { scheduled } else { self.insert(token, deadline) }
    }

    fn slot_for(&self, deadline: Tick) -> u64 {
        // Rounded up: a deadline inside a slot has passed when the slot has.
        ((deadline >> SHIFT) + 1).clamp(self.next, self.next + MASK)
    }

    fn insert(&mut self, token: Token, deadline: Tick) -> Tick {
        let slot = self.slot_for(deadline);
        let entries = self.slot(slot);
        let before = entries.capacity();
        entries.push(token);
        self.len += 1;
        self.room += self.slot(slot).capacity() - before;
        self.first = self.first.min(slot);
        slot << SHIFT
    }

    /// Moves the tokens that are due at `now` into `due`.
    pub(crate) fn advance(&mut self, now: Tick, due: &mut Vec<Token>) {
        let current = now >> SHIFT;
        if self.first <= current {
            let (begin, end) = (self.first, (current + 1).min(self.next + SLOTS as u64));
            for slot in begin..end {
                let entries = self.slot(slot);
                let (len, before) = (entries.len(), entries.capacity());
                due.append(entries);
                entries.shrink_to(KEPT);
                let after = entries.capacity();
                self.len -= len;
                self.room = self.room - before + after;
            }
            self.first = (end..begin + SLOTS as u64).find(|&slot| !self.slot(slot).is_empty()).unwrap_or(u64::MAX);
        }
        self.next = self.next.max(current + 1);
    }

    /// When the next token is due; [`Tick::MAX`] if the wheel is empty.
    #[inline]
    pub(crate) const fn due(&self) -> Tick {
        if self.first == u64::MAX { Tick::MAX } else { self.first << SHIFT }
    }

    /// The memory of its entries, in bytes.
    pub(crate) const fn memory(&self) -> usize {
        if self.len == 0 { 0 } else { self.room * size_of::<Token>() }
    }

    /// The number of entries.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    fn slot(&mut self, slot: u64) -> &mut Vec<Token> {
        let index = (slot & MASK) as usize;
        &mut self.slots[index]
    }
}

#[cfg(test)]
mod tests {
    use super::{KEPT, SHIFT, Tick, Wheel};
    use tautline_io::Token;

    fn token(index: u32) -> Token {
        Token { index, generation: 0 }
    }

    #[test]
    fn entries_are_due_neither_early_nor_late() {
        let mut wheel = Wheel::new();
        let mut oracle: Vec<(u64, u32)> = Vec::new();
        let mut now = 0;
        let mut seed = 1_u64;
        let mut due = Vec::new();
        for index in 0..5_000_u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let deadline = now + (seed >> 33) % 60_000;
            wheel.insert(token(index), deadline);
            oracle.push((deadline, index));
            now += (seed >> 50) % 200;
            wheel.advance(now, &mut due);
            for late in due.drain(..) {
                let at = oracle.iter().position(|&(_, i)| i == late.index).expect("due twice");
                let (deadline, _) = oracle.swap_remove(at);
                assert!(deadline <= now, "early: {deadline} at {now}");
            }
            assert!(oracle.iter().all(|&(deadline, _)| deadline + (2 << SHIFT) > now), "late at {now}");
        }
    }

    #[test]
    fn waits_until_the_first_entry() {
        let mut wheel = Wheel::new();
        assert_eq!(wheel.due(), Tick::MAX);
        wheel.insert(token(0), 1_000);
        let first = wheel.due();
        assert!((1_000..=1_000 + 64).contains(&first), "{first}");
        let mut due = Vec::new();
        wheel.advance(first, &mut due);
        assert_eq!(due, [token(0)]);
        assert_eq!(wheel.due(), Tick::MAX);
    }

    /// A connection with bytes in flight asks in every turn.
    #[test]
    fn a_deadline_that_is_asked_for_again_takes_one_entry_at_n_and_at_10_n() {
        for turns in [1_000_u64, 10_000] {
            let mut wheel = Wheel::new();
            let mut due = Vec::new();
            let mut scheduled = 0;
            for turn in 0..turns {
                // The deadline stays; ten turns take a millisecond.
                scheduled = wheel.schedule(token(1), 30_100, scheduled);
                wheel.advance(turn / 10, &mut due);
            }
            // A later deadline leaves the entry; an earlier one takes one more.
            scheduled = wheel.schedule(token(1), 40_000, scheduled);
            assert_eq!(wheel.slots.iter().map(Vec::len).sum::<usize>(), 1, "{turns}");
            scheduled = wheel.schedule(token(1), 20_000, scheduled);
            assert_eq!(wheel.slots.iter().map(Vec::len).sum::<usize>(), 2, "{turns}");
            wheel.advance(scheduled, &mut due);
            assert_eq!(due, [token(1)]);
            assert!(wheel.schedule(token(1), 50_000, scheduled) > 50_000, "an entry that was looked at counts no more");
        }
    }

    #[test]
    fn a_deadline_beyond_the_span_is_due_early() {
        let mut wheel = Wheel::new();
        wheel.insert(token(3), 10_000_000);
        let mut due = Vec::new();
        wheel.advance(70_000, &mut due);
        assert_eq!(due, [token(3)]);
    }

    #[test]
    fn emptied_slots_keep_little_room() {
        let mut wheel = Wheel::new();
        let mut due = Vec::new();
        for round in 0..200_u64 {
            let now = round * 64 * 5;
            for index in 0..1_000 {
                wheel.insert(token(index), now + 64);
            }
            wheel.advance(now + 64 * 4, &mut due);
            assert_eq!(due.drain(..).len(), 1_000);
        }
        let room: usize = wheel.slots.iter().map(Vec::capacity).sum();
        assert!(room <= 200 * KEPT, "{room}");
    }

    #[test]
    fn a_sleep_longer_than_the_span_loses_no_entry() {
        let mut wheel = Wheel::new();
        for index in 0..100 {
            wheel.insert(token(index), u64::from(index) * 500);
        }
        let mut due = Vec::new();
        wheel.advance(1_000_000_000, &mut due);
        assert_eq!(due.len(), 100);
        wheel.insert(token(7), 1_000_000_100);
        due.clear();
        wheel.advance(1_000_000_300, &mut due);
        assert_eq!(due, [token(7)]);
    }
}
