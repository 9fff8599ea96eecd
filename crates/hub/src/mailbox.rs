//! Events of other threads for a loop's part of the hub: from logs, from presence, and receipts.

use crate::log::{LogError, Page, Position};
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use tautline::{ConnId, ShardHandle, ShardHandleError};

/// Has a loop take its events.
pub(crate) type Poke = fn(&ShardHandle) -> Result<(), ShardHandleError>;

/// Messages that wait for a loop, and their bytes. Further ones are lost, which their topics' subscribers are told.
const MOST_ENTRIES: usize = 65_536;
const MOST_BYTES: usize = 64 << 20;

/// A message of a log, framed once for all loops.
#[derive(Debug)]
pub(crate) struct Framed {
    pub(crate) topic: Arc<str>,
    pub(crate) offset: u64,
    pub(crate) frame: String,
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
        page: Result<Page, LogError>,
    },
    /// A page was delivered. Whether the subscriber lags.
    Delivered {
        topic: Arc<str>,
        conn: ConnId,
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
    is_poked: bool,
}

impl Mailbox {
    pub(crate) fn new(shard: ShardHandle, poke: Poke) -> Arc<Self> {
        Arc::new(Self { shard, poke, waiting: Mutex::default() })
    }

    pub(crate) fn push(&self, event: Event) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Entry(entry) if waiting.lost.contains(&entry.topic) => return,
            Event::Entry(entry) if waiting.entries >= MOST_ENTRIES || waiting.bytes >= MOST_BYTES => {
                waiting.lost.insert(entry.topic.clone());
                waiting.events.push_back(Event::Lost(entry.topic.clone()));
            }
            Event::Entry(entry) => {
                waiting.entries += 1;
                waiting.bytes += entry.frame.len();
                waiting.events.push_back(Event::Entry(entry));
            }
            other => waiting.events.push_back(other),
        }
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
