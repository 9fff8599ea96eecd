//! Threads that run loops.

use crate::jobs::{Jobs, Loop};
use crate::upgrade::{Arrivals, TakeOver, Upgrades};
use crate::{Error, Reloader, ServerConfig};
use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tautline_engine::probe::{Stages, Stamps};
use tautline_engine::{
    Bridge, BrokerCounters, Config, ConnId, Outgoing, Reach, Receipt, Recipients, Restart, ShardHandle,
    ShardHandleError,
};
use tautline_io::machine::OwnDescriptors;
use tautline_io::{Address, Driver, DriverConfig, ListenOptions, activation, epoll, machine};
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
    shards: Vec<ShardHandle>,
    addresses: Vec<Address>,
    /// The threads that nobody waits for yet.
    threads: Arc<Mutex<Vec<Thread>>>,
    reloader: Reloader,
    left: Left,
    ends: Arc<Ends>,
    bridge: Option<Bridge>,
    /// Connections that were adopted.
    adopted: Arc<AtomicUsize>,
    /// Work for the loops, by their numbers.
    jobs: Arc<Vec<Jobs>>,
    /// Whether stages are measured.
    measures_stages: bool,
    upgrades: Arc<Mutex<Upgrades>>,
}

/// A loop's thread, which returns the loop's result.
type Thread = JoinHandle<Result<(), Error>>;

/// The loops that have ended, and why each of those that failed did.
#[derive(Debug, Default)]
struct Ends {
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
type Left = Arc<Mutex<BTreeMap<u32, Box<Stages>>>>;

impl ServerHandle {
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
    pub(crate) fn run_on(&self, number: usize, job: impl FnOnce(&mut dyn Loop) + Send + 'static) {
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
fn end_of(thread: Thread) -> Result<(), Error> {
    thread.join().unwrap_or_else(|panic| Err(error_of(&*panic)))
}

/// The error of a loop that panicked.
fn error_of(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    Error::Loop(text.unwrap_or("it panicked").to_owned())
}

/// Runs a loop, and reports its end at once.
fn report_end(number: u32, ends: &Ends, run: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(error_of(&*panic)));
    if let Err(error) = &result {
        log::error!("loop {number} has ended: {error:#}");
    }
    ends.push(result.as_ref().err().map(|error| format!("{error:#}")));
    result
}

/// The settings of loops, for servers and clients alike.
pub(crate) struct Plan {
    pub(crate) config: Arc<Config>,
    pub(crate) driver: DriverConfig,
    pub(crate) listen: Vec<Address>,
    /// Listening sockets that something else has made.
    pub(crate) sockets: Vec<OwnedFd>,
    pub(crate) shards: usize,
    pub(crate) cpus: Vec<usize>,
    pub(crate) backlog: i32,
    /// One read in this number has the stages of its messages measured.
    pub(crate) every: NonZeroU32,
    /// Whether stages are measured.
    pub(crate) stages: bool,
    /// Whether other servers may listen at the same addresses.
    pub(crate) beside_others: bool,
    /// Whether each loop has a table of descriptors of its own.
    pub(crate) own_descriptors: Option<OwnDescriptors>,
    /// The way to other hosts.
    pub(crate) bridge: Option<Bridge>,
    /// The server to take over from.
    pub(crate) take_over: Option<UnixStream>,
    /// The connections that then come to the loops.
    pub(crate) arrivals: Option<Arc<Arrivals>>,
    /// Whether a loop ends with its last connection.
    pub(crate) ends_idle: bool,
    /// Name of the threads.
    pub(crate) name: &'static str,
}

/// Descriptors of a server beside those of its connections: listening sockets, drivers, files.
const OTHERS: usize = 256;

/// Makes the loop with this number over a driver, on the thread that runs it.
type Make = dyn Fn(u32, Box<dyn Driver>) -> io::Result<Box<dyn Loop>> + Send + Sync;

/// Reports to the starting thread that a loop has its driver and then that it is ready, or why it cannot start.
type Report = Sender<Result<Step, Error>>;

enum Step {
    /// The driver is open. The loop waits for the addresses to listen at.
    Open(Sender<Vec<Address>>),
    Ready(Started),
}

/// A loop whose driver is open.
struct Opened {
    thread: Thread,
    /// Tells the loop where to listen.
    listen: Sender<Vec<Address>>,
    reported: Receiver<Result<Step, Error>>,
}

struct Started {
    handle: ShardHandle,
    addresses: Vec<Address>,
    others: Sender<Vec<ShardHandle>>,
}

impl Plan {
    /// Starts every loop, or none.
    pub(crate) fn start(mut self, reloader: Reloader, make: Box<Make>) -> Result<ServerHandle, Error> {
        self.reserve_descriptors();
        let mut take_over = None;
        if let Some(stream) = self.take_over.take() {
            let (greeted, arrivals, sockets) = TakeOver::greet(stream, None, self.shards).map_err(cannot_take_over)?;
            self.sockets.extend(sockets);
            self.arrivals = Some(arrivals);
            reloader.restore_tickets(greeted.tickets());
            take_over = Some(greeted);
        }
        let (plan, make): (Arc<Self>, Arc<Make>) = (Arc::new(self), make.into());
        let mut server = ServerHandle {
            shards: Vec::new(),
            addresses: plan.listen.clone(),
            threads: Arc::default(),
            reloader,
            left: Left::default(),
            ends: Arc::default(),
            bridge: plan.bridge.clone(),
            adopted: Arc::default(),
            jobs: Arc::new((0..plan.shards).map(|_| Jobs::default()).collect()),
            measures_stages: plan.stages,
            upgrades: Arc::default(),
        };
        let shared =
            plan.sockets.iter().map(activation::address).collect::<io::Result<Vec<_>>>().map_err(not_to_listen_on)?;
        let mut wakers = Vec::new();
        let started = plan.open_loops(&make, &server).and_then(|opened| {
            for Opened { thread, listen, reported } in opened {
                // A loop that has ended meanwhile reports nothing more.
                let _ = listen.send(server.addresses.clone());
                server.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
                let Some(Step::Ready(Started { handle, addresses, others })) = next_step(&reported)? else {
                    return Err(ended_at_once());
                };
                server.addresses = addresses;
                server.shards.push(handle);
                wakers.push(others);
            }
            Ok(())
        });
        if let Err(error) = started {
            // Ready loops wait for the list of others. Without this they would wait for ever.
            drop(wakers);
            server.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
            // Only the first error is returned, unless a loop has panicked, which says more.
            let ended = server.join();
            return Err(if matches!(error, Error::Loop(_)) { ended.err().unwrap_or(error) } else { error });
        }
        for address in shared {
            // Loops of a predecessor each had a socket at the same address.
            if !server.addresses.contains(&address) {
                server.addresses.push(address);
            }
        }
        for (number, waker) in wakers.into_iter().enumerate() {
            let mut others = server.shards.clone();
            others.remove(number);
            // A loop that has ended already does not need the list.
            let _ = waker.send(others);
        }
        match take_over.map(TakeOver::finish) {
            Some(Ok(legacy)) => {
                server.reloader.count_before(legacy.reloads);
                server.bridge.iter().for_each(|bridge| bridge.add_totals(&legacy.broker));
                server.count_upgrade(|upgrades| *upgrades = legacy.upgrades);
            }
            Some(Err(error)) => {
                // The loops end, since they are not let go.
                let ended = server.join();
                return Err(ended.err().unwrap_or_else(|| cannot_take_over(error)));
            }
            None => {}
        }
        Ok(server)
    }

    /// Makes room for the descriptors of all connections of a server, so that no loop waits for that while it serves.
    fn reserve_descriptors(&self) {
        // A table of one thread grows without a wait.
        if self.ends_idle || self.own_descriptors.is_some() {
            return;
        }
        if let Err(error) = machine::reserve_descriptors(self.config.limits.max_connections.saturating_add(OTHERS)) {
            log::debug!("the table of descriptors grows later: {error}");
        }
    }

    /// Starts a thread for each loop, and waits until each has opened its driver.
    ///
    /// A table of descriptors that a loop then takes for itself has what wakes every other loop.
    fn open_loops(self: &Arc<Self>, make: &Arc<Make>, server: &ServerHandle) -> Result<Vec<Opened>, Error> {
        let mut opened = Vec::new();
        for number in 0..self.shards {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            let (plan, make) = (self.clone(), make.clone());
            let (left, ends) = (server.left.clone(), server.ends.clone());
            let jobs = server.jobs.get(number as usize).cloned().unwrap_or_default();
            let work =
                move |report: Report| report_end(number, &ends, || plan.run((number, &left, &jobs), &*make, &report));
            opened.push(self.launch(number, work)?);
        }
        Ok(opened)
    }

    /// Starts a thread for a loop, and waits until the loop has opened its driver.
    fn launch(
        &self,
        number: u32,
        work: impl FnOnce(Report) -> Result<(), Error> + Send + 'static,
    ) -> Result<Opened, Error> {
        let (report, reported) = channel();
        let thread = std::thread::Builder::new()
            .name(format!("{}-{number}", self.name))
            .spawn(move || work(report))
            .map_err(|error| Error::Machine { what: "cannot start a thread", error })?;
        match next_step(&reported)? {
            Some(Step::Open(listen)) => Ok(Opened { thread, listen, reported }),
            // The thread panicked before it could report.
            _ => Err(end_of(thread).err().unwrap_or_else(ended_at_once)),
        }
    }

    fn run(&self, (number, left, jobs): (u32, &Left, &Jobs), make: &Make, report: &Report) -> Result<(), Error> {
        let Some(driver) = made(self.open(number), report) else { return Ok(()) };
        let (listen, addresses) = channel();
        let _ = report.send(Ok(Step::Open(listen)));
        // If the addresses do not arrive, another loop could not start.
        let Ok(listen) = addresses.recv() else { return Ok(()) };
        let Some((mut shard, addresses)) = made(self.shard(number, driver, &listen, make), report) else {
            return Ok(());
        };
        let (others, receiver): (_, Receiver<Vec<ShardHandle>>) = channel();
        if report.send(Ok(Step::Ready(Started { handle: shard.handle(), addresses, others }))).is_err() {
            return Ok(());
        }
        // If the list does not arrive, the start has failed, and a drain follows.
        shard.set_others(receiver.recv().unwrap_or_default());
        if let Some(arrivals) = &self.arrivals
            && !arrivals.take(number as usize, &mut *shard)
        {
            return Ok(());
        }
        let ran = run_to_end(&mut *shard, self.ends_idle, jobs);
        if let Some(stages) = shard.stages() {
            // Stored before the shard stops answering, so that they are available at any time.
            left.lock().unwrap_or_else(PoisonError::into_inner).insert(number, stages);
        }
        ran.map_err(|error| Error::Machine { what: "the driver failed", error })
    }

    fn open(&self, number: u32) -> Result<Box<dyn Driver>, Error> {
        if let Some(cpu) = self.cpus.get(number as usize % self.cpus.len().max(1)) {
            machine::pin_to_cpu(*cpu).map_err(|error| Error::Machine { what: "cannot pin a thread", error })?;
        }
        self.driver.open().map_err(|error| Error::Machine { what: "cannot open the driver", error })
    }

    fn shard(
        &self,
        number: u32,
        driver: Box<dyn Driver>,
        listen: &[Address],
        make: &Make,
    ) -> Result<(Box<dyn Loop>, Vec<Address>), Error> {
        if let Some(own) = self.own_descriptors {
            let what = "cannot make a table of descriptors for each loop";
            own.take().map_err(|error| Error::Machine { what, error })?;
        }
        let mut shard = make(number, driver).map_err(|error| Error::Machine { what: "cannot make a loop", error })?;
        if self.own_descriptors.is_some() {
            shard.handle().set_own_descriptors();
        }
        if self.stages {
            shard.set_probe(Box::new(Stamps::of_one_in(self.every)));
        }
        let reuse_port = self.shards > 1 || self.beside_others;
        let mut options = ListenOptions::default();
        options.backlog = self.backlog;
        options.reuse_port = reuse_port;
        let mut addresses = Vec::new();
        for address in listen {
            if number == 0 && options.reuse_port && !self.beside_others {
                refuse_occupied(address)?;
            }
            // Loops cannot share the address of a Unix socket, so the first loop has it.
            if number > 0 && !matches!(address, Address::Tcp(_)) {
                addresses.push(address.clone());
                continue;
            }
            let bound = shard.listen(address, &options);
            addresses.push(bound.map_err(|error| Error::Listen { address: address.clone(), error })?);
        }
        for socket in self.sockets_of(number).map_err(not_to_listen_on)? {
            shard.listen_on(socket).map_err(not_to_listen_on)?;
        }
        Ok((shard, addresses))
    }

    /// Copies of the listening sockets of others from which loop `number` accepts.
    ///
    /// Sockets at one address (`SO_REUSEPORT`) are dealt out to the loops. If there are fewer of them than loops, loops share
    /// them. So each loop accepts at each address, and from each socket some loop does.
    fn sockets_of(&self, number: u32) -> io::Result<Vec<OwnedFd>> {
        let addresses = self.sockets.iter().map(activation::address).collect::<io::Result<Vec<_>>>()?;
        let mut own = Vec::new();
        for (index, (socket, address)) in self.sockets.iter().zip(&addresses).enumerate() {
            let before = addresses[..index].iter().filter(|other| *other == address).count();
            let all = addresses.iter().filter(|other| *other == address).count();
            let turn = all.min(self.shards).max(1);
            if before % turn == number as usize % turn {
                own.push(socket.try_clone()?);
            }
        }
        Ok(own)
    }
}

fn cannot_take_over(error: io::Error) -> Error {
    Error::Machine { what: "cannot take over from the other process", error }
}

fn not_to_listen_on(error: io::Error) -> Error {
    Error::Machine { what: "cannot listen on a socket that this server did not make", error }
}

/// A part of a loop, unless it could not be made, which is reported.
fn made<T>(part: Result<T, Error>, report: &Report) -> Option<T> {
    part.map_err(|error| report.send(Err(error))).ok()
}

/// The next step of a loop that starts; `None` if it panicked.
fn next_step(reported: &Receiver<Result<Step, Error>>) -> Result<Option<Step>, Error> {
    reported.recv().ok().transpose()
}

fn ended_at_once() -> Error {
    Error::Loop("it ended at once".into())
}

/// Turns a loop until it is drained, or, if it `ends_idle`, until nothing is connected or connecting.
pub(crate) fn run_to_end(shard: &mut dyn Loop, ends_idle: bool, jobs: &Jobs) -> io::Result<()> {
    shard.watch_turns();
    while !(shard.is_drained() || ends_idle && shard.is_idle()) {
        shard.turn()?;
        jobs.run(shard);
    }
    Ok(())
}

/// Checks that no other server listens at an address that loops share by `SO_REUSEPORT`.
///
/// Another server of the same user could share it unnoticed, and the kernel would spread clients over both. Listening once
/// without that option fails then.
fn refuse_occupied(address: &Address) -> Result<(), Error> {
    if !matches!(address, Address::Tcp(at) if at.port() != 0) {
        return Ok(());
    }
    let mut alone = ListenOptions::default();
    alone.backlog = 0;
    let listened = epoll::Driver::new().and_then(|mut driver| driver.listen(address, &alone));
    listened.map(drop).map_err(|error| Error::Listen { address: address.clone(), error })
}
