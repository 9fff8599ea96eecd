use crate::erased::ThreadLoop;
use crate::jobs::Jobs;
use crate::upgrade::{Legacy, Upgrades};
use crate::{Error, Reloader, ServerConfig};
use std::any::Any;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tautline_engine::probe::Stages;
use tautline_engine::{
    Bridge, BrokerCounters, ConnId, Outgoing, Reach, Receipt, Recipients, Restart, ShardHandle, ShardHandleError,
    Totals,
};
use tautline_io::Address;
use tautline_ws::CloseCode;

/// A handle to running loops, for any thread. Dropping it leaves them running; [`drain`](Self::drain) ends them.
///
/// Clones are handles to the same loops. Each can [`join`](Self::join).
///
/// ```
/// use std::time::Duration;
/// use tautline::{CloseCode, Conn, Handler, Message, Outgoing, Server};
///
/// struct Room;
///
/// impl Handler for Room {
///     type State = ();
///     fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
///         conn.publish("room", Outgoing::from(&message));
///     }
/// }
///
/// let server = Server::plain().listen("127.0.0.1:0".parse()?).start(|_shard| Room)?;
/// println!("listening on {}", server.addresses()[0]);
/// server.publish("room", Outgoing::text("the server is up"))?;
/// server.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(1));
/// server.join()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ServerHandle {
    pub(crate) shards: Vec<ShardHandle>,
    pub(crate) addresses: Vec<Address>,
    /// The threads that nobody waits for yet.
    pub(crate) threads: Arc<Mutex<Vec<Thread>>>,
    reloader: Reloader,
    pub(crate) left: Left,
    pub(crate) ends: Arc<Ends>,
    bridge: Option<Bridge>,
    /// Connections that were adopted.
    adopted: Arc<AtomicUsize>,
    /// Work for the loops, by their numbers.
    pub(crate) jobs: Arc<Vec<Jobs>>,
    /// Whether stages are measured.
    measures_stages: bool,
    upgrades: Arc<Mutex<Upgrades>>,
    /// The application's totals of before.
    before: Arc<OnceLock<Totals>>,
    /// Held during an upgrade.
    upgrading: Arc<Mutex<()>>,
}

/// A loop's thread, which returns the loop's result.
pub(crate) type Thread = JoinHandle<Result<(), Error>>;

/// The loops that have ended, and why each of those that failed did.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    reasons: Mutex<Vec<Option<String>>>,
    news: Condvar,
}

impl Ends {
    fn push(&self, reason: Option<String>) {
        self.reasons.lock().unwrap_or_else(PoisonError::into_inner).push(reason);
        self.news.notify_all();
    }
}

/// The results of probes of loops that have ended, by the loop's number.
pub(crate) type Left = Arc<Mutex<BTreeMap<u32, Box<Stages>>>>;

impl ServerHandle {
    /// A handle to this number of loops, none of which runs yet.
    pub(crate) fn starting(
        loops: usize,
        addresses: Vec<Address>,
        reloader: Reloader,
        bridge: Option<Bridge>,
        measures_stages: bool,
    ) -> Self {
        Self {
            shards: Vec::new(),
            addresses,
            threads: Arc::default(),
            reloader,
            left: Left::default(),
            ends: Arc::default(),
            bridge,
            adopted: Arc::default(),
            jobs: Arc::new((0..loops).map(|_| Jobs::default()).collect()),
            measures_stages,
            upgrades: Arc::default(),
            before: Arc::default(),
            upgrading: Arc::default(),
        }
    }

    /// The addresses at which it listens, in the order given, with actual ports.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Handles to the loops, for commands from any thread.
    #[must_use]
    pub fn shards(&self) -> &[ShardHandle] {
        &self.shards
    }

    /// Sends `message` to every subscriber of `topic`, on all hosts if there is a [broker](crate::Server::bridge).
    ///
    /// # Errors
    /// The error of the first loop that did not take the message, or [`Withheld`](ShardHandleError::Withheld) if only other hosts
    /// miss it. All other loops were tried too.
    pub fn publish(&self, topic: &str, message: Outgoing<'_>) -> Result<(), ShardHandleError> {
        let reach = self.bridge.as_ref().map_or(Reach::AllHosts, |bridge| bridge.publish(topic, message));
        let results = self.shards.iter().map(|shard| shard.publish(topic, message));
        let passed = if reach == Reach::AllHosts { Ok(()) } else { Err(ShardHandleError::Withheld) };
        results.fold(Ok(()), Result::and).and(passed)
    }

    /// Sends `message` to the subscribers of a topic, to a list of connections, or to all, and calls `done` with the counts
    /// once every loop has delivered it, like [`ShardHandle::publish_counted`].
    ///
    /// # Errors
    /// The error of the first loop that did not take the message. All other loops were tried too.
    pub fn publish_counted<'r>(
        &self,
        to: impl Into<Recipients<'r>>,
        message: Outgoing<'_>,
        done: impl FnOnce(Receipt) + Send + 'static,
    ) -> Result<(), ShardHandleError> {
        let to = to.into();
        let reach = match (&self.bridge, to) {
            (Some(bridge), Recipients::Topic(topic)) => Some(bridge.publish(topic, message)),
            _ => None,
        };
        ShardHandle::publish_counted(&self.shards, to, message, move |mut receipt| {
            receipt.reach = reach;
            done(receipt);
        })
    }

    /// Sends `message` to every open connection, like [`Conn::broadcast`](crate::Conn::broadcast).
    ///
    /// # Errors
    /// The error of the first loop that did not take the message. All other loops were tried too.
    pub fn broadcast(&self, message: Outgoing<'_>) -> Result<(), ShardHandleError> {
        let results = self.shards.iter().map(|shard| shard.broadcast(message));
        results.fold(Ok(()), Result::and)
    }

    /// Sends `message` to one connection. It is discarded if the connection has ended.
    ///
    /// # Errors
    /// If the connection's loop does not take the message.
    pub fn send(&self, to: ConnId, message: Outgoing<'_>) -> Result<(), ShardHandleError> {
        let shard = self.shards.get(to.shard() as usize).ok_or(ShardHandleError::Stopped)?;
        shard.send(to, message)
    }

    /// Sends `message` to these connections. It is framed once for each loop, and discarded for connections that have ended.
    ///
    /// # Errors
    /// The error of the first loop that did not take the message. All other loops were tried too.
    pub fn send_to(&self, conns: &[ConnId], message: Outgoing<'_>) -> Result<(), ShardHandleError> {
        let concerned = |shard: &&ShardHandle| conns.iter().any(|conn| conn.shard() == shard.number());
        let results = self.shards.iter().filter(concerned).map(|shard| shard.send_to(conns, message));
        results.fold(Ok(()), Result::and)
    }

    /// Serves a connected stream socket that something else has accepted: a helper process, systemd, a loop of your own.
    ///
    /// Nothing may have been read from it. `peer` is the client's address, if it is another than that of the socket. The loops
    /// take turns. A socket that its loop cannot take is closed, and logged.
    ///
    /// # Errors
    /// If the loop does not take the command, or has a table of descriptors of its own.
    pub fn adopt(&self, socket: OwnedFd, peer: Option<Address>) -> Result<(), ShardHandleError> {
        let number = self.adopted.fetch_add(1, Ordering::Relaxed) % self.shards.len().max(1);
        self.shards.get(number).ok_or(ShardHandleError::Stopped)?.adopt(socket, peer)
    }

    /// The subscriptions on all loops that match `topic`. A connection with several of them counts for each.
    ///
    /// Waits for the loops' answers. A handler must not call it.
    ///
    /// # Errors
    /// If a loop does not answer.
    pub fn subscribers(&self, topic: &str) -> Result<usize, ShardHandleError> {
        self.shards.iter().map(|shard| shard.subscribers(topic)).sum()
    }

    /// The stages of all messages so far; `None` if it was started without [stages](crate::Server::start_with_stages).
    ///
    /// It works after loops have ended, too. A handler must not call it.
    #[must_use]
    pub fn stages(&self) -> Option<Box<Stages>> {
        let of = |(number, shard): (u32, &ShardHandle)| {
            let left = || self.left.lock().unwrap_or_else(PoisonError::into_inner).get(&number).cloned();
            shard.stages().ok().flatten().or_else(left)
        };
        (0..).zip(&self.shards).filter_map(of).reduce(|mut all, one| {
            all.merge(&one);
            all
        })
    }

    /// The totals of the [broker](crate::Server::bridge); `None` without one.
    #[must_use]
    pub fn broker_counters(&self) -> Option<BrokerCounters> {
        self.bridge.as_ref().map(Bridge::counters)
    }

    /// Whether it was started [with stages](crate::Server::start_with_stages).
    #[must_use]
    pub const fn measures_stages(&self) -> bool {
        self.measures_stages
    }

    /// Has a loop do this on its thread, after its turn.
    pub(crate) fn run_on(&self, number: usize, job: impl FnOnce(&mut dyn ThreadLoop) + Send + 'static) {
        if let (Some(jobs), Some(shard)) = (self.jobs.get(number), self.shards.get(number)) {
            jobs.push(shard, job);
        }
    }

    /// Stops accepting, and closes all connections with `code` (1001 going away, 1012 service restart).
    ///
    /// Connections that are not closed after `deadline` are aborted. This returns at once; [`join`](Self::join) waits.
    pub fn drain(&self, code: CloseCode, reason: &str, deadline: Duration) {
        for shard in &self.shards {
            // A loop that has stopped already has nothing to drain.
            let _ = shard.drain(code, reason, deadline);
        }
    }

    /// Drains like [`drain`](Self::drain) with 1012 (service restart), and tells each client after which time to come back.
    ///
    /// Clients then do not return all at once: [`Restart`]. Others connect to the next server, which may
    /// [run already](crate::Server::beside_others).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tautline::{Restart, ServerHandle};
    ///
    /// fn restart(server: ServerHandle) -> Result<(), tautline::Error> {
    ///     // The program that this one starts in its place needs about a second.
    ///     server.drain_for_restart(&Restart::default().with_pause(Duration::from_secs(1)), Duration::from_secs(10));
    ///     server.join()
    /// }
    /// ```
    pub fn drain_for_restart(&self, restart: &Restart, deadline: Duration) {
        let each = restart.for_each_of(self.shards.len());
        for shard in &self.shards {
            // A loop that has stopped already has nothing to drain.
            let _ = shard.drain_for_restart(&each, deadline);
        }
    }

    /// Makes new connections use another TLS configuration, like [`Reloader::reload`].
    ///
    /// # Errors
    /// If the configuration cannot be used, or if this is a client or has no TLS. The configuration then stays.
    pub fn reload(&self, config: &ServerConfig) -> Result<(), Error> {
        self.reloader.reload(config)
    }

    /// The means to reload the TLS configuration from other threads.
    #[must_use]
    pub fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    /// The upgrades so far, those of the processes before this one included.
    #[must_use]
    pub fn upgrades(&self) -> Upgrades {
        self.upgrades.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The totals of the application that the process before this one [handed over](crate::HandOver::totals).
    #[must_use]
    pub fn totals_before(&self) -> Totals {
        self.before.get().cloned().unwrap_or_default()
    }

    /// Counts on from the totals of a predecessor.
    pub(crate) fn go_on_from(&self, legacy: Legacy) {
        self.reloader.count_before(legacy.reloads);
        self.bridge.iter().for_each(|bridge| bridge.add_totals(&legacy.broker));
        // A server takes over once.
        let _ = self.before.set(legacy.application);
        self.count_upgrade(|upgrades| *upgrades = legacy.upgrades);
    }

    /// The lock of the one upgrade that is on its way.
    pub(crate) fn upgrading(&self) -> &Mutex<()> {
        &self.upgrading
    }

    /// Counts an upgrade that has failed before [`hand_over`](Self::hand_over), such as by a program that cannot be started.
    pub fn count_failed_upgrade(&self) {
        self.count_upgrade(|upgrades| upgrades.failed += 1);
    }

    pub(crate) fn count_upgrade(&self, count: impl FnOnce(&mut Upgrades)) {
        count(&mut self.upgrades.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether every loop runs, for checks of readiness. False at once when a loop has ended, by a drain or a failure.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.shards.iter().all(ShardHandle::is_running)
    }

    /// Whether a [drain](Self::drain) of any loop was asked for, or has ended already.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.shards.iter().any(ShardHandle::is_draining)
    }

    /// Checks that every loop turns, and waits for that at most for the time `within`. A handler must not call it.
    ///
    /// A loop that has ended by a drain is in order, and one that has failed is not.
    ///
    /// # Errors
    /// [`Error::Loop`] with the number of the first loop that has failed, or does not answer: a handler blocks it.
    pub fn check(&self, within: Duration) -> Result<(), Error> {
        let end = Instant::now() + within;
        self.shards.iter().try_for_each(|shard| {
            let number = shard.number();
            if !shard.is_running() {
                return if shard.is_draining() { Ok(()) } else { Err(Error::Loop(format!("loop {number} has ended"))) };
            }
            // A loop may answer after others have used up the time.
            let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(10));
            match shard.wait_for_turn(left) {
                Err(_) if shard.is_draining() && !shard.is_running() => Ok(()),
                result => result.map_err(|error| Error::Loop(format!("loop {number}: {error}"))),
            }
        })
    }

    /// Waits until a loop ends, and returns why it failed; `None` if it was drained.
    ///
    /// If several have ended, a failure is returned before the others' drain. A server that misses a loop goes on to serve
    /// with the other loops: [`drain`](Self::drain) ends them too.
    #[must_use]
    pub fn wait_for_end(&self) -> Option<String> {
        let reasons = self.ends.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        let reasons = self.ends.news.wait_while(reasons, |reasons| reasons.is_empty());
        reasons.unwrap_or_else(PoisonError::into_inner).iter().flatten().next().cloned()
    }

    /// Waits until every loop has ended, like the `join` of every other clone. [`wait_for_end`](Self::wait_for_end) waits for the first one.
    ///
    /// # Errors
    /// The error of the first loop that failed.
    pub fn join(self) -> Result<(), Error> {
        self.join_with_stages().map(drop)
    }

    /// Waits like [`join`](Self::join), and returns the final [`stages`](Self::stages).
    ///
    /// # Errors
    /// The error of the first loop that failed.
    pub fn join_with_stages(self) -> Result<Option<Box<Stages>>, Error> {
        // Another clone that waits holds the lock, so this one waits too.
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let results = std::mem::take(&mut *threads).into_iter().map(end_of);
        results.fold(Ok(()), Result::and)?;
        drop(threads);
        match self.ends.reasons.lock().unwrap_or_else(PoisonError::into_inner).iter().flatten().next() {
            Some(reason) => Err(Error::Loop(reason.clone())),
            None => Ok(self.stages()),
        }
    }
}

/// Waits for a thread's result.
pub(crate) fn end_of(thread: Thread) -> Result<(), Error> {
    thread.join().unwrap_or_else(|panic| Err(error_of(&*panic)))
}

/// The error of a loop that panicked.
fn error_of(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    Error::Loop(text.unwrap_or("it panicked").to_owned())
}

/// Runs a loop, and reports its end at once.
pub(crate) fn report_end(number: u32, ends: &Ends, run: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(error_of(&*panic)));
    if let Err(error) = &result {
        log::error!("loop {number} has ended: {error:#}");
    }
    ends.push(result.as_ref().err().map(|error| format!("{error:#}")));
    result
}
