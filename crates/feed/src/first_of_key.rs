use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

/// Chooses the first copy of each message that several feeds send, by a key that no two messages share.
///
/// It remembers the last keys. The copy of a message whose key it has forgotten counts as first again.
///
/// ```
/// use tautline_feed::FirstOfKey;
///
/// let mut trades = FirstOfKey::new(100_000);
/// assert!(trades.is_first(&"trade 7")); // from feed A
/// assert!(!trades.is_first(&"trade 7")); // from feed B
/// assert_eq!(trades.duplicates(), 1);
/// ```
#[derive(Clone, Debug)]
pub struct FirstOfKey<K> {
    keys: HashSet<K>,
    /// In the order in which they came.
    order: VecDeque<K>,
    most: usize,
    duplicates: u64,
}

impl<K: Hash + Eq + Clone> FirstOfKey<K> {
    /// Remembers the last `most` keys, at least one. They should span the time by which feeds differ.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { keys: HashSet::new(), order: VecDeque::new(), most: most.max(1), duplicates: 0 }
    }

    /// Whether no message with this key has come before.
    pub fn is_first(&mut self, key: &K) -> bool {
        if self.keys.contains(key) {
            self.duplicates += 1;
            return false;
        }
        if self.order.len() == self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
        self.keys.insert(key.clone());
        self.order.push_back(key.clone());
        true
    }

    /// Messages that were not the first with their key.
    #[must_use]
    pub const fn duplicates(&self) -> u64 {
        self.duplicates
    }
}

#[cfg(test)]
mod tests {
    use super::FirstOfKey;

    #[test]
    fn remembers_the_last_keys_alone() {
        let mut first = FirstOfKey::new(3);
        let firsts = ["a", "b", "a", "c", "d", "b", "a", "d"].map(|key| first.is_first(&key));
        // "d" pushes "a" out, and the second "a" pushes "b" out.
        assert_eq!(firsts, [true, true, false, true, true, false, true, false]);
        assert_eq!((first.duplicates(), first.keys.len(), first.order.len()), (3, 3, 3));
    }
}
