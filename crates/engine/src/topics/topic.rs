//! Topics of a shard and their subscribers.

use crate::sized::{map_memory, name_memory, shrink_map};
use crate::topics::counted::{CountedTopic, TopicCounts};
use crate::topics::roster::Roster;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tautline_io::Token;

/// Memory of an interest in the table of a bridge, beside the name. Loops share it, and each counts it.
const INTEREST: usize = 96;

/// Subscriptions of one shard. Topics without subscribers take no memory.
#[derive(Default)]
pub(crate) struct Topics {
    by_name: HashMap<Arc<str>, Subscribers>,
    by_prefix: HashMap<Arc<str>, Subscribers>,
    /// Memory of names and lists, in bytes.
    bytes: usize,
    /// Whether each topic has an interest in the table of a bridge, too.
    pub(crate) are_bridged: bool,
    /// Numbers of prefixes by their length in bytes. A message is looked up once per length, however many prefixes there are.
    lengths: BTreeMap<usize, usize>,
    /// The lists that the walk in progress has still to serve, the next one last: that of the topic itself (`None`), or of its
    /// prefix with this length.
    walk: Vec<Option<usize>>,
}

/// The subscribers of one topic. Subscribing and unsubscribing take constant time, also amid a walk.
///
/// ```text
///   all    [ not served yet | served, or subscribed since ]
///          0            unserved                     all.len()
/// ```
#[derive(Default)]
struct Subscribers {
    all: Roster<Token>,
    /// The subscribers that the walk in progress has still to serve, from the last of them to the first.
    unserved: usize,
    /// Its place in the counts that an application wants. Few topics have one, so it takes a pointer here.
    counted: Option<Box<CountedTopic>>,
}

impl Subscribers {
    fn remove(&mut self, token: Token) -> bool {
        let Some(mut hole) = self.all.position(token) else { return false };
        if hole < self.unserved {
            self.unserved -= 1;
            self.all.swap(self.unserved, hole);
            hole = self.unserved;
        }
        self.all.remove_at(hole);
        self.count();
        true
    }

    fn count_in(&mut self, counts: &Arc<TopicCounts>) {
        if self.counted.as_ref().is_none_or(|known| !Arc::ptr_eq(known.counts(), counts)) {
            self.counted = Some(Box::new(CountedTopic::new(counts.clone())));
            self.count();
        }
    }

    fn count(&mut self) {
        if let Some(counted) = &mut self.counted {
            counted.set(self.all.len());
        }
    }
}

/// The kind of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// One topic.
    Exact,
    /// All topics whose names begin with the subscription's name.
    Prefix,
}

/// A step of a walk over subscribers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Subscriptions that were looked at.
    pub(crate) looked: usize,
    /// Whether more of them are left.
    pub(crate) more: bool,
}

impl Topics {
    /// The number of topics.
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// The memory of all subscriptions, in bytes.
    pub(crate) fn memory(&self) -> usize {
        map_memory(&self.by_name) + map_memory(&self.by_prefix) + self.bytes
    }

    /// Adds a subscriber. Returns the name in the allocation that all share; `None` if it already was one.
    pub(crate) fn subscribe(&mut self, scope: Scope, name: &str, token: Token) -> Option<Arc<str>> {
        let of_topic = self.of_topic(name);
        let lists = self.lists(scope);
        let known = lists.get_key_value(name).map(|(shared, _)| shared.clone());
        let is_known = known.is_some();
        let shared = known.unwrap_or_else(|| name.into());
        let subscribers = lists.entry(shared.clone()).or_default();
        let before = subscribers.all.memory();
        let is_new = subscribers.all.add(token);
        subscribers.count();
        let after = subscribers.all.memory();
        self.bytes = self.bytes - before + after;
        if !is_known {
            self.bytes += of_topic;
            if scope == Scope::Prefix {
                *self.lengths.entry(name.len()).or_default() += 1;
            }
        }
        is_new.then_some(shared)
    }

    /// Removes a subscriber. False if it was none.
    pub(crate) fn unsubscribe(&mut self, scope: Scope, name: &str, token: Token) -> bool {
        let of_topic = self.of_topic(name);
        let lists = self.lists(scope);
        let Some(subscribers) = lists.get_mut(name) else { return false };
        let before = subscribers.all.memory();
        let removed = subscribers.remove(token);
        let (is_unused, after) = (subscribers.all.is_empty(), subscribers.all.memory());
        if !is_unused {
            self.bytes = self.bytes - before + after;
            return removed;
        }
        lists.remove(name);
        shrink_map(lists);
        self.bytes -= of_topic + before;
        if scope == Scope::Prefix
            && let Some(number) = self.lengths.get_mut(&name.len())
        {
            *number -= 1;
            if *number == 0 {
                self.lengths.remove(&name.len());
            }
        }
        removed
    }

    /// The memory of a topic beside its entry and its subscribers.
    const fn of_topic(&self, name: &str) -> usize {
        let interest = if self.are_bridged { INTEREST + name_memory(name) } else { 0 };
        name_memory(name) + interest
    }

    /// The shared name of a topic, if `token` is a subscriber.
    pub(crate) fn name_of(&self, topic: &str, token: Token) -> Option<Arc<str>> {
        let (name, subscribers) = self.by_name.get_key_value(topic)?;
        subscribers.all.contains(token).then(|| name.clone())
    }

    /// Has a topic with subscribers counted.
    pub(crate) fn count_in(&mut self, topic: &str, counts: &Arc<TopicCounts>) {
        if let Some(subscribers) = self.by_name.get_mut(topic) {
            subscribers.count_in(counts);
        }
    }

    /// Has all topics counted that have counts. `of` chooses others for them.
    pub(crate) fn count_anew(&mut self, mut of: impl FnMut(&str) -> Option<Arc<TopicCounts>>) {
        for (name, subscribers) in &mut self.by_name {
            if subscribers.counted.is_some() {
                match of(name) {
                    Some(counts) => subscribers.count_in(&counts),
                    None => subscribers.counted = None,
                }
            }
        }
    }

    /// The counts of a topic.
    pub(crate) fn counts_of(&self, topic: &str) -> Option<Arc<TopicCounts>> {
        Some(self.by_name.get(topic)?.counted.as_ref()?.counts().clone())
    }

    /// The subscribers of exactly this name or prefix.
    pub(crate) fn subscribers(&self, scope: Scope, name: &str) -> usize {
        let lists = match scope {
            Scope::Exact => &self.by_name,
            Scope::Prefix => &self.by_prefix,
        };
        lists.get(name).map_or(0, |subscribers| subscribers.all.len())
    }

    /// The subscriptions that `topic` matches.
    pub(crate) fn count(&self, topic: &str) -> usize {
        let prefixes = self.prefixes(topic).filter_map(|length| self.by_prefix.get(&topic[..length]));
        self.by_name.get(topic).into_iter().chain(prefixes).map(|subscribers| subscribers.all.len()).sum()
    }

    /// Begins a walk over the subscribers of `topic`: those of now, without those that leave before they are served.
    pub(crate) fn begin_walk(&mut self, topic: &str) {
        let mut walk = std::mem::take(&mut self.walk);
        walk.clear();
        walk.push(None);
        walk.extend(self.prefixes(topic).map(Some));
        walk.retain(|&list| {
            let Some(subscribers) = self.list_mut(topic, list) else { return false };
            subscribers.unserved = subscribers.all.len();
            true
        });
        self.walk = walk;
    }

    /// Appends the next subscribers of the walk to `batch`. Looks at most at `most` subscriptions.
    ///
    /// A connection with several subscriptions that match is served once, for the last of them.
    pub(crate) fn next_subscribers(&mut self, topic: &str, most: usize, batch: &mut Vec<Token>) -> Step {
        let mut looked = 0;
        while looked < most
            && let Some(list) = self.walk.last().copied()
        {
            let begin = batch.len();
            let done = self.list_mut(topic, list).is_none_or(|Subscribers { all, unserved, .. }| {
                let from = unserved.saturating_sub(most - looked);
                batch.extend_from_slice(&all.as_slice()[from..*unserved]);
                *unserved = from;
                from == 0
            });
            looked += batch.len() - begin;
            let others = self.walk.len() - 1;
            if others > 0 {
                let mut at = 0;
                batch.retain(|token| {
                    at += 1;
                    at <= begin || !self.is_in(topic, others, token)
                });
            }
            if done {
                self.walk.pop();
            }
        }
        Step { looked, more: !self.walk.is_empty() }
    }

    /// Whether one of the walk's first `lists` has `token`.
    fn is_in(&self, topic: &str, lists: usize, token: &Token) -> bool {
        self.walk[..lists].iter().any(|list| {
            let subscribers = match list {
                None => self.by_name.get(topic),
                Some(length) => self.by_prefix.get(&topic[..*length]),
            };
            subscribers.is_some_and(|subscribers| subscribers.all.contains(*token))
        })
    }

    /// Lengths of the prefixes of `topic` that may have subscribers.
    fn prefixes(&self, topic: &str) -> impl Iterator<Item = usize> {
        self.lengths
            .keys()
            .copied()
            .take_while(|&length| length <= topic.len())
            .filter(|&at| topic.is_char_boundary(at))
    }

    fn list_mut(&mut self, topic: &str, list: Option<usize>) -> Option<&mut Subscribers> {
        match list {
            None => self.by_name.get_mut(topic),
            Some(length) => self.by_prefix.get_mut(&topic[..length]),
        }
    }

    const fn lists(&mut self, scope: Scope) -> &mut HashMap<Arc<str>, Subscribers> {
        match scope {
            Scope::Exact => &mut self.by_name,
            Scope::Prefix => &mut self.by_prefix,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Scope, Topics};
    use std::collections::HashSet;
    use tautline_io::Token;

    fn token(index: u32) -> Token {
        Token { index, generation: 0 }
    }

    fn walk(topics: &mut Topics, topic: &str) -> Vec<Token> {
        let mut all = Vec::new();
        topics.begin_walk(topic);
        while topics.next_subscribers(topic, 1, &mut all).more {}
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
            (0..count).for_each(|index| assert!(topics.subscribe(Scope::Exact, "x", token(index)).is_some()));
            let (mut stayed, mut joined) = ((0..count).collect::<HashSet<_>>(), HashSet::new());
            let mut served = Vec::new();
            topics.begin_walk("x");
            loop {
                for _ in 0..random(6) {
                    let index = random(2 * count);
                    if topics.unsubscribe(Scope::Exact, "x", token(index)) {
                        stayed.remove(&index);
                        joined.remove(&index);
                    } else if topics.subscribe(Scope::Exact, "x", token(index)).is_some() {
                        joined.insert(index);
                    }
                }
                let mut batch = Vec::new();
                let more = topics.next_subscribers("x", 1 + random(4) as usize, &mut batch).more;
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

    #[test]
    fn prefixes_match_the_beginnings_of_topics() {
        let mut topics = Topics::default();
        for (index, prefix) in ["", "a", "a.", "a.b", "a.\u{e9}", "b"].into_iter().enumerate() {
            assert!(topics.subscribe(Scope::Prefix, prefix, token(u32::try_from(index).unwrap())).is_some());
        }
        let served = |topics: &mut Topics, topic: &str| {
            let mut all: Vec<_> = walk(topics, topic).iter().map(|token| token.index).collect();
            all.sort_unstable();
            assert_eq!(all.len(), topics.count(topic), "{topic}");
            all
        };
        assert_eq!(served(&mut topics, "a.b"), [0, 1, 2, 3]);
        assert_eq!(served(&mut topics, "a.bc"), [0, 1, 2, 3]);
        // Three bytes of this are no text, and no prefix.
        assert_eq!(served(&mut topics, "a.\u{e9}"), [0, 1, 2, 4]);
        assert_eq!(served(&mut topics, "c"), [0]);
        assert_eq!(served(&mut topics, ""), [0]);
        for (index, prefix) in ["", "a", "a.", "a.b", "a.\u{e9}", "b"].into_iter().enumerate() {
            assert!(topics.unsubscribe(Scope::Prefix, prefix, token(u32::try_from(index).unwrap())));
        }
        assert!(topics.by_prefix.is_empty() && topics.lengths.is_empty());
    }

    #[test]
    fn a_connection_gets_a_message_once_for_several_subscriptions() {
        for most in 1..5 {
            let mut topics = Topics::default();
            for index in 0..9 {
                for (bit, prefix) in [(1, "p"), (2, "pr"), (4, "price")] {
                    if index & bit != 0 {
                        topics.subscribe(Scope::Prefix, prefix, token(index));
                    }
                }
                if index % 2 == 0 {
                    topics.subscribe(Scope::Exact, "prices", token(index));
                }
            }
            let mut all = Vec::new();
            topics.begin_walk("prices");
            loop {
                let step = topics.next_subscribers("prices", most, &mut all);
                assert!(step.looked <= most, "{step:?}");
                if !step.more {
                    break;
                }
            }
            all.sort_unstable();
            assert_eq!(all.iter().map(|token| token.index).collect::<Vec<_>>(), (0..9).collect::<Vec<_>>());
        }
    }

    /// The work of one turn does not grow with the number of subscribers.
    #[test]
    fn a_step_of_a_walk_is_bounded_at_n_and_at_10_n() {
        for count in [1_000, 10_000] {
            let mut topics = Topics::default();
            (0..count).for_each(|index| assert!(topics.subscribe(Scope::Exact, "x", token(index)).is_some()));
            topics.begin_walk("x");
            let mut batch = Vec::new();
            assert!(topics.next_subscribers("x", 100, &mut batch).more);
            assert_eq!((batch.len(), batch.capacity()), (100, 100), "{count}");
        }
    }

    #[test]
    fn subscribes_once_and_forgets_empty_topics() {
        let mut topics = Topics::default();
        let a = Token { index: 0, generation: 0 };
        let b = Token { index: 1, generation: 4 };
        assert!(topics.subscribe(Scope::Exact, "x", a).is_some());
        assert!(topics.subscribe(Scope::Exact, "x", a).is_none());
        assert!(topics.subscribe(Scope::Exact, "x", b).is_some());
        assert_eq!(walk(&mut topics, "x"), [b, a]);
        assert!(topics.unsubscribe(Scope::Exact, "x", a));
        assert!(!topics.unsubscribe(Scope::Exact, "x", a));
        assert!(!topics.unsubscribe(Scope::Exact, "y", a));
        assert!(topics.unsubscribe(Scope::Exact, "x", b));
        assert!(topics.by_name.is_empty());
        assert!(walk(&mut topics, "x").is_empty());
    }
}
