//! The queue of messages for a slow peer. They are not encoded yet, so that the policy can still drop them.

use crate::config::SlowConsumer;
use crate::message::Encoded;
use crate::sized::map_memory;
use std::collections::{HashMap, VecDeque};
use tautline_ws::Kind;

/// Bytes that a queued message counts beside its payload.
const ITEM_COST: usize = 64;
/// Gaps that a queue may always have.
const LEAST_GAPS: usize = 32;

/// A queued message, or a piece of one.
pub enum Item {
    /// A message to this connection alone.
    Message {
        /// Text or binary.
        kind: Kind,
        /// Its bytes.
        payload: Box<[u8]>,
        /// Whether it may be compressed.
        compress: bool,
        /// A later message with this key replaces it, under [`KeepLatest`](SlowConsumer::KeepLatest).
        key: Option<u64>,
    },
    /// A published message.
    Shared(Encoded),
    /// A piece of a streamed message.
    Fragment {
        /// Text or binary.
        kind: Kind,
        /// Its bytes.
        payload: Box<[u8]>,
        /// Whether it ends its message.
        last: bool,
    },
}

impl Item {
    /// Its part of the bytes that a policy limits: those of its payload, and a fixed cost.
    #[must_use]
    pub fn cost(&self) -> usize {
        ITEM_COST
            + match self {
                Self::Message { payload, .. } | Self::Fragment { payload, .. } => payload.len(),
                Self::Shared(message) => message.message.payload().len(),
            }
    }

    /// The bytes of it that other queues may have too.
    fn shared(&self) -> usize {
        match self {
            Self::Shared(publication) => publication.message.payload().len(),
            Self::Message { .. } | Self::Fragment { .. } => 0,
        }
    }

    fn key(&self) -> Option<u64> {
        #[cfg(test)]
        tests::LOOKS.with(|looks| looks.set(looks.get() + 1));
        match self {
            Self::Message { key, .. } => *key,
            Self::Shared(message) => message.key,
            Self::Fragment { .. } => None,
        }
    }

    const fn is_fragment(&self) -> bool {
        matches!(self, Self::Fragment { .. })
    }
}

/// The means that a later message has to push an item out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drops {
    /// There is none.
    Never,
    /// It is pushed out if it is the oldest.
    Oldest,
    /// It is also replaced by an item with its key.
    Key,
}

/// The result of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The item waits.
    Waits,
    /// The item waits, and replaced an older one with the same key.
    Replaces,
    /// The item was dropped.
    Dropped,
    /// The item was dropped, and the policy gives up on the peer.
    Overrun,
}

/// A first-in, first-out queue, bounded by the policy. It holds no memory while it is empty.
#[derive(Default)]
pub struct Queue(Option<Box<Waiting>>);

/// An item that waits.
struct Waits {
    item: Item,
    /// Whether a later message may push it out. Its own policy decides, since messages may differ in theirs.
    may_drop: bool,
    /// Whether `keys` has its place.
    indexed: bool,
}

/// INVARIANT: the first item is not a gap. `keys` has the place of each item with a key that waits under
/// [`KeepLatest`](SlowConsumer::KeepLatest).
#[derive(Default)]
struct Waiting {
    /// Items in order. A gap is where an item was dropped.
    items: VecDeque<Option<Waits>>,
    /// Number of the first item, counted from the queue's begin.
    first: u64,
    gaps: usize,
    /// All items before this number are gaps or may not be dropped.
    oldest: u64,
    bytes: usize,
    /// The part of `bytes` that other queues may have too.
    shared: usize,
    /// Numbers of the items with keys.
    keys: HashMap<u64, u64>,
}

impl Queue {
    /// Appends `item`, or applies `policy` if the limit is exceeded. Adds the number of dropped items to `dropped`.
    pub fn push(&mut self, item: Item, policy: SlowConsumer, dropped: &mut u64) -> Pushed {
        self.0.get_or_insert_default().push(item, policy, dropped)
    }

    /// Takes the oldest item.
    pub fn pop(&mut self) -> Option<Item> {
        let waiting = self.0.as_mut()?;
        let item = waiting.pop();
        if item.is_none() {
            self.clear();
        }
        item
    }

    /// The items in order, with the means that a later message has to push each out.
    pub fn items(&self) -> impl Iterator<Item = (&Item, Drops)> {
        self.0.iter().flat_map(|waiting| &waiting.items).flatten().map(|waits| {
            let drops = match waits {
                Waits { indexed: true, .. } => Drops::Key,
                Waits { may_drop: true, .. } => Drops::Oldest,
                _ => Drops::Never,
            };
            (&waits.item, drops)
        })
    }

    /// Appends an item of another queue.
    pub fn restore(&mut self, item: Item, drops: Drops) {
        let policy = match drops {
            Drops::Never => SlowConsumer::Disconnect(usize::MAX),
            Drops::Oldest => SlowConsumer::DropOldest(usize::MAX),
            Drops::Key => SlowConsumer::KeepLatest(usize::MAX),
        };
        self.push(item, policy, &mut 0);
    }

    /// Drops everything and gives the memory back.
    pub fn clear(&mut self) {
        self.0 = None;
    }

    /// Whether no item waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|waiting| waiting.items.is_empty())
    }

    /// The number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |waiting| waiting.items.len() - waiting.gaps)
    }

    /// Whether it has memory.
    #[inline]
    #[must_use]
    pub const fn has_memory(&self) -> bool {
        self.0.is_some()
    }

    /// Its memory, in bytes, without messages that other queues may have too.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.0.as_ref().map_or(0, |waiting| waiting.memory())
    }

    /// The part of [`bytes`](Self::bytes) that other queues may have too.
    #[must_use]
    pub const fn shared(&self) -> usize {
        match &self.0 {
            Some(waiting) => waiting.shared,
            None => 0,
        }
    }

    /// The payload bytes of all items, and a fixed cost for each.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        match &self.0 {
            Some(waiting) => waiting.bytes,
            None => 0,
        }
    }
}

impl Waiting {
    fn memory(&self) -> usize {
        let costs = (self.items.len() - self.gaps) * ITEM_COST;
        let places = self.items.capacity() * size_of::<Option<Waits>>() + map_memory(&self.keys);
        size_of::<Self>() + places + self.bytes.saturating_sub(self.shared + costs)
    }

    fn push(&mut self, item: Item, policy: SlowConsumer, dropped: &mut u64) -> Pushed {
        let limit = policy.limit();
        let cost = item.cost();
        let mut pushed = Pushed::Waits;
        let key = item.key().filter(|_| matches!(policy, SlowConsumer::KeepLatest(_)));
        if let Some(number) = key.and_then(|key| self.keys.get(&key).copied()) {
            *dropped += 1;
            let bytes = self.bytes;
            if let Some(Some(old)) = self.at(number)
                && let others = bytes - old.item.cost()
                && others.saturating_add(cost) <= limit
            {
                let shared = item.shared();
                let before = std::mem::replace(&mut old.item, item).shared();
                self.bytes = others + cost;
                self.shared = self.shared - before + shared;
                return Pushed::Replaces;
            }
            self.drop_item(number);
            // The new item takes the older one's place in the count of messages taken.
            pushed = Pushed::Replaces;
        }
        // A message of any size may wait alone. Otherwise the limit would make large messages impossible to send.
        let too_much = |queue: &Self| !queue.items.is_empty() && queue.bytes.saturating_add(cost) > limit;
        if !item.is_fragment() && too_much(self) {
            match policy {
                SlowConsumer::Disconnect(_) => return Pushed::Overrun,
                SlowConsumer::DropNewest(_) => {}
                SlowConsumer::DropOldest(_) | SlowConsumer::KeepLatest(_) => {
                    self.drop_oldest(limit.saturating_sub(cost), dropped);
                }
            }
            if too_much(self) {
                *dropped += 1;
                return Pushed::Dropped;
            }
        }
        // A lack of memory for a place in the queue panics here, while the queue is whole, instead of aborting the process.
        assert!(self.items.try_reserve(1).is_ok(), "no memory for {} messages that wait", self.items.len());
        assert!(key.is_none() || self.keys.try_reserve(1).is_ok(), "no memory for {} keys", self.keys.len());
        self.bytes += cost;
        self.shared += item.shared();
        if let Some(key) = key {
            self.keys.insert(key, self.end());
        }
        let drops_old = matches!(policy, SlowConsumer::DropOldest(_) | SlowConsumer::KeepLatest(_));
        let may_drop = drops_old && !item.is_fragment();
        self.items.push_back(Some(Waits { item, may_drop, indexed: key.is_some() }));
        pushed
    }

    fn pop(&mut self) -> Option<Item> {
        let Waits { item, .. } = self.items.pop_front().flatten()?;
        self.forget(&item, self.first);
        self.first += 1;
        self.skip_gaps();
        Some(item)
    }

    /// The number of the next item.
    fn end(&self) -> u64 {
        self.first + self.items.len() as u64
    }

    fn at(&mut self, number: u64) -> Option<&mut Option<Waits>> {
        self.items.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn drop_oldest(&mut self, keep: usize, dropped: &mut u64) {
        self.oldest = self.oldest.max(self.first);
        while self.bytes > keep && self.oldest < self.end() {
            let number = self.oldest;
            self.oldest += 1;
            if self.at(number).and_then(|item| item.as_ref()).is_some_and(|waits| waits.may_drop) {
                self.drop_item(number);
                *dropped += 1;
            }
        }
    }

    /// Leaves a gap where an item was.
    fn drop_item(&mut self, number: u64) {
        let Some(Waits { item, .. }) = self.at(number).and_then(Option::take) else { return };
        self.forget(&item, number);
        self.gaps += 1;
        self.skip_gaps();
        if self.gaps > self.items.len() / 2 + LEAST_GAPS {
            self.close_gaps();
        }
    }

    /// An item leaves the queue.
    fn forget(&mut self, item: &Item, number: u64) {
        self.bytes -= item.cost();
        self.shared -= item.shared();
        if let Some(key) = item.key()
            && self.keys.get(&key) == Some(&number)
        {
            self.keys.remove(&key);
        }
    }

    fn skip_gaps(&mut self) {
        while let Some(None) = self.items.front() {
            self.items.pop_front();
            self.first += 1;
            self.gaps -= 1;
        }
    }

    /// Moves the items together. Only after as many drops as items are moved.
    fn close_gaps(&mut self) {
        let gone = |number: u64, queue: &Self| {
            queue.items.iter().zip(queue.first..number).filter(|(item, _)| item.is_none()).count() as u64
        };
        self.oldest -= gone(self.oldest, self);
        self.items.retain(Option::is_some);
        self.gaps = 0;
        for (item, number) in self.items.iter().zip(self.first..) {
            if let Some(key) = item.as_ref().filter(|waits| waits.indexed).and_then(|waits| waits.item.key())
                && let Some(known) = self.keys.get_mut(&key)
            {
                *known = number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Item, Pushed, Queue};
    use crate::config::SlowConsumer;
    use std::cell::Cell;
    use std::collections::VecDeque;
    use tautline_ws::Kind;

    thread_local! {
        /// Calls of [`Item::key`].
        pub(super) static LOOKS: Cell<u64> = const { Cell::new(0) };
    }

    fn message(key: Option<u64>, len: usize, mark: u8) -> Item {
        Item::Message { kind: Kind::Binary, payload: vec![mark; len].into(), compress: false, key }
    }

    fn fragment(len: usize, mark: u8) -> Item {
        Item::Fragment { kind: Kind::Binary, payload: vec![mark; len].into(), last: false }
    }

    fn content(item: &Item) -> (Option<u64>, Vec<u8>) {
        match item {
            Item::Message { payload, key, .. } => (*key, payload.to_vec()),
            Item::Fragment { payload, .. } => (None, payload.to_vec()),
            Item::Shared(message) => (message.key, message.message.payload().to_vec()),
        }
    }

    /// The policy without an index: every search walks through the whole queue.
    #[derive(Default)]
    struct Oracle(VecDeque<Item>);

    impl Oracle {
        fn bytes(&self) -> usize {
            self.0.iter().map(Item::cost).sum()
        }

        fn push(&mut self, item: Item, policy: SlowConsumer, dropped: &mut u64) -> Pushed {
            let (limit, cost) = (policy.limit(), item.cost());
            let mut pushed = Pushed::Waits;
            let keeps = matches!(policy, SlowConsumer::KeepLatest(_));
            let same = |old: &Item| item.key().is_some() && old.key() == item.key();
            if let Some(at) = self.0.iter().position(same).filter(|_| keeps) {
                *dropped += 1;
                if self.bytes() - self.0[at].cost() + cost <= limit {
                    self.0[at] = item;
                    return Pushed::Replaces;
                }
                self.0.remove(at);
                pushed = Pushed::Replaces;
            }
            if !item.is_fragment() {
                while !self.0.is_empty() && self.bytes() + cost > limit {
                    let Some(at) = self.0.iter().position(|old| !old.is_fragment()) else { break };
                    self.0.remove(at);
                    *dropped += 1;
                }
                if !self.0.is_empty() && self.bytes() + cost > limit {
                    *dropped += 1;
                    return Pushed::Dropped;
                }
            }
            self.0.push_back(item);
            pushed
        }
    }

    #[test]
    fn drops_and_replaces_as_a_search_through_the_queue_would() {
        let mut seed = 3_u64;
        let mut random = |bound: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % bound
        };
        for round in 0..60_u64 {
            let limit = usize::try_from(300 + random(20_000)).unwrap();
            let policy = if round % 4 == 0 { SlowConsumer::DropOldest(limit) } else { SlowConsumer::KeepLatest(limit) };
            let (mut queue, mut oracle) = (Queue::default(), Oracle::default());
            let (mut dropped, mut expected) = (0, 0);
            for step in 0..2_000_u64 {
                let mark = step.to_le_bytes()[0];
                let most = if random(20) == 0 { 2_000 } else { 100 };
                let len = usize::try_from(random(most)).unwrap();
                let item = || match step % 7 {
                    0 if round % 3 == 0 => fragment(len, mark),
                    1 => message(None, len, mark),
                    _ => message(Some(step * 7 % (1 + round * 3)), len, mark),
                };
                if random(4) == 0 {
                    assert_eq!(queue.pop().as_ref().map(content), oracle.0.pop_front().as_ref().map(content));
                } else {
                    assert_eq!(
                        queue.push(item(), policy, &mut dropped),
                        oracle.push(item(), policy, &mut expected),
                        "{round} {step}"
                    );
                }
                assert_eq!((queue.len(), queue.bytes(), dropped), (oracle.0.len(), oracle.bytes(), expected));
                assert_eq!(queue.is_empty(), oracle.0.is_empty());
                if let Some(waiting) = &queue.0 {
                    assert!(waiting.items.len() <= 2 * oracle.0.len() + 4 * super::LEAST_GAPS, "gaps are bounded");
                    assert!(waiting.keys.len() <= oracle.0.len(), "keys are bounded");
                }
            }
            while let Some(item) = queue.pop() {
                assert_eq!(Some(content(&item)), oracle.0.pop_front().as_ref().map(content));
            }
            assert!(oracle.0.is_empty() && queue.0.is_none());
        }
    }

    #[test]
    fn a_message_pushes_out_only_those_whose_own_policy_allows_it() {
        let (mut queue, mut dropped) = (Queue::default(), 0);
        let cost = message(None, 36, 0).cost();
        let (all, latest, oldest) = (
            SlowConsumer::Disconnect(100 * cost),
            SlowConsumer::KeepLatest(3 * cost),
            SlowConsumer::DropOldest(3 * cost),
        );
        assert_eq!(queue.push(message(Some(1), 36, b'o'), all, &mut dropped), Pushed::Waits);
        assert_eq!(queue.push(message(Some(1), 36, b'p'), latest, &mut dropped), Pushed::Waits);
        assert_eq!(queue.push(message(Some(2), 36, b'q'), oldest, &mut dropped), Pushed::Waits);
        // The order with the same key stays, and so does the message of a policy without keys.
        assert_eq!(queue.push(message(Some(1), 36, b'P'), latest, &mut dropped), Pushed::Replaces);
        assert_eq!(queue.push(message(Some(2), 36, b'r'), latest, &mut dropped), Pushed::Waits);
        assert_eq!((queue.len(), dropped), (3, 2), "the oldest that may be dropped made room");
        // The limits of others do not matter to an order.
        assert_eq!(queue.push(message(None, 36, b'O'), all, &mut dropped), Pushed::Waits);
        assert_eq!(queue.push(message(None, 36, b'O'), all, &mut dropped), Pushed::Waits);
        let newest = SlowConsumer::DropNewest(3 * cost);
        assert_eq!(queue.push(message(None, 36, b'n'), newest, &mut dropped), Pushed::Dropped);
        let marks: Vec<u8> = std::iter::from_fn(|| queue.pop()).map(|item| content(&item).1[0]).collect();
        assert_eq!(marks, *b"oqrOO");
        assert_eq!(dropped, 3);
    }

    /// Items that are looked at for a keyed message while `waiting` others wait.
    fn looks_of_a_push(waiting: u64, policy: SlowConsumer) -> u64 {
        let (mut queue, mut dropped) = (Queue::default(), 0);
        for key in 0..waiting {
            queue.push(message(Some(key), 8, 0), policy, &mut dropped);
        }
        assert_eq!(queue.len() as u64, waiting);
        let before = LOOKS.get();
        for step in 0..1_000 {
            let len = if step % 2 == 0 { 8 } else { 9 };
            queue.push(message(Some((step * 7_919) % (2 * waiting)), len, 1), policy, &mut dropped);
        }
        (LOOKS.get() - before) / 1_000
    }

    #[test]
    fn a_keyed_message_looks_at_few_items_at_n_and_at_10_n() {
        for waiting in [1_000, 10_000] {
            for limit in [usize::MAX, usize::try_from(waiting).unwrap() * (super::ITEM_COST + 8)] {
                let looks = looks_of_a_push(waiting, SlowConsumer::KeepLatest(limit));
                assert!(looks <= 4, "{waiting} within {limit}: {looks}");
            }
        }
    }
}
