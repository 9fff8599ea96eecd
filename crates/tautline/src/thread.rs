//! Loops on threads of their own.

use crate::{Error, Reloader, ServerConfig};
use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU32;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tautline_engine::probe::{Probe, Stages};
use tautline_engine::{Config, ConnId, Handler, Outgoing, Remote, RemoteError, Shard};
use tautline_io::{Address, Driver, ListenOptions, epoll, machine};
use tautline_tls::Engine;
use tautline_ws::CloseCode;

/// Running loops. Dropping it leaves them running; [`drain`](Self::drain) and [`join`](Self::join) end them.
#[derive(Debug)]
pub struct Running {
    remotes: Vec<Remote>,
    addresses: Vec<Address>,
    threads: Vec<Thread>,
    reloader: Reloader,
    left: Left,
}

/// A loop's thread, and what comes of it.
type Thread = JoinHandle<Result<(), Error>>;

/// What the probes of loops that have ended found, by the loop's number.
type Left = Arc<Mutex<BTreeMap<u32, Box<Stages>>>>;

impl Running {
    /// Where it listens, in the order asked for; ports of 0 are resolved.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The loops, for commands from any thread.
    #[must_use]
    pub fn remotes(&self) -> &[Remote] {
        &self.remotes
    }

    /// Sends `message` to every subscriber of `topic`.
    ///
    /// # Errors
    /// The first loop that did not take it; the others did.
    pub fn publish(&self, topic: &str, message: Outgoing<'_>) -> Result<(), RemoteError> {
        let results = self.remotes.iter().map(|remote| remote.publish(topic, message));
        results.fold(Ok(()), Result::and)
    }

    /// Sends `message` to one connection; nowhere, where that has ended.
    ///
    /// # Errors
    /// Where its loop does not take it.
    pub fn send(&self, to: ConnId, message: Outgoing<'_>) -> Result<(), RemoteError> {
        let remote = self.remotes.get(to.shard as usize).ok_or(RemoteError::Stopped)?;
        remote.send(to, message)
    }

    /// Where the time of all messages so far went; `None` where it was started without
    /// [stages](crate::Server::start_with_stages). Also after loops have ended, but never from a handler's method.
    #[must_use]
    pub fn stages(&self) -> Option<Box<Stages>> {
        let of = |(number, remote): (u32, &Remote)| {
            let left = || self.left.lock().unwrap_or_else(PoisonError::into_inner).get(&number).cloned();
            remote.stages().ok().flatten().or_else(left)
        };
        (0..).zip(&self.remotes).filter_map(of).reduce(|mut all, one| {
            all.merge(&one);
            all
        })
    }

    /// Stops accepting and closes all connections with `code` (1001 going away, 1012 service restart); what is not closed
    /// after `deadline` is cut. Returns at once; [`join`](Self::join) waits.
    pub fn drain(&self, code: CloseCode, reason: &str, deadline: Duration) {
        for remote in &self.remotes {
            // A loop that has stopped already has nothing to drain.
            let _ = remote.drain(code, reason, deadline);
        }
    }

    /// Has connections that begin from now on use another TLS configuration, as [`Reloader::reload`] does.
    ///
    /// # Errors
    /// Where it cannot be used, or there is no server or no TLS. Everything stays as it was then.
    pub fn reload(&self, config: &ServerConfig) -> Result<(), Error> {
        self.reloader.reload(config)
    }

    /// What reloads the TLS configuration from other threads.
    #[must_use]
    pub fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    /// Waits until every loop has ended.
    ///
    /// # Errors
    /// The first loop's failure.
    pub fn join(self) -> Result<(), Error> {
        self.join_with_stages().map(drop)
    }

    /// As [`join`](Self::join); gives back what [`stages`](Self::stages) has in the end.
    ///
    /// # Errors
    /// The first loop's failure.
    pub fn join_with_stages(mut self) -> Result<Option<Box<Stages>>, Error> {
        let results = std::mem::take(&mut self.threads).into_iter().map(end_of);
        results.fold(Ok(()), Result::and)?;
        Ok(self.stages())
    }
}

/// Waits for a thread; its panic is an error.
fn end_of(thread: Thread) -> Result<(), Error> {
    thread.join().unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Error::Loop(text.unwrap_or("it panicked").to_owned()))
    })
}

/// How loops are made; the same for servers and clients.
pub(crate) struct Plan {
    pub(crate) config: Arc<Config>,
    pub(crate) listen: Vec<Address>,
    pub(crate) shards: usize,
    pub(crate) cpus: Vec<usize>,
    pub(crate) backlog: i32,
    /// Reads of which a probe watches one.
    pub(crate) every: NonZeroU32,
    /// Whether other servers may listen at the same addresses.
    pub(crate) beside_others: bool,
    pub(crate) name: &'static str,
}

/// What a loop consists of, and what it does. Made once, used on every loop's thread.
pub(crate) struct Parts<E: Engine, D: Driver, H: Handler, O, M, P, Q: Probe> {
    pub(crate) engine: E,
    /// Opens the driver, on the loop's thread.
    pub(crate) open: O,
    /// Makes the application for the loop of this number.
    pub(crate) make: M,
    /// Acts on a loop before it runs.
    pub(crate) prepare: P,
    /// Makes what watches its messages.
    pub(crate) probe: fn(NonZeroU32) -> Q,
    pub(crate) work: fn(&mut Shard<E, D, H, Q>) -> io::Result<()>,
}

/// A loop, and where it listens.
type Bound<E, D, H, Q> = (Shard<E, D, H, Q>, Vec<Address>);

/// Where a loop tells that it stands, or why it does not.
type Report = Sender<Result<Started, Error>>;

struct Started {
    remote: Remote,
    addresses: Vec<Address>,
    others: Sender<Vec<Remote>>,
}

impl Plan {
    /// Starts every loop, or none.
    pub(crate) fn start<E, D, H, O, M, P, Q>(self, parts: Parts<E, D, H, O, M, P, Q>) -> Result<Running, Error>
    where
        E: Engine,
        D: Driver,
        H: Handler,
        O: Fn() -> io::Result<D> + Send + Sync + 'static,
        M: Fn(u32) -> H + Send + Sync + 'static,
        P: Fn(&mut Shard<E, D, H, Q>) + Send + Sync + 'static,
        Q: Probe,
    {
        let reloader = Reloader::new(parts.engine.clone(), self.config.offload.clone());
        let parts = Arc::new(parts);
        let plan = Arc::new(self);
        let mut running = Running {
            remotes: Vec::new(),
            addresses: plan.listen.clone(),
            threads: Vec::new(),
            reloader,
            left: Left::default(),
        };
        let mut wakers = Vec::new();
        for number in 0..plan.shards {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            let (itself, parts) = (plan.clone(), parts.clone());
            let (listen, left) = (running.addresses.clone(), running.left.clone());
            let work = move |report| itself.run((number, &left), &listen, &parts, &report);
            match plan.launch(number, work) {
                Ok((thread, Started { remote, addresses, others })) => {
                    running.addresses = addresses;
                    running.remotes.push(remote);
                    running.threads.push(thread);
                    wakers.push(others);
                }
                Err(error) => {
                    // Those that stand wait to hear of the others, and would for ever.
                    drop(wakers);
                    running.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
                    // What came of them matters less than why there are no more.
                    let _ = running.join();
                    return Err(error);
                }
            }
        }
        for (number, waker) in wakers.into_iter().enumerate() {
            let mut others = running.remotes.clone();
            others.remove(number);
            // A loop that has ended already needs no others.
            let _ = waker.send(others);
        }
        Ok(running)
    }

    /// Starts a thread for a loop, and waits until that stands.
    fn launch(
        &self,
        number: u32,
        work: impl FnOnce(Report) -> Result<(), Error> + Send + 'static,
    ) -> Result<(Thread, Started), Error> {
        let (report, reported) = channel();
        let thread = std::thread::Builder::new()
            .name(format!("{}-{number}", self.name))
            .spawn(move || work(report))
            .map_err(|error| Error::Machine { what: "cannot start a thread", error })?;
        match reported.recv() {
            Ok(started) => Ok((thread, started?)),
            // It panicked before it could tell.
            Err(_) => Err(end_of(thread).err().unwrap_or_else(|| Error::Loop("it ended at once".into()))),
        }
    }

    fn run<E, D, H, O, M, P, Q>(
        &self,
        (number, left): (u32, &Left),
        listen: &[Address],
        parts: &Parts<E, D, H, O, M, P, Q>,
        report: &Report,
    ) -> Result<(), Error>
    where
        E: Engine,
        D: Driver,
        H: Handler,
        O: Fn() -> io::Result<D>,
        M: Fn(u32) -> H,
        P: Fn(&mut Shard<E, D, H, Q>),
        Q: Probe,
    {
        let (mut shard, addresses) = match self.shard(number, listen, parts) {
            Ok(made) => made,
            Err(error) => {
                let _ = report.send(Err(error));
                return Ok(());
            }
        };
        (parts.prepare)(&mut shard);
        let (others, receiver): (_, Receiver<Vec<Remote>>) = channel();
        if report.send(Ok(Started { remote: shard.remote(), addresses, others })).is_err() {
            return Ok(());
        }
        // Without others the start was given up; a drain is on its way.
        shard.set_others(receiver.recv().unwrap_or_default());
        let worked = (parts.work)(&mut shard).map_err(|error| Error::Machine { what: "the driver failed", error });
        if let Some(stages) = shard.stages() {
            // Before the shard stops to answer, so that somebody has them at any time.
            left.lock().unwrap_or_else(PoisonError::into_inner).insert(number, stages);
        }
        worked
    }

    fn shard<E: Engine, D: Driver, H: Handler, O: Fn() -> io::Result<D>, M: Fn(u32) -> H, P, Q: Probe>(
        &self,
        number: u32,
        listen: &[Address],
        parts: &Parts<E, D, H, O, M, P, Q>,
    ) -> Result<Bound<E, D, H, Q>, Error> {
        if let Some(cpu) = self.cpus.get(number as usize % self.cpus.len().max(1)) {
            machine::pin_to_cpu(*cpu).map_err(|error| Error::Machine { what: "cannot pin a thread", error })?;
        }
        let driver = (parts.open)().map_err(|error| Error::Machine { what: "cannot open the driver", error })?;
        let handler = (parts.make)(number);
        let (config, engine) = (self.config.clone(), parts.engine.clone());
        let mut shard = Shard::with_probe(number, config, engine, driver, handler, (parts.probe)(self.every))
            .map_err(|error| Error::Machine { what: "cannot make a loop", error })?;
        let reuse_port = self.shards > 1 || self.beside_others;
        let options = ListenOptions { backlog: self.backlog, reuse_port, ..ListenOptions::default() };
        let mut addresses = Vec::new();
        for address in listen {
            if number == 0 && options.reuse_port && !self.beside_others {
                refuse_occupied(address)?;
            }
            // Unix sockets cannot be shared by address: the first loop has them.
            if number > 0 && !matches!(address, Address::Tcp(_)) {
                addresses.push(address.clone());
                continue;
            }
            let bound = shard.listen(address, &options);
            addresses.push(bound.map_err(|error| Error::Listen { address: address.clone(), error })?);
        }
        Ok((shard, addresses))
    }
}

/// Loops share an address by `SO_REUSEPORT`, and so would another server of the same user, unnoticed: the kernel would
/// spread clients over both. Listening once without it tells.
fn refuse_occupied(address: &Address) -> Result<(), Error> {
    if !matches!(address, Address::Tcp(at) if at.port() != 0) {
        return Ok(());
    }
    let alone = ListenOptions { backlog: 0, reuse_port: false, ..ListenOptions::default() };
    let listened = epoll::Driver::new().and_then(|mut driver| driver.listen(address, &alone));
    listened.map(drop).map_err(|error| Error::Listen { address: address.clone(), error })
}
