//! The topics that a host wants from a broker: one entry for each, whatever the number of its subscribers.

use crate::topics::topic::Scope;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a broker is still asked for a topic after its last subscriber has left.
///
/// Connections that come and go then cause no traffic to the broker.
const LINGER: Duration = Duration::from_secs(1);

/// Topics that a host wants from a broker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Interest {
    /// One topic.
    Topic(Arc<str>),
    /// All topics whose names begin with this.
    Prefix(Arc<str>),
}

impl Interest {
    pub(crate) fn new(scope: Scope, name: &str) -> Self {
        match scope {
            Scope::Exact => Self::Topic(name.into()),
            Scope::Prefix => Self::Prefix(name.into()),
        }
    }

    /// Whether it includes `topic`.
    #[must_use]
    pub fn includes(&self, topic: &str) -> bool {
        match self {
            Self::Topic(name) => **name == *topic,
            Self::Prefix(prefix) => topic.starts_with(&**prefix),
        }
    }
}

/// The interests of a host, and those that the broker does not know yet.
#[derive(Default)]
pub(crate) struct Interests {
    table: HashMap<Interest, Followed>,
    /// Interests that are new to the broker, in their order.
    news: VecDeque<Interest>,
    /// Interests whose last holder has left, and when they end.
    fading: VecDeque<(Instant, Interest)>,
    /// Whether a broker is connected. It is told all interests when it connects.
    is_live: bool,
}

#[derive(Default)]
struct Followed {
    /// The shards and listeners that want it.
    holders: usize,
    /// Whether the broker was asked for it.
    told: bool,
    in_news: bool,
    in_fading: bool,
}

/// A change that a broker is told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Begins(Interest),
    Ends(Interest),
}

impl Interests {
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Adds a holder. True if the broker has to be told.
    pub(crate) fn add(&mut self, interest: Interest) -> bool {
        let followed = self.table.entry(interest.clone()).or_default();
        followed.holders += 1;
        let is_news = self.is_live && !followed.told && !followed.in_news;
        if is_news {
            followed.in_news = true;
            self.news.push_back(interest);
        }
        is_news
    }

    /// Removes a holder. True if the interest now ends after a while.
    pub(crate) fn remove(&mut self, interest: &Interest, now: Instant) -> bool {
        let Some(followed) = self.table.get_mut(interest) else { return false };
        followed.holders = followed.holders.saturating_sub(1);
        let fades = followed.holders == 0 && !followed.in_fading;
        if fades {
            followed.in_fading = true;
            self.fading.push_back((now + LINGER, interest.clone()));
        }
        fades
    }

    /// The next change for the broker.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Change> {
        while let Some(interest) = self.news.pop_front() {
            let Some(followed) = self.table.get_mut(&interest) else { continue };
            followed.in_news = false;
            if followed.holders > 0 && !followed.told {
                followed.told = true;
                return Some(Change::Begins(interest));
            }
        }
        self.fade(now)
    }

    /// Ends the interests that nobody has held for a while. Returns the first that the broker knows.
    pub(crate) fn fade(&mut self, now: Instant) -> Option<Change> {
        while self.fading.front().is_some_and(|(due, _)| *due <= now)
            && let Some((_, interest)) = self.fading.pop_front()
        {
            let Entry::Occupied(mut entry) = self.table.entry(interest.clone()) else { continue };
            entry.get_mut().in_fading = false;
            if entry.get().holders == 0 && entry.remove().told {
                return Some(Change::Ends(interest));
            }
        }
        None
    }

    /// When the next interest fades.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.fading.front().map(|(due, _)| *due)
    }

    /// A broker has connected: it will be told all interests.
    pub(crate) fn begin(&mut self) {
        self.end();
        self.is_live = true;
        for (interest, followed) in &mut self.table {
            if followed.holders > 0 {
                followed.in_news = true;
                self.news.push_back(interest.clone());
            }
        }
    }

    /// The broker is away and has forgotten all interests.
    pub(crate) fn end(&mut self) {
        self.is_live = false;
        self.news = VecDeque::new();
        for followed in self.table.values_mut() {
            (followed.told, followed.in_news) = (false, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, Interest, Interests, LINGER};
    use std::time::Instant;

    fn topic(name: &str) -> Interest {
        Interest::Topic(name.into())
    }

    #[test]
    fn a_storm_of_subscriptions_is_one_change() {
        let (mut interests, now) = (Interests::default(), Instant::now());
        interests.begin();
        for _ in 0..1_000 {
            interests.add(topic("a"));
        }
        // Subscribers that come and go while others stay.
        for _ in 0..1_000 {
            interests.remove(&topic("a"), now);
            interests.add(topic("a"));
        }
        assert_eq!(interests.next(now), Some(Change::Begins(topic("a"))));
        for _ in 0..1_000 {
            interests.remove(&topic("a"), now);
            assert_eq!(interests.next(now), None);
        }
        // The only subscriber comes and goes.
        for _ in 0..1_000 {
            interests.add(topic("a"));
            interests.remove(&topic("a"), now);
            assert_eq!(interests.next(now), None);
        }
        assert_eq!(interests.due(), Some(now + LINGER));
        assert_eq!(interests.next(now + LINGER), Some(Change::Ends(topic("a"))));
        assert_eq!((interests.len(), interests.due()), (0, None));
    }

    #[test]
    fn a_broker_that_connects_is_told_all_interests_once() {
        let (mut interests, now) = (Interests::default(), Instant::now());
        assert!(!interests.add(topic("a")), "no broker has to be told");
        interests.add(Interest::Prefix("b".into()));
        interests.add(topic("gone"));
        interests.remove(&topic("gone"), now);
        for _ in 0..2 {
            interests.begin();
            let mut told = Vec::new();
            while let Some(Change::Begins(interest)) = interests.next(now) {
                told.push(interest);
            }
            assert_eq!(told.len(), 2, "{told:?}");
            assert!(told.contains(&topic("a")) && told.contains(&Interest::Prefix("b".into())));
            interests.end();
        }
        assert_eq!(interests.fade(now + LINGER), None, "the broker that is away does not know it");
        assert_eq!(interests.len(), 2);
    }

    #[test]
    fn names_that_come_and_go_during_an_outage_are_forgotten() {
        let (mut interests, mut now) = (Interests::default(), Instant::now());
        for index in 0..10_000 {
            let name = topic(&index.to_string());
            interests.add(name.clone());
            interests.remove(&name, now);
            now += LINGER / 100;
            assert_eq!(interests.fade(now), None);
            assert!(interests.len() <= 101);
        }
        assert!(interests.news.is_empty());
    }
}
