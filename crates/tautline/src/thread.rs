//! Threads that run loops.

use crate::erased::ThreadLoop;
use crate::jobs::Jobs;
use crate::listeners::Listeners;
use crate::server_handle::{Left, ServerHandle, Thread, end_of, report_end};
use crate::upgrade::{Arrivals, TakeOver};
use crate::{Error, Reloader};
use std::io;
use std::num::NonZeroU32;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, PoisonError};
use tautline_engine::probe::Stamps;
use tautline_engine::{Bridge, Config, ShardHandle, Target};
use tautline_io::machine::OwnDescriptors;
use tautline_io::{Address, Driver, DriverConfig, machine};

/// The settings of loops, for servers and clients alike.
pub(crate) struct Plan {
    pub(crate) config: Arc<Config>,
    pub(crate) driver: DriverConfig,
    /// The limits of HTTP/2, if it is served.
    #[cfg(feature = "http2")]
    pub(crate) http2: Option<tautline_http2::Limits>,
    pub(crate) listen: Vec<Address>,
    pub(crate) listeners: Listeners,
    /// The targets of a client's loop.
    pub(crate) targets: Vec<Arc<Target>>,
    pub(crate) shards: usize,
    pub(crate) cpus: Vec<usize>,
    /// One read in this number has the stages of its messages measured.
    pub(crate) every: NonZeroU32,
    /// Whether stages are measured.
    pub(crate) stages: bool,
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
type Make = dyn Fn(u32, Box<dyn Driver>) -> io::Result<Box<dyn ThreadLoop>> + Send + Sync;

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

/// A server whose loops have started.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) server: ServerHandle,
    /// Each loop waits for the list of the others, and ends without it.
    pub(crate) others: Vec<Sender<Vec<ShardHandle>>>,
    pub(crate) take_over: Option<TakeOver>,
}

impl Plan {
    /// One loop with default settings, without addresses and targets.
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            config: Arc::new(Config::default()),
            driver: DriverConfig::default(),
            listen: Vec::new(),
            listeners: Listeners::default(),
            targets: Vec::new(),
            shards: 1,
            cpus: Vec::new(),
            every: NonZeroU32::MIN,
            stages: false,
            own_descriptors: None,
            bridge: None,
            take_over: None,
            arrivals: None,
            ends_idle: false,
            #[cfg(feature = "http2")]
            http2: None,
            name,
        }
    }

    /// Starts every loop, or none. They then wait until they may go on.
    pub(crate) fn launch_all(mut self, reloader: Reloader, make: Box<Make>) -> Result<Launched, Error> {
        self.reserve_descriptors();
        let Some(stream) = self.take_over.take() else { return self.start_loops(reloader, make) };
        let (take_over, arrivals, sockets) = TakeOver::greet(stream, None, self.shards).map_err(cannot_take_over)?;
        self.listeners.sockets.extend(sockets);
        self.arrivals = Some(arrivals);
        reloader.restore_tickets(take_over.tickets());
        match self.start_loops(reloader, make) {
            Ok(launched) => Ok(Launched { take_over: Some(take_over), ..launched }),
            Err(error) => {
                take_over.give_up(&error);
                Err(error)
            }
        }
    }

    /// Starts every loop, or none. Each then waits for its list of the others.
    fn start_loops(self, reloader: Reloader, make: Box<Make>) -> Result<Launched, Error> {
        let (plan, make): (Arc<Self>, Arc<Make>) = (Arc::new(self), make.into());
        let mut server =
            ServerHandle::starting(plan.shards, plan.listen.clone(), reloader, plan.bridge.clone(), plan.stages);
        let shared = plan.listeners.addresses_of_sockets()?;
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
            // Ready loops wait for the list of others, and end without it.
            drop(wakers);
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
        Ok(Launched { server, others: wakers, take_over: None })
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
        // If the list does not arrive, the server is not to go on.
        let Ok(others) = receiver.recv() else { return Ok(()) };
        shard.set_others(others);
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
        let driver = self.driver.open().map_err(|error| Error::Machine { what: "cannot open the driver", error })?;
        #[cfg(feature = "http2")]
        if let Some(limits) = self.http2 {
            return Ok(Box::new(tautline_http2::Multiplexer::new(driver, limits)));
        }
        Ok(driver)
    }

    fn shard(
        &self,
        number: u32,
        driver: Box<dyn Driver>,
        listen: &[Address],
        make: &Make,
    ) -> Result<(Box<dyn ThreadLoop>, Vec<Address>), Error> {
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
        let addresses = self.listeners.begin((number, self.shards), &mut *shard, listen)?;
        // After the probe is set: only sockets that are made then have the times of arrival.
        for target in &self.targets {
            shard.connect(target.clone());
        }
        Ok((shard, addresses))
    }
}

pub(crate) fn cannot_take_over(error: io::Error) -> Error {
    Error::Machine { what: "cannot take over from the other process", error }
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
pub(crate) fn run_to_end(shard: &mut dyn ThreadLoop, ends_idle: bool, jobs: &Jobs) -> io::Result<()> {
    shard.watch_turns();
    while !(shard.is_drained() || ends_idle && shard.is_idle()) {
        shard.turn(None)?;
        jobs.run(shard);
    }
    Ok(())
}
