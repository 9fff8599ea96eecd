//! The memory of a shard by its use, in bytes: numbers of the loop, which it reports at most once a turn.
//!
//! A connection that holds nothing beside its own state costs a few comparisons after each event. Others have an entry in a
//! table, so that idle connections stay small.

use crate::counts::counters::LiveCounters;
use crate::sized::table;
use crate::turn::timer::Tick;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use tautline_buf::Pool;
use tautline_io::Token;

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
    /// An HTTP request that waits for the application's answer, or gets it piece by piece.
    pub(crate) requests: usize,
}

/// Memory that a connection keeps until the application or the peer gives it up. Only calls that change it are accounted, and
/// no message is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Its lists of topics.
    pub(crate) topics: usize,
    /// Its timers.
    pub(crate) timers: usize,
    /// The application's memory that goes with it.
    pub(crate) application: usize,
    /// Its parts in what is counted for all: in the tables of topics, and in the application's.
    pub(crate) parts: usize,
}

impl Kept {
    /// The memory that may come free with this connection.
    pub(crate) const fn weight(&self) -> usize {
        self.topics + self.timers + self.application + self.parts
    }

    const fn replace(&mut self, before: &Self, after: &Self) {
        self.topics = self.topics - before.topics + after.topics;
        self.timers = self.timers - before.timers + after.timers;
        self.application = self.application - before.application + after.application;
        self.parts = self.parts - before.parts + after.parts;
    }
}

/// Memory that belongs to no connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Common {
    /// The tables of topics.
    pub(crate) topics: usize,
    /// The wheel of timers.
    pub(crate) timers: usize,
    /// The tables of connections without a WebSocket, by source.
    pub(crate) sources: usize,
    /// The application's.
    pub(crate) application: usize,
}

impl Held {
    /// The memory that may come free with this connection.
    pub(crate) fn weight(&self) -> usize {
        #[cfg(test)]
        tests::WEIGHED.set(tests::WEIGHED.get() + 1);
        self.heads + self.partial + self.deflate + self.requests + self.outgoing()
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
        self.requests = self.requests - before.requests + after.requests;
    }
}

/// The memory of a shard.
#[derive(Default)]
pub(crate) struct Account {
    /// Memory of the connections' own state.
    connections: usize,
    sums: Held,
    kept: Kept,
    /// The connections that hold more, by their slot.
    holders: HashMap<Token, Held>,
    /// The connections that may be closed for want of memory, the heaviest first: a crowd of others costs nothing to pass over.
    /// Their weight is all that they hold and keep. The token makes the order the same in every run.
    heavy: BTreeSet<(Reverse<usize>, Token)>,
    /// The application's memory of connections, to be noted at the end of the turn.
    notes: Vec<(Token, (usize, usize))>,
    /// The parts of the pool and of the application that were reported.
    in_classes: usize,
    application: usize,
    changed: bool,
    /// Whether the shard has grown since the last look at the budget.
    pub(crate) grown: bool,
    /// Whether the budget is to be looked at again.
    pub(crate) due: bool,
    /// Whether the budget is exceeded and no connection holds much of it, so that none may keep more.
    pub(crate) refuses_more: bool,
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
        self.connections += bytes;
        self.changed = true;
    }

    pub(crate) const fn remove_connection(&mut self, bytes: usize) {
        self.connections -= bytes;
        self.changed = true;
    }

    /// Notes what a connection holds now, which keeps memory of the weight `kept`. Returns whether it holds anything.
    pub(crate) fn set(&mut self, token: Token, held: Held, kept: usize) -> bool {
        let is_holder = held != Held::default();
        let before = if is_holder { self.holders.insert(token, held) } else { self.holders.remove(&token) };
        let before = before.unwrap_or_default();
        self.changed |= before != held;
        self.sums.replace(&before, &held);
        self.rank(token, before.weight() + kept, held.weight() + kept);
        if self.holders.is_empty() {
            self.holders.shrink_to(STEP / size_of::<Held>());
        }
        is_holder
    }

    /// Notes that a connection keeps more or less.
    pub(crate) fn keep(&mut self, token: Token, before: &Kept, after: &Kept) {
        if before != after {
            self.changed = true;
            self.kept.replace(before, after);
            let held = self.holders.get(&token).map_or(0, Held::weight);
            self.rank(token, held + before.weight(), held + after.weight());
        }
    }

    /// Notes at the end of the turn what the application has for a connection.
    pub(crate) fn note(&mut self, token: Token, application: (usize, usize)) {
        self.changed = true;
        self.notes.push((token, application));
    }

    /// The notes of this turn.
    pub(crate) fn take_notes(&mut self) -> Vec<(Token, (usize, usize))> {
        std::mem::take(&mut self.notes)
    }

    fn rank(&mut self, token: Token, was: usize, is: usize) {
        if was != is {
            if was >= HEAVY {
                self.heavy.remove(&(Reverse(was), token));
            }
            if is >= HEAVY {
                self.heavy.insert((Reverse(is), token));
            }
        }
    }

    /// Whether there is something to report, or the budget is to be looked at.
    #[inline]
    pub(crate) const fn is_due(&self, pool: &Pool, application: usize) -> bool {
        self.changed | self.due | (pool.in_classes() != self.in_classes) | (application != self.application)
    }

    /// Whether a connection holds or keeps something else than was reported.
    #[inline]
    pub(crate) const fn has_changed(&self) -> bool {
        self.changed
    }

    /// Reports the numbers. The budget is due if the shard has grown since the last [look](Self::looked).
    pub(crate) fn report(&mut self, pool: &Pool, common: &Common, counters: &LiveCounters) {
        self.changed = false;
        (self.in_classes, self.application) = (pool.in_classes(), common.application);
        let Self { connections, sums, kept, .. } = *self;
        // An empty one keeps a little room, so that a lone holder that comes and goes needs no allocation each time.
        let is_used = !self.holders.is_empty();
        let tables = if is_used { table(self.holders.capacity(), size_of::<(Token, Held)>()) } else { 0 };
        let numbers = [
            (&counters.memory_connections, connections + tables),
            (&counters.memory_heads, sums.heads),
            (&counters.memory_partial, sums.partial),
            (&counters.memory_sending, sums.sending),
            (&counters.memory_queued, sums.queued),
            (&counters.memory_deflate, sums.deflate),
            (&counters.memory_requests, sums.requests),
            (&counters.memory_topics, common.topics + kept.topics),
            (&counters.memory_timers, common.timers + kept.timers),
            (&counters.memory_sources, common.sources),
            // Other threads may change the application's own number, so readers add it.
            (&counters.memory_application, kept.application),
            (&counters.memory_pooled, pool.memory()),
        ];
        self.total = common.application;
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
        self.sums.weight() + self.kept.weight()
    }

    /// The memory that a connection holds.
    pub(crate) fn held(&self, token: Token) -> Held {
        self.holders.get(&token).copied().unwrap_or_default()
    }

    /// The budget was looked at.
    pub(crate) const fn looked(&mut self) {
        self.least = self.total;
        self.grown = false;
    }

    /// The connections to close, the heaviest first: as many as weigh `enough`, at most `most`. Takes time in proportion to
    /// their number, however many others hold something.
    pub(crate) fn to_close(&self, enough: usize, most: usize) -> Vec<Token> {
        let mut sum = 0_usize;
        let needed = self.heavy.iter().take(most).take_while(|(Reverse(weight), _)| {
            let more = sum < enough;
            sum = sum.saturating_add(*weight);
            more
        });
        needed.map(|(_, token)| *token).collect()
    }

    /// The heaviest connections, at most `most`, the heaviest first. Walks through all that hold anything, and through those
    /// that keep much: `kept` tells what a connection keeps.
    pub(crate) fn heaviest(&self, most: usize, kept: impl Fn(Token) -> Kept) -> Vec<(Token, Held, Kept)> {
        let holders = self.holders.iter().map(|(token, held)| (*token, *held));
        let keepers = self.heavy.iter().filter(|(_, token)| !self.holders.contains_key(token));
        let all = holders.chain(keepers.map(|(_, token)| (*token, Held::default())));
        let mut heavy: Vec<_> = all.map(|(token, held)| (token, held, kept(token))).collect();
        let rank = |(token, held, kept): &(Token, Held, Kept)| (Reverse(held.weight() + kept.weight()), *token);
        if heavy.len() > most {
            heavy.select_nth_unstable_by_key(most, rank);
            heavy.truncate(most);
        }
        heavy.sort_unstable_by_key(rank);
        heavy
    }
}

#[cfg(test)]
mod tests {
    use super::{Account, Common, HEAVY, Held, Kept, STEP};
    use crate::counts::counters::LiveCounters;
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
        assert!(account.set(
            token(1),
            Held { heads: 1, partial: 20, sending: 300, queued: 4000, deflate: 50_000, shared: 9, requests: 0 },
            0
        ));
        assert!(account.set(token(2), partial(5), 0));
        pool.give(Buf::with_capacity(4096));
        account.report(&pool, &Common::default(), &counters);
        let now = counters.snapshot();
        assert_eq!((now.memory_heads, now.memory_partial, now.memory_sending), (1, 25, 300));
        assert_eq!((now.memory_queued, now.memory_deflate, now.memory_pooled), (4000, 50_000, 4096));
        assert_eq!(
            now.memory(),
            now.memory_connections + 1 + 25 + 300 + 4000 + 50_000 + 4096,
            "shared messages count elsewhere"
        );
        assert!(!account.set(token(1), Held::default(), 0));
        account.remove_connection(700);
        pool.trim();
        account.report(&pool, &Common::default(), &counters);
        let now = counters.snapshot();
        assert_eq!(now.memory() - now.memory_connections, 5);
    }

    #[test]
    fn growth_is_reported_in_steps_from_the_lowest() {
        let (mut account, counters, pool) = (Account::default(), LiveCounters::default(), Pool::new(0));
        let mut kept = Kept::default();
        let mut at = |bytes: usize, looks: bool| {
            account.keep(token(1), &kept, &Kept { timers: bytes, ..Kept::default() });
            kept.timers = bytes;
            account.report(&pool, &Common::default(), &counters);
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
            account.set(token(index), partial(index as usize * 1_000), 0);
        }
        let indexes = |found: Vec<Token>| -> Vec<u32> { found.iter().map(|token| token.index).collect() };
        let heaviest = |account: &Account, most| -> Vec<Token> {
            account.heaviest(most, |_| Kept::default()).iter().map(|(token, ..)| *token).collect()
        };
        assert_eq!(indexes(account.to_close(99_000 + 1, 64)), [99, 98]);
        assert_eq!(indexes(account.to_close(1, 64)), [99]);
        assert!(account.to_close(0, 3).is_empty());
        assert_eq!(indexes(account.to_close(usize::MAX, 3)), [99, 98, 97]);
        assert_eq!(indexes(heaviest(&account, 3)), [99, 98, 97]);
        // Those below 8 KiB stay, and are found by an operator.
        assert_eq!(account.to_close(usize::MAX, 100).len(), 91);
        assert_eq!(heaviest(&account, 100).len(), 99);
        account.set(token(99), partial(50_500), 0);
        account.set(token(98), partial(HEAVY - 1), 0);
        account.set(token(97), Held::default(), 0);
        assert_eq!(indexes(account.to_close(usize::MAX, 2)), [96, 95]);
        assert_eq!(indexes(account.to_close(usize::MAX, 100))[45..49], [51, 99, 50, 49]);
    }

    #[test]
    fn a_connection_that_keeps_much_is_as_heavy_as_one_that_holds_it() {
        let mut account = Account::default();
        let kept = |bytes| Kept { topics: bytes / 2, parts: bytes - bytes / 2, ..Kept::default() };
        account.keep(token(1), &Kept::default(), &kept(20_000));
        account.keep(token(2), &Kept::default(), &kept(HEAVY - 1));
        account.set(token(3), partial(15_000), 0);
        assert_eq!(account.to_close(usize::MAX, 10), [token(1), token(3)]);
        assert_eq!(account.weight(), 20_000 + HEAVY - 1 + 15_000);
        // Both parts of a weight add up.
        account.set(token(2), partial(14_000), HEAVY - 1);
        assert_eq!(account.to_close(usize::MAX, 10), [token(2), token(1), token(3)]);
        account.keep(token(2), &kept(HEAVY - 1), &kept(0));
        assert_eq!(account.to_close(usize::MAX, 10), [token(1), token(3), token(2)]);
        let found = account.heaviest(10, |of| if of == token(1) { kept(20_000) } else { Kept::default() });
        assert_eq!(found.iter().map(|(token, ..)| token.index).collect::<Vec<_>>(), [1, 3, 2]);
        account.keep(token(1), &kept(20_000), &Kept::default());
        account.set(token(2), Held::default(), 0);
        account.set(token(3), Held::default(), 0);
        assert!(account.heavy.is_empty() && account.holders.is_empty() && account.weight() == 0);
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
                account.set(token(index), partial(HEAVY + index as usize), 0);
            }
            let before = WEIGHED.get();
            for round in 0..100 {
                account.set(token(others + round), partial(1 << 20), 0);
                let [heaviest] = account.to_close(1, 64)[..] else { panic!("one suffices") };
                assert_eq!(heaviest, token(others + round));
                account.set(heaviest, Held::default(), 0);
            }
            let weighed = (WEIGHED.get() - before) / 100;
            assert!(weighed <= 4, "{weighed} connections are weighed to close one beside {others}");
        }
    }
}
