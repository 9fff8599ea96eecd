use std::collections::HashMap;
use std::hash::Hash;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The latest value of each key, for a consumer that is slower than the feed. At most `keys` keys wait.
///
/// The handler [puts](Latest::put) values, and a consumer on another thread [takes](LatestReceiver::next) all that wait at once.
/// A value replaces one with its key that still waits. If another key does not fit, the key that has waited longest is
/// dropped. Both are counted. The lock between them is held for one value or one exchange of two vectors.
///
/// ```
/// use tautline_feed::latest;
///
/// let (prices, mut consumer) = latest(1000);
/// let feed = std::thread::spawn(move || {
///     for price in 1..=100 {
///         prices.put("EURUSD", price);
///         prices.put("USDJPY", price);
///     }
/// });
/// let mut last = 0;
/// while let Some(batch) = consumer.next() {
///     for update in batch {
///         println!("{} {}, in place of {} older ones", update.key, update.value, update.conflated);
///         last = update.value;
///     }
/// }
/// feed.join().unwrap();
/// assert_eq!(last, 100);
/// assert_eq!(consumer.conflation().received, 200);
/// ```
pub fn latest<K: Hash + Eq + Clone, V>(keys: usize) -> (Latest<K, V>, LatestReceiver<K, V>) {
    let waiting = Waiting {
        updates: Vec::new(),
        places: HashMap::new(),
        begin: 0,
        keys: keys.max(1),
        senders: 1,
        sleeps: false,
        counts: Conflation::default(),
    };
    let shared = Arc::new(Shared { waiting: Mutex::new(waiting), news: Condvar::new() });
    (Latest { shared: shared.clone() }, LatestReceiver { shared, batch: Vec::new() })
}

/// The end of [`latest`] that a handler holds. Clones send to the same consumer.
#[derive(Debug)]
pub struct Latest<K, V> {
    shared: Arc<Shared<K, V>>,
}

/// The end of [`latest`] that the consumer holds.
#[derive(Debug)]
pub struct LatestReceiver<K, V> {
    shared: Arc<Shared<K, V>>,
    /// The memory of the last batch, for the next one.
    batch: Vec<Option<Update<K, V>>>,
}

/// The latest value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Update<K, V> {
    /// The key.
    pub key: K,
    /// Its latest value.
    pub value: V,
    /// The number of older values of the key, since the last batch, that this one replaced.
    pub conflated: u64,
}

/// Numbers of values that went through [`latest`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conflation {
    /// Values that were put.
    pub received: u64,
    /// Values that a later one of their key replaced.
    pub conflated: u64,
    /// Values that were dropped since too many keys waited.
    pub dropped: u64,
    /// Values that the consumer took.
    pub taken: u64,
}

#[derive(Debug)]
struct Shared<K, V> {
    waiting: Mutex<Waiting<K, V>>,
    news: Condvar,
}

#[derive(Debug)]
struct Waiting<K, V> {
    /// In the order in which their keys came. `None` if it was dropped.
    updates: Vec<Option<Update<K, V>>>,
    /// The places of keys in `updates`.
    places: HashMap<K, usize>,
    /// The first place that may hold an update.
    begin: usize,
    /// Most keys.
    keys: usize,
    senders: usize,
    /// Whether the consumer waits for news.
    sleeps: bool,
    counts: Conflation,
}

impl<K, V> Shared<K, V> {
    fn lock(&self) -> MutexGuard<'_, Waiting<K, V>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq + Clone, V> Waiting<K, V> {
    fn put(&mut self, key: K, value: V) {
        self.counts.received += 1;
        if let Some(&place) = self.places.get(&key)
            && let Some(Some(update)) = self.updates.get_mut(place)
        {
            update.value = value;
            update.conflated += 1;
            self.counts.conflated += 1;
            return;
        }
        if self.places.len() == self.keys {
            self.drop_oldest();
        }
        self.places.insert(key.clone(), self.updates.len());
        self.updates.push(Some(Update { key, value, conflated: 0 }));
    }

    /// Drops the key that has waited longest. Places of dropped keys are closed once they are half of all.
    fn drop_oldest(&mut self) {
        while let Some(update) = self.updates.get_mut(self.begin) {
            self.begin += 1;
            if let Some(update) = update.take() {
                self.places.remove(&update.key);
                self.counts.dropped += 1;
                break;
            }
        }
        if self.begin > self.updates.len() / 2 {
            self.updates.drain(..self.begin);
            for place in self.places.values_mut() {
                *place -= self.begin;
            }
            self.begin = 0;
        }
    }
}

impl<K: Hash + Eq + Clone, V> Latest<K, V> {
    /// Puts a value, in place of one with its key that still waits.
    pub fn put(&self, key: K, value: V) {
        let mut waiting = self.shared.lock();
        waiting.put(key, value);
        let sleeps = mem::take(&mut waiting.sleeps);
        drop(waiting);
        if sleeps {
            self.shared.news.notify_one();
        }
    }

    /// The counts so far.
    #[must_use]
    pub fn conflation(&self) -> Conflation {
        self.shared.lock().counts
    }
}

impl<K: Hash + Eq + Clone, V> LatestReceiver<K, V> {
    /// Waits for values, and takes all: the latest of each key, in the order in which the keys came. `None` if no sender is left.
    #[expect(
        clippy::should_implement_trait,
        reason = "a batch borrows the receiver's memory, which no iterator's item may"
    )]
    pub fn next(&mut self) -> Option<impl Iterator<Item = Update<K, V>> + '_> {
        self.take_until(None).map(|drain| drain.flatten())
    }

    /// Waits at most this long for values, and takes all, which may be none. `None` if no sender is left.
    pub fn next_within(&mut self, longest: Duration) -> Option<impl Iterator<Item = Update<K, V>> + '_> {
        self.take_until(Instant::now().checked_add(longest)).map(|drain| drain.flatten())
    }

    /// The counts so far.
    #[must_use]
    pub fn conflation(&self) -> Conflation {
        self.shared.lock().counts
    }

    fn take_until(&mut self, end: Option<Instant>) -> Option<std::vec::Drain<'_, Option<Update<K, V>>>> {
        // A batch that was not used up is gone.
        self.batch.clear();
        let mut waiting = self.shared.lock();
        while waiting.places.is_empty() {
            if waiting.senders == 0 {
                return None;
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            waiting.sleeps = true;
            waiting = match left {
                Some(left) => self.shared.news.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.shared.news.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            };
        }
        waiting.sleeps = false;
        waiting.counts.taken += waiting.places.len() as u64;
        waiting.begin = 0;
        waiting.places.clear();
        mem::swap(&mut waiting.updates, &mut self.batch);
        drop(waiting);
        Some(self.batch.drain(..))
    }
}

impl<K, V> Clone for Latest<K, V> {
    fn clone(&self) -> Self {
        self.shared.lock().senders += 1;
        Self { shared: self.shared.clone() }
    }
}

impl<K, V> Drop for Latest<K, V> {
    fn drop(&mut self) {
        let mut waiting = self.shared.lock();
        waiting.senders -= 1;
        let is_last = waiting.senders == 0;
        drop(waiting);
        if is_last {
            self.shared.news.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Conflation, Latest, LatestReceiver, latest};
    use std::collections::HashMap;
    use std::time::Duration;

    fn batch(receiver: &mut LatestReceiver<u64, u64>) -> Vec<(u64, u64, u64)> {
        let taken = receiver.next_within(Duration::ZERO);
        taken.map_or_else(Vec::new, |taken| taken.map(|one| (one.key, one.value, one.conflated)).collect())
    }

    #[test]
    fn a_batch_has_the_latest_of_each_key_in_the_order_of_keys() {
        let (sender, mut receiver) = latest(10);
        for (key, value) in [(3, 1), (1, 1), (3, 2), (2, 1), (3, 3)] {
            sender.put(key, value);
        }
        assert_eq!(batch(&mut receiver), [(3, 3, 2), (1, 1, 0), (2, 1, 0)]);
        assert_eq!(batch(&mut receiver), []);
        sender.put(3, 4);
        assert_eq!(batch(&mut receiver), [(3, 4, 0)]);
        let counts = Conflation { received: 6, conflated: 2, dropped: 0, taken: 4 };
        assert_eq!((sender.conflation(), receiver.conflation()), (counts, counts));
        drop(sender);
        assert!(receiver.next().is_none());
    }

    #[test]
    fn keys_are_bounded_and_the_oldest_gives_way() {
        let (sender, mut receiver) = latest(3);
        for round in 0..1_000_u64 {
            sender.put(round % 7, round);
            let waiting = sender.shared.lock();
            assert!(waiting.places.len() <= 3 && waiting.updates.len() <= 8, "{}", waiting.updates.len());
        }
        assert_eq!(batch(&mut receiver), [(997 % 7, 997, 0), (998 % 7, 998, 0), (999 % 7, 999, 0)]);
        let Conflation { received, conflated, dropped, taken } = receiver.conflation();
        assert_eq!((received, conflated, dropped, taken), (1_000, 0, 997, 3));
    }

    #[test]
    fn a_slow_consumer_meets_the_last_value_of_each_key() {
        let (sender, mut receiver) = latest(100);
        let feeds: Vec<_> = (0..2_u64)
            .map(|feed| {
                let sender: Latest<u64, u64> = sender.clone();
                std::thread::spawn(move || (0..50_000).for_each(|value| sender.put(feed * 50 + value % 50, value)))
            })
            .collect();
        drop(sender);
        let mut last = HashMap::new();
        let mut taken = 0;
        while let Some(batch) = receiver.next() {
            for update in batch {
                taken += 1;
                let before = last.insert(update.key, update.value);
                assert!(before.is_none_or(|before| before < update.value), "values of a key go forward");
            }
        }
        feeds.into_iter().for_each(|feed| feed.join().unwrap());
        assert_eq!(last.len(), 100);
        assert!(last.values().all(|value| *value >= 50_000 - 50));
        let counts = receiver.conflation();
        assert_eq!((counts.received, counts.dropped, counts.taken), (100_000, 0, taken));
        assert_eq!(counts.conflated + counts.taken, counts.received);
    }
}
