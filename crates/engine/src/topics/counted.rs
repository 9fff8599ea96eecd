//! Topics, subscribers and deliveries, counted for an application.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counts of some topics, over all shards.
///
/// ```
/// # mod tautline { pub use tautline_engine::{Conn, TopicCounts}; }
/// use std::sync::Arc;
/// use tautline::{Conn, TopicCounts};
///
/// fn open(conn: &mut Conn<'_, ()>, prices: &Arc<TopicCounts>) {
///     conn.subscribe_counted("prices", prices);
/// }
/// ```
#[derive(Debug, Default)]
pub struct TopicCounts {
    topics: AtomicUsize,
    subscribers: AtomicUsize,
    delivered: AtomicU64,
    dropped: AtomicU64,
}

impl TopicCounts {
    /// Topics with subscribers. One that several shards have counts for each.
    #[must_use]
    pub fn topics(&self) -> usize {
        self.topics.load(Ordering::Relaxed)
    }

    /// Their subscribers. A connection counts for each of its topics.
    #[must_use]
    pub fn subscribers(&self) -> usize {
        self.subscribers.load(Ordering::Relaxed)
    }

    /// Messages that were sent to a subscriber, or wait for it, counted for each subscriber.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    /// Messages that were dropped, by the policy for slow readers or inside a streamed message, counted for each subscriber.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Counts deliveries that were made in another way, or in an earlier process.
    pub fn add(&self, delivered: u64, dropped: u64) {
        for (counter, more) in [(&self.delivered, delivered), (&self.dropped, dropped)] {
            if more > 0 {
                counter.fetch_add(more, Ordering::Relaxed);
            }
        }
    }
}

/// A topic of one shard in its counts. It does not count any more when this is dropped.
#[derive(Debug)]
pub struct CountedTopic {
    counts: Arc<TopicCounts>,
    subscribers: usize,
}

impl CountedTopic {
    /// A topic without subscribers, which does not count yet.
    #[must_use]
    pub const fn new(counts: Arc<TopicCounts>) -> Self {
        Self { counts, subscribers: 0 }
    }

    /// The counts that it is in.
    #[must_use]
    pub const fn counts(&self) -> &Arc<TopicCounts> {
        &self.counts
    }

    /// It has so many subscribers now.
    pub fn set(&mut self, subscribers: usize) {
        let TopicCounts { topics, subscribers: all, .. } = &*self.counts;
        match (self.subscribers, subscribers) {
            (0, 1..) => _ = topics.fetch_add(1, Ordering::Relaxed),
            (1.., 0) => _ = topics.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
        if subscribers >= self.subscribers {
            all.fetch_add(subscribers - self.subscribers, Ordering::Relaxed);
        } else {
            all.fetch_sub(self.subscribers - subscribers, Ordering::Relaxed);
        }
        self.subscribers = subscribers;
    }
}

impl Drop for CountedTopic {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::{CountedTopic, TopicCounts};
    use std::sync::Arc;

    #[test]
    fn topics_count_while_they_have_subscribers() {
        let counts = Arc::new(TopicCounts::default());
        let now = || (counts.topics(), counts.subscribers());
        let [mut one, mut other] = [0; 2].map(|_| CountedTopic::new(counts.clone()));
        assert_eq!(now(), (0, 0));
        one.set(3);
        other.set(1);
        assert_eq!(now(), (2, 4));
        other.set(0);
        assert_eq!(now(), (1, 3));
        one.set(2);
        drop(one);
        assert_eq!(now(), (0, 0));
    }
}
