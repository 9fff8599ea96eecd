//! Events of other threads for a loop's part of the hub: from logs, from presence, and receipts.

use crate::hooks::Verdict;
use crate::lock::lock;
use crate::log::{LogError, Page, Position};
use crate::pusher::delivery::Delivery;
use crate::rules::Rules;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, Once};
use tautline::layers::ws::{Kind, Prepared};
use tautline::{ApplicationMemory, ConnId, Receipt, ShardHandle, ShardHandleError, SlowConsumer};

/// Has a loop take its events.
pub(crate) type Poke = fn(&ShardHandle) -> Result<(), ShardHandleError>;

/// Messages and news that wait for a loop, and their bytes. Further messages are lost, which their topics' subscribers are told.
const MOST_ENTRIES: usize = 65_536;
const MOST_BYTES: usize = 64 << 20;
/// Messages to plain topics that wait for a loop, and their bytes. Further ones are left out, as with those of the loops' own.
const MOST_POSTS: usize = 16_384;
const MOST_POST_BYTES: usize = 16 << 20;
/// News of one topic's members that wait for a loop. Its watchers get all members in place of more.
const MOST_NEWS: usize = 1024;
/// Places of a queue that stay when it is empty.
const PLACES: usize = 64;

/// Memory of a framed message beside its text, as measured.
pub(crate) const FRAMED: usize = 192;

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

    /// Its memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        FRAMED + self.len()
    }

    /// The message's text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(self.message.payload()).unwrap_or("null")
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
        result: Result<Position, LogError>,
    },
    /// News of a topic's members.
    Presence {
        topic: Arc<str>,
        frame: String,
    },
    /// Some news did not fit: the watchers get all members instead.
    Members(Arc<str>),
    /// The number of a topic's members, a second or more after the last one.
    Number {
        topic: Arc<str>,
        number: usize,
    },
    /// Other rules hold from now on.
    Rules(Arc<Rules>),
    /// A message for a plain topic, from elsewhere than a connection.
    Post {
        topic: Arc<str>,
        frame: String,
        slow: Option<SlowConsumer>,
    },
    /// An event for subscribers of the Pusher protocol.
    Pusher(Arc<Delivery>),
    /// A connection is to end.
    End(ConnId),
    /// Something for all connections of a user.
    User(Arc<str>, ToUser),
    /// The application's answer about a message.
    Verdict {
        conn: ConnId,
        number: u64,
        verdict: Verdict,
    },
}

pub(crate) enum ToUser {
    Send(Arc<str>),
    /// Ends the connections.
    End,
}

impl Event {
    /// The topic and bytes of a message to a plain topic.
    fn post(&self) -> Option<(&str, usize)> {
        match self {
            Self::Post { topic, frame, .. } => Some((topic, frame.len())),
            Self::Pusher(delivery) => Some((&delivery.topic, delivery.event()?)),
            _ => None,
        }
    }

    /// Its memory while it waits, in bytes: that of its place, which is one of half as many again, and of its texts.
    fn memory(&self) -> usize {
        let texts = match self {
            Self::Entry(entry) => entry.memory(),
            Self::Page { page: Ok(page), .. } => page.memory(),
            Self::Post { frame, .. } => frame.len(),
            Self::Pusher(delivery) => delivery.memory(),
            Self::User(_, ToUser::Send(frame)) => frame.len(),
            Self::Verdict { verdict, .. } => verdict.memory(),
            Self::Appended { id, .. } => id.as_ref().map_or(0, |id| id.len()),
            // With the place of its topic's number.
            Self::Presence { frame, .. } => frame.len() + 2 * size_of::<(Arc<str>, usize)>(),
            _ => 0,
        };
        3 * size_of::<Self>() / 2 + texts
    }
}

/// The events that wait for one loop.
pub(crate) struct Mailbox {
    shard: ShardHandle,
    poke: Poke,
    waiting: Mutex<Waiting>,
    memory: ApplicationMemory,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<Event>,
    /// News of members. They wait apart, since one of them can be a message to many watchers.
    news: VecDeque<Event>,
    /// The number of news of each topic in `news`.
    news_of: HashMap<Arc<str>, usize>,
    entries: usize,
    bytes: usize,
    posts: usize,
    post_bytes: usize,
    /// Memory of all events, in bytes.
    memory: usize,
    /// Topics of which messages did not fit.
    lost: HashSet<Arc<str>>,
    /// Topics of which news of members did not fit.
    stale: HashSet<Arc<str>>,
    is_poked: bool,
    /// The namespaces in which messages that are left out count.
    rules: Option<Arc<Rules>>,
}

impl Mailbox {
    pub(crate) fn new(shard: ShardHandle, poke: Poke, memory: ApplicationMemory) -> Arc<Self> {
        Arc::new(Self { shard, poke, waiting: Mutex::default(), memory })
    }

    /// Has messages that are left out count in the namespaces of these rules, until others come as an event.
    pub(crate) fn begin(&self, rules: &Arc<Rules>) {
        lock(&self.waiting).rules = Some(rules.clone());
    }

    pub(crate) fn push(&self, event: Event) {
        let mut waiting = lock(&self.waiting);
        let before = waiting.memory;
        waiting.push(event);
        self.memory.add(waiting.memory - before);
        if std::mem::replace(&mut waiting.is_poked, true) {
            return;
        }
        drop(waiting);
        if (self.poke)(&self.shard).is_err_and(|error| error != ShardHandleError::Stopped) {
            // The loop looks at its mailbox at its next tick, too.
            lock(&self.waiting).is_poked = false;
        }
    }

    /// Takes the receipt of a page for a subscriber: whether it was sent or queued.
    pub(crate) fn delivery(
        self: &Arc<Self>,
        topic: &Arc<str>,
        conn: ConnId,
        reading: u64,
    ) -> impl FnOnce(Receipt) + Send + 'static {
        let (mailbox, topic) = (self.clone(), topic.clone());
        move |receipt| mailbox.push(Event::Delivered { topic, conn, reading, lags: receipt.sent == 0 })
    }

    /// The next event, apart from news of members.
    pub(crate) fn next(&self) -> Option<Event> {
        self.pop(|waiting| &mut waiting.events)
    }

    /// The next news of members.
    pub(crate) fn next_news(&self) -> Option<Event> {
        self.pop(|waiting| &mut waiting.news)
    }

    fn pop(&self, queue: fn(&mut Waiting) -> &mut VecDeque<Event>) -> Option<Event> {
        let mut waiting = lock(&self.waiting);
        let event = queue(&mut waiting).pop_front()?;
        let before = waiting.memory;
        waiting.leave(&event);
        self.memory.remove(before - waiting.memory);
        Some(event)
    }

    /// Whether nothing waits. The next event then wakes the loop.
    pub(crate) fn rest(&self) -> bool {
        let mut waiting = lock(&self.waiting);
        let is_empty = waiting.events.is_empty() && waiting.news.is_empty();
        if is_empty {
            waiting.is_poked = false;
            waiting.events.shrink_to(PLACES);
            waiting.news.shrink_to(PLACES);
            waiting.news_of.shrink_to(PLACES);
        }
        is_empty
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
            Event::Presence { topic, .. } if is_full || self.news_of.get(&topic).is_some_and(|n| *n >= MOST_NEWS) => {
                self.stale.insert(topic.clone());
                Event::Members(topic)
            }
            Event::Entry(entry) => {
                self.count(entry.len());
                Event::Entry(entry)
            }
            Event::Presence { topic, frame } => {
                self.count(frame.len());
                *self.news_of.entry(topic.clone()).or_default() += 1;
                Event::Presence { topic, frame }
            }
            Event::Rules(rules) => {
                self.rules = Some(rules.clone());
                Event::Rules(rules)
            }
            other => match other.post() {
                Some((topic, _)) if self.posts >= MOST_POSTS || self.post_bytes >= MOST_POST_BYTES => {
                    // Clients can cause any number of them.
                    static WARNING: Once = Once::new();
                    WARNING.call_once(|| {
                        log::warn!(
                            "a loop does not keep up with messages of others to plain topics: some are left out"
                        );
                    });
                    if let Some(counts) = self.rules.as_ref().and_then(|rules| rules.counts_of(topic)) {
                        counts.leave_out(1);
                    }
                    return;
                }
                Some((_, bytes)) => {
                    self.posts += 1;
                    self.post_bytes += bytes;
                    other
                }
                None => other,
            },
        };
        self.memory += event.memory();
        match event {
            Event::Presence { .. } | Event::Members(_) | Event::Number { .. } => self.news.push_back(event),
            _ => self.events.push_back(event),
        }
    }

    /// An event does not wait any more.
    fn leave(&mut self, event: &Event) {
        self.memory -= event.memory();
        match event {
            Event::Entry(entry) => self.uncount(entry.len()),
            Event::Presence { topic, frame } => {
                self.uncount(frame.len());
                if let Some(number) = self.news_of.get_mut(topic) {
                    *number -= 1;
                    if *number == 0 {
                        self.news_of.remove(topic);
                    }
                }
            }
            Event::Lost(topic) => _ = self.lost.remove(topic),
            Event::Members(topic) => _ = self.stale.remove(topic),
            other => {
                if let Some((_, bytes)) = other.post() {
                    self.posts -= 1;
                    self.post_bytes -= bytes;
                }
            }
        }
    }

    const fn count(&mut self, bytes: usize) {
        self.entries += 1;
        self.bytes += bytes;
    }

    const fn uncount(&mut self, bytes: usize) {
        self.entries -= 1;
        self.bytes -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Framed, MOST_ENTRIES, MOST_NEWS, MOST_POST_BYTES, MOST_POSTS, Waiting};
    use crate::census::Census;
    use crate::pusher::delivery::{Delivery, What};
    use crate::rules::Rules;
    use std::sync::Arc;
    use tautline::layers::ws::{Kind, Prepared};

    fn news(room: usize) -> Event {
        Event::Presence { topic: format!("room{room}").into(), frame: "news".to_owned() }
    }

    #[test]
    fn a_flood_of_news_is_bounded_and_ends_with_all_members() {
        let mut waiting = Waiting::default();
        let rooms = 2 * MOST_ENTRIES / MOST_NEWS;
        for n in 0..4 * MOST_ENTRIES {
            waiting.push(news(n % rooms));
        }
        assert_eq!(waiting.news.len(), MOST_ENTRIES + rooms);
        assert!(waiting.news.range(MOST_ENTRIES..).all(|event| matches!(event, Event::Members(_))));
        // Messages share the bound.
        let frame = Framed::new("log:a".into(), 1, "");
        waiting.push(Event::Entry(Arc::new(frame)));
        assert!(matches!(waiting.events.back(), Some(Event::Lost(_))));
        // Whatever leaves makes room again.
        while let Some(event) = waiting.news.pop_front().or_else(|| waiting.events.pop_front()) {
            waiting.leave(&event);
        }
        assert_eq!((waiting.entries, waiting.bytes, waiting.memory), (0, 0, 0));
        assert!(waiting.news_of.is_empty() && waiting.lost.is_empty() && waiting.stale.is_empty());
    }

    #[test]
    fn messages_to_plain_topics_are_bounded_and_the_ends_of_connections_are_not_left_out() {
        let event = |len: usize| {
            let what = What::Event(Prepared::new(Kind::Text, &vec![b'x'; len]));
            Event::Pusher(Arc::new(Delivery { topic: "a".into(), what, except: None }))
        };
        let post = |len: usize| Event::Post { topic: "a".into(), frame: "x".repeat(len), slow: None };
        for (len, most) in [(1, MOST_POSTS), (MOST_POST_BYTES / 4, 4)] {
            let (census, mut rules) = (Census::default(), Rules::open());
            census.equip(&mut rules);
            let mut waiting = Waiting { rules: Some(Arc::new(rules)), ..Waiting::default() };
            for number in 0..2 * most {
                waiting.push(if number % 2 == 0 { event(len) } else { post(len) });
            }
            assert_eq!(waiting.events.len(), most, "{len}");
            assert_eq!(census.figures()[0].left_out, most as u64, "{len}");
            waiting.push(Event::Pusher(Arc::new(Delivery { topic: "a".into(), what: What::End, except: None })));
            assert_eq!(waiting.events.len(), most + 1);
            while let Some(event) = waiting.events.pop_front() {
                waiting.leave(&event);
            }
            assert_eq!((waiting.posts, waiting.post_bytes, waiting.memory), (0, 0, 0));
            waiting.push(event(len));
            assert_eq!(waiting.events.len(), 1, "there is room again");
        }
    }

    #[test]
    fn the_news_of_one_room_are_bounded() {
        let mut waiting = Waiting::default();
        for _ in 0..2 * MOST_NEWS {
            waiting.push(news(0));
        }
        waiting.push(news(1));
        assert_eq!(waiting.news.len(), MOST_NEWS + 2);
        assert!(matches!(&waiting.news[MOST_NEWS], Event::Members(topic) if &**topic == "room0"));
        // Once all members were told, news follow again.
        while let Some(event) = waiting.news.pop_front() {
            waiting.leave(&event);
        }
        waiting.push(news(0));
        assert!(matches!(waiting.news.back(), Some(Event::Presence { .. })));
    }
}
