//! Topics of a shard and their subscribers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use tautline_io::Token;

/// Subscriptions of one shard. Topics without subscribers take no memory.
#[derive(Default)]
pub(crate) struct Topics {
    by_name: HashMap<Box<str>, Subscribers>,
}

/// The subscribers of one topic: a list to walk, and each token's position in it. Subscribing and unsubscribing take constant
/// time, also amid a walk.
///
/// ```text
///   list   [ not served yet | served, or subscribed since ]
///          0            unserved                     list.len()
/// ```
#[derive(Default)]
struct Subscribers {
    list: Vec<Token>,
    at: HashMap<Token, usize>,
    /// The subscribers that the walk in progress has still to serve, from the last of them to the first.
    unserved: usize,
}

impl Subscribers {
    fn remove(&mut self, token: Token) -> bool {
        let Some(mut hole) = self.at.remove(&token) else { return false };
        if hole < self.unserved {
            self.unserved -= 1;
            self.relocate(self.unserved, hole);
            hole = self.unserved;
        }
        self.relocate(self.list.len() - 1, hole);
        self.list.pop();
        true
    }

    fn relocate(&mut self, from: usize, to: usize) {
        if from != to {
            self.list[to] = self.list[from];
            self.at.insert(self.list[to], to);
        }
    }
}

impl Topics {
    /// Adds a subscriber. False if it already was one.
    pub(crate) fn subscribe(&mut self, topic: &str, token: Token) -> bool {
        if !self.by_name.contains_key(topic) {
            self.by_name.insert(topic.into(), Subscribers::default());
        }
        let Some(Subscribers { list, at, .. }) = self.by_name.get_mut(topic) else { return false };
        let Entry::Vacant(entry) = at.entry(token) else { return false };
        entry.insert(list.len());
        list.push(token);
        true
    }

    /// Removes a subscriber. False if it was none.
    pub(crate) fn unsubscribe(&mut self, topic: &str, token: Token) -> bool {
        let Some(subscribers) = self.by_name.get_mut(topic) else { return false };
        let removed = subscribers.remove(token);
        if subscribers.list.is_empty() {
            self.by_name.remove(topic);
        }
        removed
    }

    /// Begins a walk over the subscribers of `topic`: those of now, without those that leave before they are served.
    pub(crate) fn begin_walk(&mut self, topic: &str) {
        if let Some(subscribers) = self.by_name.get_mut(topic) {
            subscribers.unserved = subscribers.list.len();
        }
    }

    /// Appends the next subscribers of the walk to `batch`, at most `most`. Returns whether more of them are left.
    pub(crate) fn next_subscribers(&mut self, topic: &str, most: usize, batch: &mut Vec<Token>) -> bool {
        let Some(Subscribers { list, unserved, .. }) = self.by_name.get_mut(topic) else { return false };
        let from = unserved.saturating_sub(most);
        batch.extend_from_slice(&list[from..*unserved]);
        *unserved = from;
        from > 0
    }
}

#[cfg(test)]
mod tests {
    use super::Topics;
    use std::collections::HashSet;
    use tautline_io::Token;

    fn token(index: u32) -> Token {
        Token { index, generation: 0 }
    }

    fn walk(topics: &mut Topics, topic: &str) -> Vec<Token> {
        let mut all = Vec::new();
        topics.begin_walk(topic);
        while topics.next_subscribers(topic, 1, &mut all) {}
        all
    }

    /// Everybody who is subscribed from begin to end is served exactly once; those who join meanwhile are not served.
    #[test]
    fn a_walk_serves_each_subscriber_once_while_others_come_and_go() {
        let mut seed = 9_u64;
        let mut random = |bound: u32| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u32::try_from(seed >> 33).unwrap() % bound
        };
        for _ in 0..300 {
            let mut topics = Topics::default();
            let count = 1 + random(60);
            (0..count).for_each(|index| assert!(topics.subscribe("x", token(index))));
            let (mut stayed, mut joined) = ((0..count).collect::<HashSet<_>>(), HashSet::new());
            let mut served = Vec::new();
            topics.begin_walk("x");
            loop {
                for _ in 0..random(6) {
                    let index = random(2 * count);
                    if topics.unsubscribe("x", token(index)) {
                        stayed.remove(&index);
                        joined.remove(&index);
                    } else if topics.subscribe("x", token(index)) {
                        joined.insert(index);
                    }
                }
                let mut batch = Vec::new();
                let more = topics.next_subscribers("x", 1 + random(4) as usize, &mut batch);
                assert!(batch.iter().all(|token| !joined.contains(&token.index)), "joined during the walk");
                served.extend(batch);
                if !more {
                    break;
                }
            }
            let once: HashSet<_> = served.iter().map(|token| token.index).collect();
            assert_eq!(once.len(), served.len(), "served twice");
            assert!(stayed.is_subset(&once), "left out");
            // The next walk serves all who are there.
            assert_eq!(walk(&mut topics, "x").len(), stayed.len() + joined.len());
        }
    }

    /// The work of one turn does not grow with the number of subscribers.
    #[test]
    fn a_step_of_a_walk_is_bounded_at_n_and_at_10_n() {
        for count in [1_000, 10_000] {
            let mut topics = Topics::default();
            (0..count).for_each(|index| assert!(topics.subscribe("x", token(index))));
            topics.begin_walk("x");
            let mut batch = Vec::new();
            assert!(topics.next_subscribers("x", 100, &mut batch));
            assert_eq!((batch.len(), batch.capacity()), (100, 100), "{count}");
        }
    }

    #[test]
    fn subscribes_once_and_forgets_empty_topics() {
        let mut topics = Topics::default();
        let a = Token { index: 0, generation: 0 };
        let b = Token { index: 1, generation: 4 };
        assert!(topics.subscribe("x", a));
        assert!(!topics.subscribe("x", a));
        assert!(topics.subscribe("x", b));
        assert_eq!(walk(&mut topics, "x"), [b, a]);
        assert!(topics.unsubscribe("x", a));
        assert!(!topics.unsubscribe("x", a));
        assert!(!topics.unsubscribe("y", a));
        assert!(topics.unsubscribe("x", b));
        assert!(topics.by_name.is_empty());
        assert!(walk(&mut topics, "x").is_empty());
    }
}
