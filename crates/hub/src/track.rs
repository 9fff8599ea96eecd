//! A topic with history or conflation on one loop: its newest messages, and the subscribers that are up to date or catching up.

use crate::config::Kind;
use crate::figures::Counts;
use crate::log::Position;
use crate::mailbox::{FRAMED, Framed};
use crate::protocol::Object;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tautline::layers::engine::sized::map_memory;
use tautline::layers::engine::{CountedTopic, Roster};
use tautline::{ConnId, ConnList};

/// Newest messages that are kept for subscribers who return soon, and their bytes.
const MOST: (usize, usize) = (128, 64 << 10);

pub(crate) struct Track {
    pub(crate) kind: Kind,
    /// The last message that this loop has passed on.
    pub(crate) at: Option<Position>,
    ring: VecDeque<Arc<Framed>>,
    ring_bytes: usize,
    /// All messages after this offset, up to `at`, are in the ring.
    ring_after: u64,
    pub(crate) live: Subscribers,
    pub(crate) catching: HashMap<ConnId, CatchUp>,
    /// Ticks without subscribers.
    pub(crate) idle: u32,
    /// Its memory as it was counted, in bytes.
    told: usize,
}

/// Connections to which messages go.
#[derive(Default)]
pub(crate) struct Subscribers {
    all: Roster<ConnId>,
    /// The list for messages, until it changes.
    shared: Option<ConnList>,
    counted: Option<CountedTopic>,
}

impl Subscribers {
    /// None yet. They are counted in the figures of a namespace.
    pub(crate) fn counted_in(counts: Option<&Arc<Counts>>) -> Self {
        let mut subscribers = Self::default();
        subscribers.count_in(counts);
        subscribers
    }

    pub(crate) fn list(&self) -> &[ConnId] {
        self.all.as_slice()
    }

    /// The list in a form that many messages share.
    pub(crate) fn shared(&mut self) -> &ConnList {
        self.shared.get_or_insert_with(|| self.all.as_slice().into())
    }

    pub(crate) fn add(&mut self, conn: ConnId) {
        if self.all.add(conn) {
            self.shared = None;
            self.count();
        }
    }

    pub(crate) fn remove(&mut self, conn: ConnId) {
        if self.all.remove(conn) {
            self.shared = None;
            self.count();
        }
    }

    /// Has them counted in the figures of a namespace.
    pub(crate) fn count_in(&mut self, counts: Option<&Arc<Counts>>) {
        self.counted = counts.map(|counts| CountedTopic::new(counts.topics.clone()));
        self.count();
    }

    /// They get a message.
    pub(crate) fn deliver(&self, receivers: usize) {
        if let Some(counted) = &self.counted {
            counted.counts().add(receivers as u64, 0);
        }
    }

    fn count(&mut self) {
        if let Some(counted) = &mut self.counted {
            counted.set(self.all.len());
        }
    }

    fn memory(&self) -> usize {
        // The list for messages takes as much as this one.
        let shared = self.shared.as_ref().map_or(0, |_| self.all.len() * size_of::<ConnId>());
        self.all.memory() + shared
    }
}

/// A subscriber that does not have everything yet.
pub(crate) struct CatchUp {
    /// The last message that it has; `None` before the first.
    pub(crate) after: Option<u64>,
    pub(crate) epoch: Option<Box<str>>,
    /// Whether it misses messages, and is told so once it is known which are kept.
    pub(crate) is_late: bool,
    pub(crate) stage: Stage,
    /// The number of its last reading. The page of another was for an earlier subscription.
    pub(crate) reading: u64,
    /// Whether it has no right to messages of before, and gets those from now on.
    is_barred: bool,
}

impl CatchUp {
    pub(crate) const fn new(after: Option<u64>, epoch: Option<Box<str>>, is_barred: bool) -> Self {
        Self { after, epoch, is_late: false, stage: Stage::New, reading: 0, is_barred }
    }

    /// Begins at a topic's place. Returns the answer to its subscription, unless it is late: then it has to be known first which
    /// messages are kept.
    pub(crate) fn begin(&mut self, topic: &str, kind: Kind, at: &Position) -> Option<String> {
        self.stage = Stage::Behind;
        let is_known = match self.epoch.as_deref() {
            Some(epoch) => *epoch == *at.epoch,
            // One beyond the present end is of another life, as far as this host can tell.
            None => self.after.is_none_or(|after| after <= at.offset),
        };
        let misses = self.is_barred && !(is_known && self.after == Some(at.offset));
        self.is_late = !is_known && !self.is_barred && kind == Kind::History && self.after.is_some();
        self.after = match kind {
            _ if self.is_barred => Some(at.offset),
            // All that is kept: there is no message 0.
            Kind::History if self.is_late || self.after == Some(0) => None,
            Kind::History => Some(self.after.unwrap_or(at.offset)),
            _ => self.after.filter(|_| is_known),
        };
        let answer = Object::new(if misses { "late" } else { "subscribed" }).text("topic", topic);
        match kind {
            _ if self.is_late => None,
            Kind::Latest => Some(answer.text("epoch", &at.epoch).end()),
            _ => Some(answer.position(at).end()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The topic's place is not known yet.
    New,
    /// It needs messages.
    Behind,
    /// A page is being read or delivered.
    Reading,
    /// It goes on at the next tick, since the log is away.
    Resting,
}

/// The next thing to do for a subscriber that catches up.
pub(crate) enum Next {
    /// Send these, and then all later messages.
    Join(Vec<Arc<Framed>>),
    /// Read from the log.
    Read(Option<u64>),
    /// Nothing: this loop has not reached the subscriber's offset yet.
    Wait,
}

impl Track {
    pub(crate) fn new(kind: Kind, counts: Option<&Arc<Counts>>) -> Self {
        Self {
            kind,
            at: None,
            ring: VecDeque::new(),
            ring_bytes: 0,
            ring_after: 0,
            live: Subscribers::counted_in(counts),
            catching: HashMap::new(),
            idle: 0,
            told: 0,
        }
    }

    /// Counts its memory in `bytes`, the sum of all topics of the loop.
    pub(crate) fn settle(&mut self, bytes: &mut usize) {
        let ring = self.ring.capacity() * size_of::<Arc<Framed>>() + self.ring_bytes + self.ring.len() * FRAMED;
        let now = size_of::<Self>() + ring + self.live.memory() + map_memory(&self.catching);
        *bytes = *bytes - self.told + now;
        self.told = now;
    }

    /// Uncounts its memory.
    pub(crate) const fn forget(&self, bytes: &mut usize) {
        *bytes -= self.told;
    }

    pub(crate) fn begin(&mut self, at: Position) {
        self.ring.clear();
        self.ring_bytes = 0;
        self.ring_after = at.offset;
        self.at = Some(at);
    }

    /// Takes the next message. False if it is none.
    pub(crate) fn push(&mut self, entry: &Arc<Framed>) -> bool {
        let Some(at) = self.at.as_mut().filter(|at| entry.offset > at.offset) else { return false };
        at.offset = entry.offset;
        self.ring_bytes += entry.len();
        self.ring.push_back(entry.clone());
        while (self.ring.len() > MOST.0 || self.ring_bytes > MOST.1)
            && let Some(oldest) = self.ring.pop_front()
        {
            self.ring_bytes -= oldest.len();
            self.ring_after = oldest.offset;
        }
        true
    }

    pub(crate) fn next(&self, after: Option<u64>) -> Next {
        let Some(at) = &self.at else { return Next::Wait };
        match after {
            Some(after) if after > at.offset => Next::Wait,
            Some(after) if after >= self.ring_after => {
                let begin = self.ring.partition_point(|entry| entry.offset <= after);
                Next::Join(self.ring.range(begin..).cloned().collect())
            }
            after => Next::Read(after),
        }
    }

    pub(crate) fn remove(&mut self, conn: ConnId) {
        self.live.remove(conn);
        self.end_catching(conn);
    }

    /// Subscribers that have come from a host which was ahead of this one, and that this message is for.
    pub(crate) fn ready(&self, offset: u64) -> Vec<ConnId> {
        let ready =
            |catch_up: &CatchUp| catch_up.stage == Stage::Behind && catch_up.after.is_some_and(|after| after <= offset);
        self.catching.iter().filter(|(_, catch_up)| ready(catch_up)).map(|(conn, _)| *conn).collect()
    }

    /// Has subscribers that rest go on, and returns them.
    pub(crate) fn wake(&mut self) -> Vec<ConnId> {
        let resting = self.catching.iter_mut().filter(|(_, catch_up)| catch_up.stage == Stage::Resting);
        let woken = resting.map(|(conn, catch_up)| {
            catch_up.stage = Stage::Behind;
            *conn
        });
        woken.collect()
    }

    /// A subscriber does not catch up any more.
    pub(crate) fn end_catching(&mut self, conn: ConnId) {
        self.catching.remove(&conn);
        if self.catching.is_empty() {
            // A table keeps its memory, and most topics have subscribers that catch up for a moment only.
            self.catching = HashMap::new();
        }
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.live.list().is_empty() && self.catching.is_empty()
    }

    /// All subscribers.
    pub(crate) fn subscribers(&self) -> Vec<ConnId> {
        self.live.list().iter().chain(self.catching.keys()).copied().collect()
    }
}
