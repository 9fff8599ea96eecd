//! The memory of a shard by its use, in bytes: numbers of the loop, which it reports at most once a turn.
//!
//! A connection that holds nothing beside its own state costs a few comparisons after each event. Others have an entry in a
//! table, so that idle connections stay small.

use crate::counters::LiveCounters;
use crate::link::Link;
use crate::phase::Phase;
use crate::timer::Tick;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use tautline_buf::Pool;
use tautline_io::Token;

/// Memory of a connection outside this crate: of the driver, the allocator and the TLS session, as measured with `fused`.
const BESIDE_LINK: usize = 512;

/// Memory of a TLS library during a handshake, as measured with rustls.
const HANDSHAKE: usize = 4 << 10;

/// Least memory of a connection that is closed for want of memory. To close lighter ones would free next to nothing.
const HEAVY: usize = 8 << 10;

/// Growth of a shard's memory after which it looks at the budget again.
const STEP: usize = 64 << 10;

/// Memory that a connection holds beside its own state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// The handshake, and HTTP heads that are not whole.
    pub(crate) heads: usize,
    /// Records and messages that are not whole.
    pub(crate) partial: usize,
    /// Bytes on their way to the peer.
    pub(crate) sending: usize,
    /// Messages in its queue that no other queue has.
    pub(crate) queued: usize,
    /// State of compression.
    pub(crate) deflate: usize,
    /// Published messages in its queue. They are counted where they were published, however many queues have them.
    pub(crate) shared: usize,
}

impl Held {
    /// The memory that may come free with this connection.
    pub(crate) fn weight(&self) -> usize {
        #[cfg(test)]
        tests::WEIGHED.set(tests::WEIGHED.get() + 1);
        self.heads + self.partial + self.deflate + self.outgoing()
    }

    /// The part of it that waits for the peer to read.
    pub(crate) const fn outgoing(&self) -> usize {
        self.sending + self.queued + self.shared
    }

    /// Replaces one connection's part of a sum.
    const fn replace(&mut self, before: &Self, after: &Self) {
        self.heads = self.heads - before.heads + after.heads;
        self.partial = self.partial - before.partial + after.partial;
        self.sending = self.sending - before.sending + after.sending;
        self.queued = self.queued - before.queued + after.queued;
        self.deflate = self.deflate - before.deflate + after.deflate;
        self.shared = self.shared - before.shared + after.shared;
    }
}

/// The memory of a shard.
#[derive(Default)]
pub(crate) struct Account {
    /// Memory of the connections' own state.
    connections: usize,
    sums: Held,
    /// The connections that hold more, by their slot.
    holders: HashMap<Token, Held>,
    /// The holders that may be closed for want of memory, the heaviest first: a crowd of others costs nothing to pass over.
    /// The token makes the order the same in every run.
    heavy: BTreeSet<(Reverse<usize>, Token)>,
    /// The part of the pool that was reported.
    in_classes: usize,
    changed: bool,
    /// Whether the shard has grown since the last look at the budget.
    pub(crate) grown: bool,
    /// Whether the budget is to be looked at again.
    pub(crate) due: bool,
    /// Whether it is to be looked at again once other shards had time to free unused buffers.
    pub(crate) awaits_others: bool,
    /// The first and the last of the latest refusals of new connections.
    refusals: Option<(Tick, Tick)>,
    /// When other shards were last asked to free unused buffers.
    pub(crate) asked_at: Tick,
    /// The reported total, and the least one since the last look at the budget.
    total: usize,
    least: usize,
}

impl Account {
    pub(crate) const fn add_connection(&mut self, bytes: usize) {
        self.connections += bytes + BESIDE_LINK;
        self.changed = true;
    }

    pub(crate) const fn remove_connection(&mut self, bytes: usize) {
        self.connections -= bytes + BESIDE_LINK;
        self.changed = true;
    }

    /// Notes what a connection holds now. Returns whether that is anything.
    pub(crate) fn set(&mut self, token: Token, held: Held) -> bool {
        let is_holder = held != Held::default();
        let before = if is_holder { self.holders.insert(token, held) } else { self.holders.remove(&token) };
        let before = before.unwrap_or_default();
        self.changed |= before != held;
        self.sums.replace(&before, &held);
        let (was, is) = (before.weight(), held.weight());
        if was != is {
            if was >= HEAVY {
                self.heavy.remove(&(Reverse(was), token));
            }
            if is >= HEAVY {
                self.heavy.insert((Reverse(is), token));
            }
        }
        if self.holders.is_empty() {
            self.holders.shrink_to(STEP / size_of::<Held>());
        }
        is_holder
    }

    /// Whether there is something to report, or the budget is to be looked at.
    #[inline]
    pub(crate) const fn is_due(&self, pool: &Pool) -> bool {
        self.changed | self.due | (pool.in_classes() != self.in_classes)
    }

    /// Reports the numbers. The budget is due if the shard has grown since the last [look](Self::looked).
    pub(crate) fn report(&mut self, pool: &Pool, counters: &LiveCounters) {
        self.changed = false;
        self.in_classes = pool.in_classes();
        let pooled = pool.memory();
        let Self { connections, sums, .. } = *self;
        let numbers = [
            (&counters.memory_connections, connections),
            (&counters.memory_heads, sums.heads),
            (&counters.memory_partial, sums.partial),
            (&counters.memory_sending, sums.sending),
            (&counters.memory_queued, sums.queued),
            (&counters.memory_deflate, sums.deflate),
            (&counters.memory_pooled, pooled),
        ];
        self.total = 0;
        for (counter, bytes) in numbers {
            counter.set(bytes as u64);
            self.total += bytes;
        }
        self.least = self.least.min(self.total);
        self.grown = self.total > self.least + STEP;
    }

    /// Notes that a connection is refused. Returns whether that goes on for `time`, without a pause as long as that. Then it
    /// begins anew.
    pub(crate) fn refuses_for(&mut self, time: Tick, now: Tick) -> bool {
        let (first, _) = self.refusals.filter(|(_, last)| last + time >= now).unwrap_or((now, now));
        let is_over = first + time <= now;
        self.refusals = (!is_over).then_some((first, now));
        is_over
    }

    /// The weight of all connections that hold anything.
    pub(crate) fn weight(&self) -> usize {
        self.sums.weight()
    }

    /// The budget was looked at.
    pub(crate) const fn looked(&mut self) {
        self.least = self.total;
        self.grown = false;
    }

    /// The connections to close, the heaviest first: as many as weigh `enough`, at most `most`. Takes time in proportion to
    /// their number, however many others hold something.
    pub(crate) fn to_close(&self, enough: usize, most: usize) -> Vec<(Token, Held)> {
        let mut sum = 0_usize;
        let needed = self.heavy.iter().take(most).take_while(|(Reverse(weight), _)| {
            let more = sum < enough;
            sum = sum.saturating_add(*weight);
            more
        });
        needed.filter_map(|(_, token)| Some((*token, *self.holders.get(token)?))).collect()
    }

    /// The heaviest connections, at most `most`, the heaviest first. Walks through all that hold anything.
    pub(crate) fn heaviest(&self, most: usize) -> Vec<(Token, Held)> {
        let holders = self.holders.iter().map(|(token, held)| (Reverse(held.weight()), *token, *held));
        let mut heavy: Vec<_> = holders.collect();
        let rank = |(weight, token, _): &(Reverse<usize>, Token, Held)| (*weight, *token);
        if heavy.len() > most {
            heavy.select_nth_unstable_by_key(most, rank);
            heavy.truncate(most);
        }
        heavy.sort_unstable_by_key(rank);
        heavy.into_iter().map(|(_, token, held)| (token, held)).collect()
    }
}

impl<S, T> Link<S, T> {
    /// Whether it may hold memory beside its own state, or did.
    ///
    /// Handshakes and connections with compression are looked at after each event, since their memory is within other types.
    #[inline]
    pub(crate) const fn may_hold(&self) -> bool {
        self.charged
            | self.carry.has_memory()
            | self.out.has_memory()
            | self.wire.has_memory()
            | self.decoder.has_message()
    }

    pub(crate) fn held(&self) -> Held {
        let (message, inflater) = self.decoder.memory();
        let (cork, queued, shared, deflater) = self.out.memory();
        let carry = self.carry.capacity();
        let head = match &self.phase {
            Phase::Request(head) => head.memory(),
            Phase::Answer(answer) => answer.bytes.capacity(),
            // The pool has a buffer for the client's messages and one for ours.
            Phase::Offloaded(Some(_)) => HANDSHAKE + 2 * Pool::MIN_CAPACITY,
            Phase::Tls | Phase::Offloaded(None) => HANDSHAKE,
            _ => 0,
        };
        let is_handshaking = self.phase.is_handshaking();
        Held {
            heads: head + if is_handshaking { carry } else { 0 },
            partial: message + if is_handshaking { 0 } else { carry },
            sending: cork + self.wire.memory(),
            queued,
            deflate: inflater + deflater,
            shared,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Account, HEAVY, Held, STEP};
    use crate::counters::LiveCounters;
    use std::cell::Cell;
    use tautline_buf::{Buf, Pool};
    use tautline_io::Token;

    fn token(index: u32) -> Token {
        Token { index, generation: 0 }
    }

    fn partial(bytes: usize) -> Held {
        Held { partial: bytes, ..Held::default() }
    }

    #[test]
    fn sums_follow_the_connections() {
        let (mut account, counters, mut pool) = (Account::default(), LiveCounters::default(), Pool::new(1 << 20));
        account.add_connection(700);
        assert!(
            account
                .set(token(1), Held { heads: 1, partial: 20, sending: 300, queued: 4000, deflate: 50_000, shared: 9 })
        );
        assert!(account.set(token(2), partial(5)));
        pool.give(Buf::with_capacity(4096));
        account.report(&pool, &counters);
        let now = counters.snapshot();
        assert_eq!((now.memory_heads, now.memory_partial, now.memory_sending), (1, 25, 300));
        assert_eq!((now.memory_queued, now.memory_deflate, now.memory_pooled), (4000, 50_000, 4096));
        assert_eq!(
            now.memory(),
            now.memory_connections + 1 + 25 + 300 + 4000 + 50_000 + 4096,
            "shared messages count elsewhere"
        );
        assert!(!account.set(token(1), Held::default()));
        account.remove_connection(700);
        pool.trim();
        account.report(&pool, &counters);
        assert_eq!(counters.snapshot().memory(), 5);
    }

    #[test]
    fn growth_is_reported_in_steps_from_the_lowest() {
        let (mut account, counters, pool) = (Account::default(), LiveCounters::default(), Pool::new(0));
        let mut at = |bytes: usize, looks: bool| {
            account.set(token(1), partial(bytes));
            account.report(&pool, &counters);
            let grown = account.grown;
            if looks {
                account.looked();
            }
            grown
        };
        assert!(!at(STEP, false));
        assert!(at(STEP + 1, true));
        assert!(!at(2 * STEP, false));
        assert!(!at(10, false));
        assert!(at(STEP + 11, false));
    }

    #[test]
    fn refusals_count_from_the_first_of_a_series() {
        let mut account = Account::default();
        let refused: Vec<_> =
            [0, 900, 1_000, 1_100, 3_000, 4_100, 5_000, 5_100].map(|at| account.refuses_for(1_000, at)).into();
        // At 1,100 a new series begins, and 1,900 ms without a refusal end it.
        assert_eq!(refused, [false, false, true, false, false, false, false, true]);
    }

    #[test]
    fn the_heaviest_are_closed_as_many_as_needed() {
        let mut account = Account::default();
        for index in 0..100 {
            account.set(token(index), partial(index as usize * 1_000));
        }
        let indexes = |found: Vec<(Token, Held)>| -> Vec<u32> { found.iter().map(|(token, _)| token.index).collect() };
        assert_eq!(indexes(account.to_close(99_000 + 1, 64)), [99, 98]);
        assert_eq!(indexes(account.to_close(1, 64)), [99]);
        assert!(account.to_close(0, 3).is_empty());
        assert_eq!(indexes(account.to_close(usize::MAX, 3)), [99, 98, 97]);
        assert_eq!(indexes(account.heaviest(3)), [99, 98, 97]);
        // Those below 8 KiB stay, and are found by an operator.
        assert_eq!(account.to_close(usize::MAX, 100).len(), 91);
        assert_eq!(account.heaviest(100).len(), 99);
        account.set(token(99), partial(50_500));
        account.set(token(98), partial(HEAVY - 1));
        account.set(token(97), Held::default());
        assert_eq!(indexes(account.to_close(usize::MAX, 2)), [96, 95]);
        assert_eq!(indexes(account.to_close(usize::MAX, 100))[45..49], [51, 99, 50, 49]);
    }

    thread_local! {
        /// Calls of [`Held::weight`].
        pub(super) static WEIGHED: Cell<u64> = const { Cell::new(0) };
    }

    #[test]
    fn closing_one_costs_the_same_beside_n_and_10_n_others() {
        for others in [1_000, 10_000] {
            let mut account = Account::default();
            for index in 0..others {
                account.set(token(index), partial(HEAVY + index as usize));
            }
            let before = WEIGHED.get();
            for round in 0..100 {
                account.set(token(others + round), partial(1 << 20));
                let [(heaviest, _)] = account.to_close(1, 64)[..] else { panic!("one suffices") };
                assert_eq!(heaviest, token(others + round));
                account.set(heaviest, Held::default());
            }
            let weighed = (WEIGHED.get() - before) / 100;
            assert!(weighed <= 4, "{weighed} connections are weighed to close one beside {others}");
        }
    }
}
