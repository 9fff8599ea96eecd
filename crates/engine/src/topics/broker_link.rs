//! The two ends between a host's topics and its broker: orders one way, messages of other hosts the other way.

use crate::counts::totals::Totals;
use crate::threads::command_queue::{Capacity, CommandReceiver, CommandSender, Rejected, Weigh, command_queue};
use crate::threads::remote::ShardHandle;
use crate::topics::interest::{Change, Interest, Interests};
use crate::topics::publications::Publication;
use crate::topics::reach::{Reach, Withheld};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tautline_conn::config::SlowConsumer;
use tautline_conn::message::Outgoing;
use tautline_io::Waker;
use tautline_ws::{Kind, Prepared};

/// Messages that wait for a broker, and their bytes. Further ones are withheld from it.
const CAPACITY: Capacity = Capacity { commands: 16_384, bytes: 16 << 20 };

/// A part of the program that hears a topic's messages of other hosts.
pub(crate) type Listener = Arc<dyn Fn(Kind, &[u8]) + Send + Sync>;

/// The policy for slow readers of a topic's messages of other hosts.
pub(crate) type SlowReaders = Arc<dyn Fn(&str) -> Option<SlowConsumer> + Send + Sync>;

/// A listener, and the number by which it is removed.
type NumberedListener = (u64, Listener);

/// A message on its way to the broker.
pub(crate) struct Passing {
    topic: Arc<str>,
    message: Prepared,
}

impl Weigh for Passing {
    fn bytes(&self) -> usize {
        self.topic.len() + self.message.payload().len()
    }
}

/// The next thing for a [`Broker`](crate::Broker) to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum Order {
    /// Have the messages of these topics sent to this host.
    Follow(Interest),
    /// They are of no interest any more.
    Unfollow(Interest),
    /// Send this message to all other hosts that follow the topic.
    Publish {
        /// The topic's name.
        topic: Arc<str>,
        /// The message. It is framed, and compressed at most once per window size, for all connections of this host.
        message: Prepared,
    },
}

/// Totals of a [`Bridge`](crate::Bridge) since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokerCounters {
    /// Whether the broker is connected now.
    pub connected: bool,
    /// Times that it connected.
    pub connects: u64,
    /// Attempts to connect that failed, and connections that were lost.
    pub failures: u64,
    /// Messages that were given to the broker.
    pub passed: u64,
    /// Messages withheld from other hosts while the broker was away.
    pub withheld_away: u64,
    /// Messages withheld from other hosts since too many waited for the broker.
    pub withheld_full: u64,
    /// Messages of other hosts.
    pub received: u64,
    /// Messages of other hosts that a loop of this host missed, since it did not keep up: once per loop.
    pub missed: u64,
    /// Topics and prefixes that this host follows now.
    pub interests: u64,
    /// Messages that wait for the broker now.
    pub waiting: u64,
}

impl BrokerCounters {
    /// The numbers that only grow, for a process that takes over.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        totals.put("connects", self.connects);
        totals.put("failures", self.failures);
        totals.put("passed", self.passed);
        totals.put("withheld_away", self.withheld_away);
        totals.put("withheld_full", self.withheld_full);
        totals.put("received", self.received);
        totals.put("missed", self.missed);
        totals
    }
}

#[derive(Default)]
struct Counts {
    connects: AtomicU64,
    failures: AtomicU64,
    passed: AtomicU64,
    withheld_away: AtomicU64,
    withheld_full: AtomicU64,
    received: AtomicU64,
    missed: AtomicU64,
}

/// The state that shards, the bridge's thread and the broker's own threads share.
pub(crate) struct Lines {
    passing: CommandSender<Passing>,
    interests: Mutex<Interests>,
    shards: RwLock<Vec<ShardHandle>>,
    listeners: RwLock<HashMap<Arc<str>, Vec<NumberedListener>>>,
    next_listener: AtomicU64,
    slow_readers: RwLock<Option<SlowReaders>>,
    is_connected: AtomicBool,
    is_stopped: AtomicBool,
    /// Whether there is news for the bridge's thread.
    news: Mutex<bool>,
    has_news: Condvar,
    waker: Mutex<Option<Waker>>,
    counts: Counts,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lines {
    /// The lines, and the broker's end.
    pub(crate) fn new() -> (Arc<Self>, BrokerLink) {
        let (passing, orders) = command_queue(CAPACITY);
        let lines = Arc::new(Self {
            passing,
            interests: Mutex::default(),
            shards: RwLock::default(),
            listeners: RwLock::default(),
            next_listener: AtomicU64::default(),
            slow_readers: RwLock::default(),
            is_connected: AtomicBool::default(),
            is_stopped: AtomicBool::default(),
            news: Mutex::default(),
            has_news: Condvar::new(),
            waker: Mutex::default(),
            counts: Counts::default(),
        });
        (lines.clone(), BrokerLink { inbox: Inbox { lines }, orders, was_connected: false })
    }

    pub(crate) fn counters(&self) -> BrokerCounters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BrokerCounters {
            connected: self.is_connected.load(Ordering::Acquire),
            connects: get(&self.counts.connects),
            failures: get(&self.counts.failures),
            passed: get(&self.counts.passed),
            withheld_away: get(&self.counts.withheld_away),
            withheld_full: get(&self.counts.withheld_full),
            received: get(&self.counts.received),
            missed: get(&self.counts.missed),
            interests: lock(&self.interests).len() as u64,
            waiting: self.passing.waiting() as u64,
        }
    }

    /// Counts on from the totals of a process before. Names that this build does not know are left out.
    pub(crate) fn add_totals(&self, totals: &Totals) {
        for (name, value) in totals.iter() {
            let count = match name {
                "connects" => &self.counts.connects,
                "failures" => &self.counts.failures,
                "passed" => &self.counts.passed,
                "withheld_away" => &self.counts.withheld_away,
                "withheld_full" => &self.counts.withheld_full,
                "received" => &self.counts.received,
                "missed" => &self.counts.missed,
                _ => continue,
            };
            count.fetch_add(value, Ordering::Relaxed);
        }
    }

    /// Gives a message to the broker, if it is connected. Never waits.
    pub(crate) fn pass(&self, topic: &Arc<str>, message: &Prepared) -> Reach {
        if !self.is_connected.load(Ordering::Acquire) {
            self.counts.withheld_away.fetch_add(1, Ordering::Relaxed);
            return Reach::ThisHost(Withheld::Away);
        }
        match self.passing.send(Passing { topic: topic.clone(), message: message.clone() }) {
            Ok(wakes) => {
                if wakes {
                    self.wake();
                }
                Reach::AllHosts
            }
            Err(Rejected::Full | Rejected::TooManyBytes) => {
                self.counts.withheld_full.fetch_add(1, Ordering::Relaxed);
                Reach::ThisHost(Withheld::Full)
            }
            Err(Rejected::Stopped) => {
                self.counts.withheld_away.fetch_add(1, Ordering::Relaxed);
                Reach::ThisHost(Withheld::Away)
            }
        }
    }

    pub(crate) fn add_shard(&self, shard: ShardHandle) {
        self.shards.write().unwrap_or_else(PoisonError::into_inner).push(shard);
    }

    pub(crate) fn follow(&self, interest: Interest) {
        if lock(&self.interests).add(interest) {
            self.wake();
        }
    }

    pub(crate) fn unfollow(&self, interest: &Interest) {
        if lock(&self.interests).remove(interest, Instant::now()) {
            self.wake();
        }
    }

    pub(crate) fn listen(&self, topic: Arc<str>, listener: Listener) -> u64 {
        let number = self.next_listener.fetch_add(1, Ordering::Relaxed);
        let mut listeners = self.listeners.write().unwrap_or_else(PoisonError::into_inner);
        listeners.entry(topic.clone()).or_default().push((number, listener));
        drop(listeners);
        self.follow(Interest::Topic(topic));
        number
    }

    pub(crate) fn stop_listening(&self, topic: &Arc<str>, number: u64) {
        let mut listeners = self.listeners.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_topic) = listeners.get_mut(topic) {
            of_topic.retain(|(other, _)| *other != number);
            if of_topic.is_empty() {
                listeners.remove(topic);
            }
        }
        drop(listeners);
        self.unfollow(&Interest::Topic(topic.clone()));
    }

    pub(crate) fn set_slow_readers(&self, policy: SlowReaders) {
        *self.slow_readers.write().unwrap_or_else(PoisonError::into_inner) = Some(policy);
    }

    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    fn wake(&self) {
        *lock(&self.news) = true;
        self.has_news.notify_one();
        let waker = lock(&self.waker).clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits for news, at most for `longest`.
    fn wait(&self, longest: Duration) {
        let news = lock(&self.news);
        let waited = self.has_news.wait_timeout_while(news, longest, |news| !*news);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }

    /// Waits for `time` or the end.
    pub(crate) fn rest(&self, time: Duration) {
        let end = Instant::now() + time;
        while !self.is_stopped()
            && let Some(left) = end.checked_duration_since(Instant::now())
            && !left.is_zero()
        {
            self.wait(left.min(Duration::from_millis(200)));
            let forgotten = lock(&self.interests).fade(Instant::now());
            debug_assert!(forgotten.is_none(), "the broker knows no interest");
        }
    }
}

/// A broker's end of the lines to this host, for the time of a [`run`](crate::Broker::run).
pub struct BrokerLink {
    inbox: Inbox,
    orders: CommandReceiver<Passing>,
    /// Whether the broker has connected in this run.
    was_connected: bool,
}

impl BrokerLink {
    /// The connection to the broker works. All topics that this host follows are [ordered](Self::next_order) from now on, and
    /// messages are taken for it.
    pub fn connected(&mut self) {
        let lines = &self.inbox.lines;
        lock(&lines.interests).begin();
        lines.counts.connects.fetch_add(1, Ordering::Relaxed);
        lines.is_connected.store(true, Ordering::Release);
        self.was_connected = true;
    }

    /// The next order, if there is one. Orders of one topic come in the order in which they were given.
    pub fn next_order(&mut self) -> Option<Order> {
        let lines = &self.inbox.lines;
        if let Some(change) = lock(&lines.interests).next(Instant::now()) {
            return Some(match change {
                Change::Begins(interest) => Order::Follow(interest),
                Change::Ends(interest) => Order::Unfollow(interest),
            });
        }
        let next = self.orders.next().or_else(|| {
            // Later orders wake the broker again, also one that was given just now.
            self.orders.woken();
            self.orders.next()
        });
        let Passing { topic, message } = next?;
        lines.counts.passed.fetch_add(1, Ordering::Relaxed);
        Some(Order::Publish { topic, message })
    }

    /// Waits until there may be an order or the host [stops](Self::is_stopped), at most for `longest`.
    pub fn wait(&mut self, longest: Duration) {
        self.inbox.lines.wait(longest.min(self.pause()));
    }

    /// The longest time after which [`next_order`](Self::next_order) has to be looked at, also without a wake.
    #[must_use]
    pub fn pause(&self) -> Duration {
        let due = lock(&self.inbox.lines.interests).due();
        due.map_or(Duration::MAX, |due| due.saturating_duration_since(Instant::now()))
    }

    /// Has `waker` woken whenever [`wait`](Self::wait) would return, for brokers that wait for more than this.
    pub fn set_waker(&mut self, waker: Waker) {
        *lock(&self.inbox.lines.waker) = Some(waker);
    }

    /// Whether this host stops, and the broker's run has to end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.inbox.lines.is_stopped()
    }

    /// The place for messages of other hosts, for any thread.
    #[must_use]
    pub fn inbox(&self) -> Inbox {
        self.inbox.clone()
    }

    /// The run has ended. Whether the broker was connected in it.
    pub(crate) fn lost(&mut self) -> bool {
        let lines = &self.inbox.lines;
        lines.is_connected.store(false, Ordering::Release);
        lock(&lines.interests).end();
        *lock(&lines.waker) = None;
        lines.counts.failures.fetch_add(u64::from(!lines.is_stopped()), Ordering::Relaxed);
        std::mem::take(&mut self.was_connected)
    }
}

impl fmt::Debug for BrokerLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BrokerLink")
    }
}

/// The place to which a broker delivers messages of other hosts. Clones are the same place.
#[derive(Clone)]
pub struct Inbox {
    lines: Arc<Lines>,
}

impl Inbox {
    /// Gives a message of another host to all subscribers of `topic` on this one. Never waits.
    ///
    /// The message is framed once for all loops. Text that is no UTF-8 is left out and counts as missed.
    pub fn deliver(&self, topic: &str, kind: Kind, payload: &[u8]) {
        if kind == Kind::Text && std::str::from_utf8(payload).is_err() {
            self.lines.counts.missed.fetch_add(1, Ordering::Relaxed);
            return log::warn!("a broker's message in topic {topic:?} is no UTF-8, so it cannot be sent as text");
        }
        self.lines.counts.received.fetch_add(1, Ordering::Relaxed);
        let listeners = self.lines.listeners.read().unwrap_or_else(PoisonError::into_inner);
        let concerned = listeners.get(topic).cloned().unwrap_or_default();
        drop(listeners);
        for (_, listener) in concerned {
            listener(kind, payload);
        }
        let shards = self.lines.shards.read().unwrap_or_else(PoisonError::into_inner);
        let Some(first) = shards.first() else { return };
        let mut message = Outgoing::binary(payload);
        message.kind = kind;
        let slow_readers = self.lines.slow_readers.read().unwrap_or_else(PoisonError::into_inner).clone();
        message.policy = slow_readers.and_then(|policy| policy(topic));
        let publication = Publication::to_topic(topic, message, first.published());
        for shard in &*shards {
            if shard.publish_encoded(publication.clone()).is_err() {
                self.lines.counts.missed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inbox")
    }
}
