//! Topics of a shard and their subscribers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use tautline_io::Token;

/// Subscriptions of one shard. Topics without subscribers take no memory.
#[derive(Default)]
pub(crate) struct Topics {
    by_name: HashMap<Box<str>, Subscribers>,
}

/// The subscribers of one topic: a list to walk, and each token's position in it. Unsubscribing takes constant time.
#[derive(Default)]
struct Subscribers {
    list: Vec<Token>,
    at: HashMap<Token, usize>,
}

impl Topics {
    /// Adds a subscriber. False if it already was one.
    pub(crate) fn subscribe(&mut self, topic: &str, token: Token) -> bool {
        if !self.by_name.contains_key(topic) {
            self.by_name.insert(topic.into(), Subscribers::default());
        }
        let Some(Subscribers { list, at }) = self.by_name.get_mut(topic) else { return false };
        let Entry::Vacant(entry) = at.entry(token) else { return false };
        entry.insert(list.len());
        list.push(token);
        true
    }

    /// Removes a subscriber. False if it was none.
    pub(crate) fn unsubscribe(&mut self, topic: &str, token: Token) -> bool {
        let Some(Subscribers { list, at }) = self.by_name.get_mut(topic) else { return false };
        let Some(position) = at.remove(&token) else { return false };
        list.swap_remove(position);
        if let Some(moved) = list.get(position) {
            at.insert(*moved, position);
        }
        if list.is_empty() {
            self.by_name.remove(topic);
        }
        true
    }

    /// The subscribers, in no particular order.
    pub(crate) fn subscribers(&self, topic: &str) -> &[Token] {
        self.by_name.get(topic).map_or(&[], |subscribers| &subscribers.list)
    }
}

#[cfg(test)]
mod tests {
    use super::Topics;
    use tautline_io::Token;

    #[test]
    fn subscribes_once_and_forgets_empty_topics() {
        let mut topics = Topics::default();
        let a = Token { index: 0, generation: 0 };
        let b = Token { index: 1, generation: 4 };
        assert!(topics.subscribe("x", a));
        assert!(!topics.subscribe("x", a));
        assert!(topics.subscribe("x", b));
        assert_eq!(topics.subscribers("x"), [a, b]);
        assert!(topics.unsubscribe("x", a));
        assert!(!topics.unsubscribe("x", a));
        assert!(!topics.unsubscribe("y", a));
        assert!(topics.unsubscribe("x", b));
        assert!(topics.by_name.is_empty());
        assert!(topics.subscribers("x").is_empty());
    }
}
