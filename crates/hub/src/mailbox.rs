//! Events of other threads for a loop's part of the hub: from logs, from presence, and receipts.

use crate::log::{LogError, Page, Position};
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use tautline::layers::ws::{Kind, Prepared};
use tautline::{ConnId, ShardHandle, ShardHandleError};

/// Has a loop take its events.
pub(crate) type Poke = fn(&ShardHandle) -> Result<(), ShardHandleError>;

/// Messages and news that wait for a loop, and their bytes. Further messages are lost, which their topics' subscribers are told.
const MOST_ENTRIES: usize = 65_536;
const MOST_BYTES: usize = 64 << 20;

/// A message of a log, framed and compressed once for all loops.
#[derive(Debug)]
pub(crate) struct Framed {
    pub(crate) topic: Arc<str>,
    pub(crate) offset: u64,
    pub(crate) message: Prepared,
}

impl Framed {
    /// The text `message`, which has this offset in its topic.
    pub(crate) fn new(topic: Arc<str>, offset: u64, message: &str) -> Self {
        Self { topic, offset, message: Prepared::new(Kind::Text, message.as_bytes()) }
    }

    /// Bytes of the message.
    pub(crate) fn len(&self) -> usize {
        self.message.payload().len()
    }
}

pub(crate) enum Event {
    /// A topic's messages follow from here.
    Begin(Arc<str>, Position),
    Entry(Arc<Framed>),
    /// Messages of the topic are missing.
    Lost(Arc<str>),
    /// Messages that a subscriber catches up with.
    Page {
        topic: Arc<str>,
        conn: ConnId,
        reading: u64,
        page: Result<Page, LogError>,
    },
    /// A page was delivered. Whether it was queued, since the subscriber lags.
    Delivered {
        topic: Arc<str>,
        conn: ConnId,
        reading: u64,
        lags: bool,
    },
    /// The result of a publication.
    Appended {
        conn: ConnId,
        id: Option<Box<str>>,
        result: Result<u64, LogError>,
    },
    /// News of a topic's members.
    Presence {
        topic: Arc<str>,
        frame: String,
    },
    /// Some news did not fit: the watchers get all members instead.
    Members(Arc<str>),
}

/// The events that wait for one loop.
pub(crate) struct Mailbox {
    shard: ShardHandle,
    poke: Poke,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<Event>,
    entries: usize,
    bytes: usize,
    /// Topics of which messages did not fit.
    lost: HashSet<Arc<str>>,
    /// Topics of which news of members did not fit.
    stale: HashSet<Arc<str>>,
    is_poked: bool,
}

impl Mailbox {
    pub(crate) fn new(shard: ShardHandle, poke: Poke) -> Arc<Self> {
        Arc::new(Self { shard, poke, waiting: Mutex::default() })
    }

    pub(crate) fn push(&self, event: Event) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(event);
        if std::mem::replace(&mut waiting.is_poked, true) {
            return;
        }
        drop(waiting);
        if (self.poke)(&self.shard).is_err_and(|error| error != ShardHandleError::Stopped) {
            // The loop looks at its mailbox at its next tick, too.
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_poked = false;
        }
    }

    /// All events so far.
    pub(crate) fn take(&self) -> VecDeque<Event> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *waiting).events
    }
}

impl Waiting {
    fn push(&mut self, event: Event) {
        let is_full = self.entries >= MOST_ENTRIES || self.bytes >= MOST_BYTES;
        let event = match event {
            Event::Entry(entry) if self.lost.contains(&entry.topic) => return,
            Event::Entry(entry) if is_full => {
                self.lost.insert(entry.topic.clone());
                Event::Lost(entry.topic.clone())
            }
            Event::Presence { topic, .. } if self.stale.contains(&topic) => return,
            Event::Presence { topic, .. } if is_full => {
                self.stale.insert(topic.clone());
                Event::Members(topic)
            }
            Event::Entry(entry) => {
                self.count(entry.len());
                Event::Entry(entry)
            }
            Event::Presence { topic, frame } => {
                self.count(frame.len());
                Event::Presence { topic, frame }
            }
            other => other,
        };
        self.events.push_back(event);
    }

    const fn count(&mut self, bytes: usize) {
        self.entries += 1;
        self.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Framed, MOST_ENTRIES, Waiting};
    use std::sync::Arc;

    #[test]
    fn a_flood_of_news_is_bounded_and_ends_with_all_members() {
        let mut waiting = Waiting::default();
        for n in 0..2 * MOST_ENTRIES {
            waiting.push(Event::Presence { topic: format!("room{}", n % 2).into(), frame: String::new() });
        }
        assert_eq!(waiting.events.len(), MOST_ENTRIES + 2);
        assert!(waiting.events.range(MOST_ENTRIES..).all(|event| matches!(event, Event::Members(_))));
        // Messages share the bound.
        let frame = Framed::new("log:a".into(), 1, "");
        waiting.push(Event::Entry(Arc::new(frame)));
        assert!(matches!(waiting.events.back(), Some(Event::Lost(_))));
    }
}
