//! The figures of one namespace.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tautline::{Conn, TopicCounts};

/// The figures of a namespace on this host. Totals go on over reloads of the rules, as long as its pattern is there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamespaceFigures {
    /// Its pattern; `*` without rules, `(none)` for topics without a namespace, `(further)` for all namespaces beyond 100.
    pub name: Arc<str>,
    /// Topics with subscribers. One that several loops have counts for each.
    pub topics: usize,
    /// Subscriptions.
    pub subscribers: usize,
    /// Messages of clients and applications that were taken here.
    pub publications: u64,
    /// Deliveries to subscribers, but for those of history.
    pub deliveries: u64,
    /// Deliveries that were dropped, since a subscriber reads slowly.
    pub drops: u64,
    /// Messages to plain topics that a loop left out, since too many waited for it. Each loop counts its own.
    pub left_out: u64,
    /// Messages of history that were sent to those who came back.
    pub history: u64,
}

/// Subscribes a connection to a plain topic. False if it has too many subscriptions.
pub(crate) fn subscribe_plain(conn: &mut Conn<'_, ()>, topic: &str, counts: Option<&Arc<Counts>>) -> bool {
    match counts {
        Some(counts) => conn.subscribe_counted(topic, &counts.topics),
        None => conn.subscribe(topic),
    }
}

/// The figures as they are counted.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) name: Arc<str>,
    pub(crate) topics: Arc<TopicCounts>,
    publications: AtomicU64,
    left_out: AtomicU64,
    history: AtomicU64,
}

impl Counts {
    pub(crate) fn new(name: &str) -> Arc<Self> {
        let (publications, left_out, history) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { name: name.into(), topics: Arc::default(), publications, left_out, history })
    }

    /// Messages were taken.
    pub(crate) fn publish(&self, messages: u64) {
        self.publications.fetch_add(messages, Ordering::Relaxed);
    }

    /// Messages were left out, since too many waited for a loop.
    pub(crate) fn leave_out(&self, messages: u64) {
        self.left_out.fetch_add(messages, Ordering::Relaxed);
    }

    /// Messages that are kept were sent to a subscriber.
    pub(crate) fn send_history(&self, messages: u64) {
        self.history.fetch_add(messages, Ordering::Relaxed);
    }

    pub(crate) fn figures(&self) -> NamespaceFigures {
        NamespaceFigures {
            name: self.name.clone(),
            topics: self.topics.topics(),
            subscribers: self.topics.subscribers(),
            publications: self.publications.load(Ordering::Relaxed),
            deliveries: self.topics.delivered(),
            drops: self.topics.dropped(),
            left_out: self.left_out.load(Ordering::Relaxed),
            history: self.history.load(Ordering::Relaxed),
        }
    }
}
