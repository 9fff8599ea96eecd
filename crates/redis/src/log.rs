//! A hub's log in streams of Redis.

use crate::config::RedisConfig;
use crate::service::{Request, serve};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tautline_hub::backend::{Memory, Refusal};
use tautline_hub::{Append, Done, Following, Kind, Log, LogError, Page, Position, Sink};
use tokio::sync::mpsc;

/// Memory of a followed topic beside its name, which is here and in the client of Redis (measured in `tests/redis_memory.rs`).
const FOLLOWED: usize = 420;
/// Memory of a request for a page.
const READ: usize = 400;
/// Memory of a message on its way, beside its texts, which are there three times: the request, and what waits for the answer.
const APPEND: usize = 4_700;

/// A log in Redis, which all hosts share. Each topic with history is a stream, each conflating topic a hash with a sorted set.
///
/// An offset is a time, or the offset before it and 1. A client that returns is told that it is too late once any message of its
/// topic after its offset is not kept any more. The epoch of a topic changes if the server may have lost messages: see the chapter
/// on Redis in `docs/hub.md`.
///
/// The [memory](Log::memory) of a followed topic, of a request for a page, and of a message on its way counts. A message that
/// would pass the log's part of the budget is refused, and its client repeats it.
pub struct RedisLog {
    requests: mpsc::UnboundedSender<Request>,
    /// Memory of messages on their way, the most that it may be, and the memory of all else.
    appends: Memory,
    most: AtomicUsize,
    others: Memory,
    next: AtomicU64,
    refusal: Refusal,
}

impl RedisLog {
    /// Starts the log's thread, which connects and, after an outage, connects again.
    ///
    /// # Errors
    /// If the thread or its runtime cannot start.
    pub fn start(config: RedisConfig) -> io::Result<Self> {
        let (requests, receiver) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let refusal = Refusal::new("Redis");
        let told = refusal.clone();
        let thread = std::thread::Builder::new().name("tautline-redis".into());
        thread.spawn(move || runtime.block_on(serve(config, receiver, told)))?;
        let (appends, others) = (Memory::default(), Memory::default());
        Ok(Self { requests, appends, most: AtomicUsize::new(usize::MAX), others, next: AtomicU64::new(0), refusal })
    }

    /// Why Redis refuses this log, as long as it does.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        self.refusal.clone()
    }

    fn send(&self, request: Request) {
        // The thread lives as long as this.
        let _ = self.requests.send(request);
    }
}

impl Log for RedisLog {
    fn append(&self, topic: &Arc<str>, append: Append, done: Done<Position>) {
        // Redis may take long to answer. Messages that wait for it must not fill this process.
        let optional = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        let bytes = APPEND + 3 * (append.data.len() + optional(&append.key) + optional(&append.id));
        let Some(held) = self.appends.try_hold(bytes, self.most.load(Ordering::Relaxed)) else {
            return done(Err(LogError::Full));
        };
        self.send(Request::Append { topic: topic.clone(), append, done, held });
    }

    fn follow(&self, topic: &Arc<str>, _: Kind, sink: Arc<dyn Sink>) -> Following {
        let held = self.others.hold(FOLLOWED + 2 * topic.len());
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.send(Request::Follow { topic: topic.clone(), number, sink, held });
        Box::new(Follower { requests: self.requests.clone(), topic: topic.clone(), number })
    }

    fn read(&self, topic: &Arc<str>, _: Kind, after: Option<u64>, done: Done<Page>) {
        let held = self.others.hold(READ);
        self.send(Request::Read { topic: topic.clone(), after, done, held });
    }

    fn memory(&self) -> usize {
        self.appends.bytes() + self.others.bytes()
    }

    fn memory_of_topic(&self) -> usize {
        FOLLOWED
    }

    fn bound(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }
}

impl fmt::Debug for RedisLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisLog")
    }
}

/// Ends the following of a topic when it is dropped.
struct Follower {
    requests: mpsc::UnboundedSender<Request>,
    topic: Arc<str>,
    number: u64,
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.requests.send(Request::Unfollow { topic: self.topic.clone(), number: self.number });
    }
}
