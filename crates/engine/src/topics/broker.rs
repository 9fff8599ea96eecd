//! Topics that go beyond this host: a broker passes messages between hosts.
//!
//! ```text
//!   shards ──first/last subscriber──► interests ──Follow/Unfollow──►┐
//!   Conn::publish ────────bounded queue────────────────Publish────►│ Broker::run ◄──► other hosts
//!   shards ◄──────one shared frame──────── Inbox::deliver ◄────────┘
//! ```
//! - Subscribers on this host get a message at once: a publisher never waits for the broker.
//! - The broker learns of a topic with the host's first subscription to it, and forgets it a second after the last one.
//! - While the broker is away, topics go on within this host. [`Reach`](crate::Reach) tells publishers, and
//!   [`BrokerCounters`] count the messages that other hosts missed.

use crate::counts::totals::Totals;
use crate::threads::remote::ShardHandle;
use crate::topics::broker_link::{BrokerCounters, BrokerLink, Lines};
use crate::topics::interest::Interest;
use crate::topics::reach::Reach;
use crate::topics::topic::Scope;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tautline_conn::config::SlowConsumer;
use tautline_conn::message::Outgoing;
use tautline_ws::{Kind, Prepared};

/// The wait after a broker was lost, and its bound: it doubles with each attempt that fails.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The reason why a broker cannot be reached. It goes to the log.
pub type BrokerError = Box<dyn std::error::Error + Send + Sync>;

/// A program that passes messages between hosts, like NATS. A [`Bridge`] runs it on a thread of its own.
///
/// ```
/// # mod tautline { pub use tautline_engine::{Broker, BrokerError, BrokerLink, Order}; }
/// use std::time::Duration;
/// use tautline::{Broker, BrokerError, BrokerLink, Order};
///
/// /// Writes to standard output what other hosts would get.
/// struct Printer;
///
/// impl Broker for Printer {
///     fn name(&self) -> &str {
///         "printer"
///     }
///     fn run(&mut self, link: &mut BrokerLink) -> Result<(), BrokerError> {
///         link.connected();
///         while !link.is_stopped() {
///             while let Some(order) = link.next_order() {
///                 if let Order::Publish { topic, message } = order {
///                     println!("{topic}: {} bytes", message.payload().len());
///                 }
///             }
///             link.wait(Duration::from_secs(60));
///         }
///         Ok(())
///     }
/// }
/// # let bridge = tautline_engine::Bridge::start(Printer)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Broker: Send + 'static {
    /// The broker's name in log lines.
    fn name(&self) -> &str;

    /// Connects, reports that with [`BrokerLink::connected`], and follows [orders](BrokerLink::next_order) until the host
    /// [stops](BrokerLink::is_stopped) or the connection is lost. It may block its thread.
    ///
    /// Messages of other hosts go to the link's [`Inbox`](crate::Inbox). Those of this host must not come back.
    ///
    /// # Errors
    /// If the broker cannot be reached, or was lost. It is run again after a while, which grows with each failure.
    fn run(&mut self, link: &mut BrokerLink) -> Result<(), BrokerError>;
}

/// The connection of a host's topics to a [`Broker`]. Clones are the same; the last one ends it.
///
/// One bridge serves all servers of a process: give it to each.
#[derive(Clone)]
pub struct Bridge(Arc<Ends>);

struct Ends(Arc<Lines>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Bridge {
    /// Starts a thread that runs the broker.
    ///
    /// # Errors
    /// If the thread cannot start.
    pub fn start(broker: impl Broker) -> io::Result<Self> {
        Self::start_boxed(Box::new(broker))
    }

    fn start_boxed(broker: Box<dyn Broker>) -> io::Result<Self> {
        let (lines, link) = Lines::new();
        let thread = std::thread::Builder::new().name("tautline-broker".into());
        let own = lines.clone();
        thread.spawn(move || run(broker, link, &own))?;
        Ok(Self(Arc::new(Ends(lines))))
    }

    /// Publishes to the followers of `topic` on other hosts only. Never waits.
    ///
    /// [`Conn::publish`](crate::Conn::publish) and a server's `publish` do this by themselves.
    pub fn publish(&self, topic: &str, message: Outgoing<'_>) -> Reach {
        self.pass(&topic.into(), &Prepared::new(message.kind, message.payload))
    }

    /// Calls `listener` with each message of other hosts in `topic`, until the result is dropped.
    ///
    /// It is called on the broker's thread, and must not block.
    #[must_use]
    pub fn listen(&self, topic: &str, listener: impl Fn(Kind, &[u8]) + Send + Sync + 'static) -> Listening {
        let topic: Arc<str> = topic.into();
        let number = self.lines().listen(topic.clone(), Arc::new(listener));
        Listening { bridge: self.clone(), topic, number }
    }

    /// Has `policy` choose the policy for slow readers of messages of other hosts, by topic, instead of
    /// [`Config::slow_consumer`](crate::Config). A message of this host has that of its publisher.
    ///
    /// It is called on the broker's thread, and must not block.
    pub fn set_slow_readers(&self, policy: impl Fn(&str) -> Option<SlowConsumer> + Send + Sync + 'static) {
        self.lines().set_slow_readers(Arc::new(policy));
    }

    /// The totals so far, and the present state. For any thread; nothing waits for it.
    #[must_use]
    pub fn counters(&self) -> BrokerCounters {
        self.lines().counters()
    }

    /// Counts on from the [totals](BrokerCounters::totals) of a process before. Unknown names are left out.
    pub fn add_totals(&self, totals: &Totals) {
        self.lines().add_totals(totals);
    }

    /// Gives messages of other hosts to this shard, too.
    pub(crate) fn add_shard(&self, shard: ShardHandle) {
        self.lines().add_shard(shard);
    }

    pub(crate) fn pass(&self, topic: &Arc<str>, message: &Prepared) -> Reach {
        self.lines().pass(topic, message)
    }

    /// A shard has its first subscriber of a topic.
    pub(crate) fn follow(&self, scope: Scope, name: &str) {
        self.lines().follow(Interest::new(scope, name));
    }

    /// A shard has lost its last subscriber of a topic.
    pub(crate) fn unfollow(&self, scope: Scope, name: &str) {
        self.lines().unfollow(&Interest::new(scope, name));
    }

    fn lines(&self) -> &Lines {
        &self.0.0
    }
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bridge").field(&self.counters()).finish()
    }
}

/// A part of the program that [listens](Bridge::listen) to a topic, until this is dropped.
#[derive(Debug)]
pub struct Listening {
    bridge: Bridge,
    topic: Arc<str>,
    number: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.bridge.lines().stop_listening(&self.topic, self.number);
    }
}

/// Runs a broker again and again until the host stops.
fn run(mut broker: Box<dyn Broker>, mut link: BrokerLink, lines: &Lines) {
    let mut wait = FIRST_WAIT;
    while !lines.is_stopped() {
        let ran = catch_unwind(AssertUnwindSafe(|| broker.run(&mut link)));
        let was_connected = link.lost();
        if lines.is_stopped() {
            return;
        }
        let reason: BrokerError = match ran {
            Ok(Ok(())) => "it ended".into(),
            Ok(Err(error)) => error,
            Err(_) => "it panicked".into(),
        };
        if was_connected {
            wait = FIRST_WAIT;
        }
        let wait_now = jittered(wait);
        log::warn!("broker {}: {reason}; next attempt in {} ms", broker.name(), wait_now.as_millis());
        lines.rest(wait_now);
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// Between half of `wait` and all of it, so that hosts do not come back together.
fn jittered(wait: Duration) -> Duration {
    let mut random = [0; 1];
    // Without random numbers, hosts come back together.
    let _ = getrandom::fill(&mut random);
    wait / 2 + wait / 2 * u32::from(random[0]) / 255
}
