//! The log: where topics with history and conflating topics keep their messages.

use crate::config::Kind;
use std::fmt;
use std::sync::Arc;

/// A place in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Names the log's life. Offsets of another epoch mean nothing.
    pub epoch: Arc<str>,
    /// The offset of the last message up to here; 0 before the first.
    pub offset: u64,
}

/// A message in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place. Offsets grow within a topic, and may have gaps.
    pub offset: u64,
    /// The key, in a conflating topic.
    pub key: Option<Box<str>>,
    /// The message: a JSON text.
    pub data: Box<str>,
}

/// A message to be appended.
#[derive(Clone, Debug)]
pub struct Append {
    /// The kind of its topic.
    pub kind: Kind,
    /// The key, in a conflating topic.
    pub key: Option<Box<str>>,
    /// The message: a JSON text.
    pub data: Box<str>,
    /// A second message with the same identifier is not appended, as far as the log remembers.
    pub id: Option<Box<str>>,
}

/// Messages of a topic, in order.
#[derive(Clone, Debug)]
pub struct Page {
    /// The messages, of the first that was asked for.
    pub entries: Vec<Entry>,
    /// Every message of the topic up to this offset is in `entries` or was before them.
    pub upto: Position,
}

impl Page {
    /// Its memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let texts = |entry: &Entry| entry.data.len() + entry.key.as_ref().map_or(0, |key| key.len());
        self.entries.capacity() * size_of::<Entry>() + self.entries.iter().map(texts).sum::<usize>()
    }
}

/// The reason why a log did not do what it was asked for.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogError {
    /// Messages after that offset are not kept any more.
    TooLate,
    /// The log cannot be reached now.
    Away,
    /// The log takes no more messages now.
    Full,
    /// The log failed.
    Failed(Arc<str>),
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLate => f.write_str("messages after that offset are not kept any more"),
            Self::Away => f.write_str("the log is away; try again later"),
            Self::Full => f.write_str("the log takes no more messages now; try again later"),
            Self::Failed(reason) => write!(f, "the log failed: {reason}"),
        }
    }
}

impl fmt::Debug for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for LogError {}

/// Gets the result of a request, on any thread. It does not block.
pub type Done<T> = Box<dyn FnOnce(Result<T, LogError>) + Send>;

/// Ends when it is dropped.
pub type Following = Box<dyn Send + Sync>;

/// Keeps the messages of topics, and brings new ones to all hosts in the same order.
///
/// No method blocks. Requests that are under way are bounded by the caller.
pub trait Log: Send + Sync + 'static {
    /// Appends a message. `done` gets its place, once it is stored.
    fn append(&self, topic: &Arc<str>, append: Append, done: Done<Position>);

    /// Brings the messages of a topic to `sink` from now on, until the result is dropped. The sink first gets the place at which
    /// that begins, and then each message after it once, in order, also over outages of the log. The kind is that of the messages
    /// that are [appended](Append::kind) to the topic.
    fn follow(&self, topic: &Arc<str>, kind: Kind, sink: Arc<dyn Sink>) -> Following;

    /// Reads the messages of a topic after the offset `after`: at most some hundred, and at least one if there is one. `None` is
    /// before the first that is kept.
    fn read(&self, topic: &Arc<str>, kind: Kind, after: Option<u64>, done: Done<Page>);

    /// The memory that it takes in this process, in bytes, for the [budget](tautline::Limits::memory) of the hub's server. It is
    /// called often. The default is 0.
    fn memory(&self) -> usize {
        0
    }

    /// The part of [`memory`](Self::memory) that a topic takes as long as it is followed. It counts for those who have subscribed to
    /// the topic, when memory is short and the server looks for connections that hold much. The default is 0.
    fn memory_of_topic(&self) -> usize {
        0
    }

    /// Has it take at most this many bytes of this process, since a log that fills the budget of the hub's server leaves nothing
    /// for connections. Called before the first topic. The default does nothing.
    fn bound(&self, most: usize) {
        let _ = most;
    }
}

/// Gets the messages of a topic. No method blocks.
pub trait Sink: Send + Sync {
    /// Messages after this follow.
    fn begin(&self, at: Position);
    /// The next message.
    fn entry(&self, entry: Entry);
    /// Some messages are missing from here on. `begin` follows.
    fn lost(&self);
}
