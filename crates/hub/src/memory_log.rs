//! A log in this process's memory.

use crate::config::Kind;
use crate::log::{Append, Done, Entry, Following, Log, LogError, Page, Position, Sink};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tautline::layers::engine::sized::{name_memory, shrink_map};

/// Messages in one page, and their bytes.
const PAGE: (usize, usize) = (256, 256 << 10);
/// Memory of a message beside its data: its place in a queue that is two thirds full.
const ENTRY: usize = 3 * size_of::<Entry>() / 2;
/// Memory of an identifier beside its text, which is there twice: its places in a table and in a queue.
const ID: usize = 64;
/// Memory of a topic beside its name and messages: its places in a table and in a tree, and the least of its own tables.
const TOPIC: usize = 3 * size_of::<(Arc<str>, Topic)>() / 2 + 208;

/// How much a [`MemoryLog`] keeps.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Retention {
    /// Most messages of a topic; in a conflating topic the most keys. Default: 1,000.
    pub entries: usize,
    /// Most bytes of all topics. Topics that were written to longest ago are forgotten first. Default: 64 MiB. The server's
    /// [budget of memory](tautline::Limits::memory) has them, too: a quarter of it is the most.
    pub bytes: usize,
    /// Identifiers of messages that each topic remembers. Default: 1,000.
    pub ids: usize,
}

impl Default for Retention {
    fn default() -> Self {
        Self { entries: 1_000, bytes: 64 << 20, ids: 1_000 }
    }
}

/// A log in this process's memory. It is gone with the process: clients that return are then told that they are too late.
///
/// Clones are one log.
#[derive(Clone)]
pub struct MemoryLog(Arc<(Mutex<Inner>, AtomicUsize)>);

/// A sink, and the number by which it is removed.
type NumberedSink = (u64, Arc<dyn Sink>);

struct Inner {
    epoch: Arc<str>,
    retention: Retention,
    /// The offset of the last message of any topic.
    last: u64,
    topics: HashMap<Arc<str>, Topic>,
    /// Topics by the offsets of their last messages.
    by_age: BTreeMap<u64, Arc<str>>,
    bytes: usize,
    /// Topics whose last message was at or before this may have been forgotten.
    forgotten: u64,
    sinks: HashMap<Arc<str>, Vec<NumberedSink>>,
    next_sink: u64,
}

#[derive(Default)]
struct Topic {
    entries: VecDeque<Entry>,
    last: u64,
    /// The offset of the last message that was dropped, but for those that a later one of the same key replaced.
    dropped: u64,
    ids: HashMap<Box<str>, u64>,
    ids_by_age: VecDeque<Box<str>>,
    bytes: usize,
}

impl Default for MemoryLog {
    fn default() -> Self {
        Self::new(Retention::default())
    }
}

impl MemoryLog {
    /// An empty log with an epoch of its own.
    #[must_use]
    pub fn new(retention: Retention) -> Self {
        let inner = Inner {
            epoch: crate::protocol::random_name().into(),
            retention,
            last: 0,
            topics: HashMap::new(),
            by_age: BTreeMap::new(),
            bytes: 0,
            forgotten: 0,
            sinks: HashMap::new(),
            next_sink: 0,
        };
        Self(Arc::new((Mutex::new(inner), AtomicUsize::new(0))))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn size(entry: &Entry) -> usize {
    entry.data.len() + entry.key.as_ref().map_or(0, |key| key.len()) + ENTRY
}

impl Topic {
    fn pop(&mut self, index: usize) {
        if let Some(entry) = self.entries.remove(index) {
            self.bytes -= size(&entry);
        }
    }

    fn pop_oldest(&mut self) {
        if let Some(oldest) = self.entries.front() {
            self.dropped = oldest.offset;
            self.pop(0);
        }
    }

    fn remember(&mut self, id: Box<str>, offset: u64, most: usize) {
        self.bytes += 2 * id.len() + ID;
        self.ids.insert(id.clone(), offset);
        self.ids_by_age.push_back(id);
        while self.ids_by_age.len() > most
            && let Some(oldest) = self.ids_by_age.pop_front()
        {
            self.ids.remove(&oldest);
            self.bytes -= 2 * oldest.len() + ID;
        }
    }
}

impl Inner {
    fn append(&mut self, name: &Arc<str>, append: Append) -> Result<u64, LogError> {
        let Append { kind, key, data, id } = append;
        let before = self.topics.get(name).map_or(0, |topic| topic.bytes);
        // An evicted topic must not come back as if it had never had messages.
        let forgotten = self.forgotten;
        let topic = self.topics.entry(name.clone()).or_insert_with(|| Topic {
            dropped: forgotten,
            bytes: TOPIC + name_memory(name),
            ..Topic::default()
        });
        if let Some(offset) = id.as_ref().and_then(|id| topic.ids.get(id)) {
            return Ok(*offset);
        }
        self.last += 1;
        let entry = Entry { offset: self.last, key, data };
        if kind == Kind::Latest
            && let Some(index) = topic.entries.iter().position(|other| other.key == entry.key)
        {
            topic.pop(index);
        }
        self.by_age.remove(&topic.last);
        topic.last = self.last;
        topic.bytes += size(&entry);
        topic.entries.push_back(entry.clone());
        while topic.entries.len() > self.retention.entries {
            topic.pop_oldest();
        }
        if let Some(id) = id {
            topic.remember(id, self.last, self.retention.ids);
        }
        self.bytes = self.bytes + topic.bytes - before;
        self.by_age.insert(self.last, name.clone());
        self.shrink();
        for (_, sink) in self.sinks.get(name).into_iter().flatten() {
            sink.entry(entry.clone());
        }
        Ok(self.last)
    }

    /// Forgets the oldest topics, and then the oldest messages of the last one, until all fit.
    fn shrink(&mut self) {
        while self.bytes > self.retention.bytes && self.topics.len() > 1 {
            let Some((offset, name)) = self.by_age.pop_first() else { return };
            self.forgotten = offset;
            self.bytes -= self.topics.remove(&name).map_or(0, |topic| topic.bytes);
        }
        let Some(topic) = self.topics.values_mut().next().filter(|_| self.bytes > self.retention.bytes) else { return };
        while topic.bytes > self.retention.bytes && topic.entries.len() > 1 {
            topic.pop_oldest();
        }
        self.bytes = topic.bytes;
    }

    fn read(&self, name: &Arc<str>, after: Option<u64>) -> Result<Page, LogError> {
        let topic = self.topics.get(name);
        if after.is_some_and(|after| after < topic.map_or(self.forgotten, |topic| topic.dropped)) {
            return Err(LogError::TooLate);
        }
        let place = |offset| Position { epoch: self.epoch.clone(), offset };
        let Some(topic) = topic else { return Ok(Page { entries: Vec::new(), upto: place(self.last) }) };
        let after = after.unwrap_or_default();
        let begin = topic.entries.partition_point(|entry| entry.offset <= after);
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for entry in topic.entries.range(begin..) {
            if entries.len() == PAGE.0 || bytes >= PAGE.1 {
                break;
            }
            bytes += size(entry);
            entries.push(entry.clone());
        }
        let is_all = begin + entries.len() == topic.entries.len();
        let upto = if is_all { self.last } else { entries.last().map_or(after, |entry: &Entry| entry.offset) };
        Ok(Page { entries, upto: place(upto) })
    }
}

impl Log for MemoryLog {
    fn append(&self, topic: &Arc<str>, append: Append, done: Done<Position>) {
        let mut inner = self.lock();
        let result = inner.append(topic, append).map(|offset| Position { epoch: inner.epoch.clone(), offset });
        self.0.1.store(inner.bytes, Ordering::Relaxed);
        drop(inner);
        done(result);
    }

    fn follow(&self, topic: &Arc<str>, _: Kind, sink: Arc<dyn Sink>) -> Following {
        let mut inner = self.lock();
        sink.begin(Position { epoch: inner.epoch.clone(), offset: inner.last });
        let number = inner.next_sink;
        inner.next_sink += 1;
        let sinks = inner.sinks.entry(topic.clone()).or_default();
        sinks.reserve_exact(1);
        sinks.push((number, sink));
        Box::new(Follower { log: self.clone(), topic: topic.clone(), number })
    }

    fn read(&self, topic: &Arc<str>, _: Kind, after: Option<u64>, done: Done<Page>) {
        let result = self.lock().read(topic, after);
        done(result);
    }

    fn memory(&self) -> usize {
        self.0.1.load(Ordering::Relaxed)
    }

    fn bound(&self, most: usize) {
        let mut inner = self.lock();
        if inner.retention.bytes > most {
            log::info!("the log keeps at most {most} bytes, a quarter of the budget of memory");
            inner.retention.bytes = most;
            inner.shrink();
            self.0.1.store(inner.bytes, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for MemoryLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryLog")
    }
}

struct Follower {
    log: MemoryLog,
    topic: Arc<str>,
    number: u64,
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut inner = self.log.lock();
        if let Some(sinks) = inner.sinks.get_mut(&self.topic) {
            sinks.retain(|(number, _)| *number != self.number);
            if sinks.is_empty() {
                inner.sinks.remove(&self.topic);
                shrink_map(&mut inner.sinks);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MemoryLog, Retention, TOPIC};
    use crate::config::Kind;
    use crate::log::{Append, Entry, LogError};
    use std::sync::Arc;

    fn put(log: &MemoryLog, kind: Kind, topic: &str, key: Option<&str>, data: &str) -> u64 {
        let append = Append { kind, key: key.map(Into::into), data: data.into(), id: None };
        log.lock().append(&Arc::from(topic), append).unwrap()
    }

    fn read(log: &MemoryLog, topic: &str, after: impl Into<Option<u64>>) -> Result<Vec<String>, LogError> {
        let (mut all, mut after) = (Vec::new(), after.into());
        loop {
            let page = log.lock().read(&Arc::from(topic), after)?;
            all.extend(page.entries.iter().map(|Entry { data, .. }| data.to_string()));
            after = Some(page.upto.offset);
            if page.upto.offset == log.lock().last {
                return Ok(all);
            }
        }
    }

    #[test]
    fn a_reader_gets_everything_after_its_offset_or_is_too_late() {
        let log = MemoryLog::new(Retention { entries: 500, ..Retention::default() });
        let offsets: Vec<u64> = (0..600).map(|n| put(&log, Kind::History, "a", None, &n.to_string())).collect();
        put(&log, Kind::History, "b", None, "0");
        for (from, offset) in offsets.iter().enumerate().skip(99) {
            let expected: Vec<_> = (from + 1..600).map(|n| n.to_string()).collect();
            assert_eq!(read(&log, "a", *offset).unwrap(), expected);
        }
        assert_eq!(read(&log, "a", offsets[98]), Err(LogError::TooLate));
        assert_eq!(read(&log, "unknown", 5), Ok(Vec::new()));
    }

    #[test]
    fn a_conflating_topic_keeps_the_latest_of_each_key() {
        let log = MemoryLog::default();
        let mut between = 0;
        for round in 0..10 {
            for key in ["x", "y", "z"] {
                let offset = put(&log, Kind::Latest, "p", Some(key), &format!("{key}{round}"));
                if (round, key) == (9, "x") {
                    between = offset;
                }
            }
        }
        assert_eq!(read(&log, "p", None).unwrap(), ["x9", "y9", "z9"]);
        assert_eq!(read(&log, "p", between).unwrap(), ["y9", "z9"]);
    }

    #[test]
    fn memory_is_bounded_and_forgotten_messages_are_told() {
        let log = MemoryLog::new(Retention { bytes: 100_000, ..Retention::default() });
        let first = put(&log, Kind::History, "first", None, "1");
        put(&log, Kind::History, "first", None, "2");
        for n in 0..10_000 {
            put(&log, Kind::History, &format!("t{n}"), None, &"x".repeat(100));
            assert!(log.lock().bytes <= 100_000);
            assert!(log.lock().topics.len() <= 100_000 / TOPIC, "topics take memory, too");
        }
        assert_eq!(read(&log, "first", first), Err(LogError::TooLate));
        put(&log, Kind::History, "first", None, "3");
        assert_eq!(read(&log, "first", first), Err(LogError::TooLate), "also once it has messages again");
        for _ in 0..100 {
            put(&log, Kind::History, "large", None, &"x".repeat(50_000));
        }
        let inner = log.lock();
        assert!(inner.bytes <= 100_000 && inner.topics.len() == 1 && inner.by_age.len() == 1);
    }

    #[test]
    fn a_message_with_a_known_identifier_is_not_appended_again() {
        let log = MemoryLog::default();
        let append = Append { kind: Kind::History, key: None, data: "1".into(), id: Some("m1".into()) };
        let topic = Arc::from("a");
        let first = log.lock().append(&topic, append.clone()).unwrap();
        assert_eq!(log.lock().append(&topic, append).unwrap(), first);
        assert_eq!(read(&log, "a", 0).unwrap(), ["1"]);
    }
}
