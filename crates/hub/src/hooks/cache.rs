//! Answers of an application that may be used again.

use super::verdict::Verdict;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};
use tautline::layers::engine::sized::map_memory;

/// Most answers that are kept, and the longest time.
const MOST: usize = 10_000;
const LONGEST: Duration = Duration::from_secs(3_600);

/// A question whose answer may be kept: what the client wants to do, the user and the topic.
pub(super) type Key = (&'static str, Box<str>, Box<str>);

/// Answers by question. The oldest one gives way.
#[derive(Default)]
pub(super) struct Cache {
    known: HashMap<Key, (Verdict, Instant, u64)>,
    /// In the order of the answers. The answer of a place may have been replaced.
    order: VecDeque<(Key, u64)>,
    last: u64,
    /// The number of times that answers were forgotten before their end. An answer is kept only in the era of its question: it
    /// may else be older than the reason for which answers were forgotten.
    pub(super) era: u64,
    /// Bytes of names and answers.
    bytes: usize,
}

impl Cache {
    pub(super) fn get(&mut self, key: &Key, now: Instant) -> Option<Verdict> {
        let (verdict, until, _) = self.known.get(key)?;
        if *until > now {
            return Some(verdict.clone());
        }
        self.remove(key);
        None
    }

    pub(super) fn put(&mut self, key: Key, verdict: Verdict, age: Duration, now: Instant) {
        self.last += 1;
        self.remove(&key);
        self.bytes += memory(&key, &verdict);
        self.order.push_back((key.clone(), self.last));
        self.known.insert(key, (verdict, now + age.min(LONGEST), self.last));
        while self.order.len() > MOST
            && let Some((oldest, number)) = self.order.pop_front()
        {
            if self.known.get(&oldest).is_some_and(|(.., current)| *current == number) {
                self.remove(&oldest);
            }
        }
    }

    /// Forgets the answers about a user.
    pub(super) fn forget(&mut self, user: &str) {
        self.era += 1;
        let keys: Vec<Key> = self.known.keys().filter(|(_, other, _)| **other == *user).cloned().collect();
        keys.iter().for_each(|key| self.remove(key));
    }

    pub(super) fn clear(&mut self) {
        *self = Self { last: self.last, era: self.era + 1, ..Self::default() };
    }

    /// Its memory, in bytes.
    pub(super) fn memory(&self) -> usize {
        map_memory(&self.known) + self.order.capacity() * size_of::<(Key, u64)>() + self.bytes
    }

    fn remove(&mut self, key: &Key) {
        if let Some((verdict, ..)) = self.known.remove(key) {
            self.bytes -= memory(key, &verdict);
        }
    }
}

/// Bytes of an answer and of its names, which are there twice.
fn memory((_, user, topic): &Key, verdict: &Verdict) -> usize {
    2 * (user.len() + topic.len()) + verdict.memory()
}

#[cfg(test)]
mod tests {
    use super::{Cache, MOST};
    use crate::hooks::{Allowed, Verdict};
    use std::time::{Duration, Instant};

    fn key(user: &str, topic: &str) -> super::Key {
        ("publish", user.into(), topic.into())
    }

    #[test]
    fn answers_end_and_belong_to_one_user_and_topic() {
        let (mut cache, now, yes) = (Cache::default(), Instant::now(), Verdict::Allowed(Allowed::default()));
        cache.put(key("ann", "a"), yes.clone(), Duration::from_secs(1), now);
        cache.put(key("bob", "a"), yes.clone(), Duration::from_secs(9), now);
        assert_eq!(cache.get(&key("ann", "a"), now), Some(yes.clone()));
        for other in [key("eve", "a"), key("ann", "b"), ("subscribe", "ann".into(), "a".into())] {
            assert_eq!(cache.get(&other, now), None);
        }
        assert_eq!(cache.get(&key("ann", "a"), now + Duration::from_secs(1)), None);
        cache.forget("bob");
        assert_eq!(cache.get(&key("bob", "a"), now), None);
        cache.put(key("ann", "a"), yes, Duration::MAX.min(Duration::from_secs(u64::from(u32::MAX))), now);
        assert_eq!(cache.get(&key("ann", "a"), now + Duration::from_secs(7_200)), None, "an hour is the longest");
    }

    #[test]
    fn the_number_of_answers_is_bounded() {
        let (mut cache, now, yes) = (Cache::default(), Instant::now(), Verdict::Allowed(Allowed::default()));
        for number in 0..3 * MOST {
            cache.put(key("ann", &(number % (MOST + 100)).to_string()), yes.clone(), Duration::from_secs(9), now);
        }
        assert!(cache.known.len() <= MOST && cache.order.len() <= MOST);
        assert!(cache.memory() > 100_000);
        cache.clear();
        assert_eq!((cache.memory(), cache.known.len()), (0, 0));
    }
}
