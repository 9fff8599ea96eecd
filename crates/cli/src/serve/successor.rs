//! SIGUSR2: has the program at the same path started again, with the same arguments, and hands the connections over to it.

use super::hub_metrics::HubMetrics;
use super::starter::New;
use super::stop::Stop;
use crate::keeper::{Request, Worker};
use crate::output;
use crate::supervisor::Supervisor;
use crate::verdict::Teller;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tautline::{HandOver, HandOverError, ServerHandle};
use tautline_hub::Hub;

/// The parts of a server that an upgrade needs.
pub(super) struct Parts {
    pub(super) stop: Stop,
    /// Servers beside this one, in an order that the successor knows. Their sockets go along.
    pub(super) beside: Vec<ServerHandle>,
    pub(super) supervisor: Supervisor,
    pub(super) worker: Option<Worker>,
    /// The path of this program.
    pub(super) program: io::Result<PathBuf>,
    pub(super) teller: Teller,
    /// The hub, whose totals go along.
    pub(super) hub: HubMetrics,
    /// The reason why there can be no successor.
    pub(super) refused: Option<&'static str>,
}

/// The means of a server to be replaced by a new process.
#[derive(Clone)]
pub(super) struct Successor {
    parts: Arc<Parts>,
    /// Whether an upgrade is on its way.
    busy: Arc<AtomicBool>,
    new: Arc<Mutex<Newest>>,
    /// The thread of the latest upgrade. It may still tell why it has failed when the next one begins.
    upgrading: Arc<Mutex<Option<JoinHandle<()>>>>,
}

/// The new process, and whether the service is to end.
#[derive(Default)]
struct Newest {
    process: Option<New>,
    /// Whether it has taken over.
    has_moved: bool,
    stopping: bool,
}

/// An upgrade is on its way while this lives.
struct Busy(Arc<AtomicBool>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Successor {
    pub(super) fn new(parts: Parts) -> Self {
        Self { parts: Arc::new(parts), busy: Arc::default(), new: Arc::default(), upgrading: Arc::default() }
    }

    /// Starts the new process, on a thread of its own, unless one is on its way.
    pub(super) fn start(&self) {
        if self.busy.swap(true, Ordering::AcqRel) {
            return self.refuse("an upgrade is on its way already");
        }
        let (own, busy) = (self.clone(), Busy(self.busy.clone()));
        let upgrade = move || {
            let result = own.upgrade();
            // The next one may begin as soon as anybody has heard of a failure.
            drop(busy);
            if let Err(why) = result {
                own.refuse(&why);
                // A stop that came meanwhile has waited for this.
                if own.newest().stopping {
                    own.parts.stop.drain();
                }
            }
        };
        match std::thread::Builder::new().name("upgrade".to_owned()).spawn(upgrade) {
            Ok(thread) => *self.upgrading() = Some(thread),
            Err(error) => self.refuse(&format!("no upgrade: cannot start a thread: {error}")),
        }
    }

    /// Forbids upgrades, since the service is to end. Returns whether this process alone has the connections, and keeps them.
    pub(super) fn forbid(&self) -> bool {
        let mut newest = self.newest();
        newest.stopping = newest.process.is_none() && !self.busy.load(Ordering::Acquire);
        newest.stopping
    }

    /// Stops the service: the successor too, if there is one.
    ///
    /// Returns whether this process is to drain its connections now. During an upgrade it does so once that has failed: until
    /// then they may be those of the new process.
    pub(super) fn stop(&self) -> bool {
        let mut newest = self.newest();
        newest.stopping = true;
        if let Some(worker) = &self.parts.worker {
            worker.ask(&Request::Stop);
        }
        newest.process.iter().for_each(New::stop);
        newest.process.is_none() && !self.busy.load(Ordering::Acquire)
    }

    /// Ends the successor at once, if there is one.
    pub(super) fn kill(&self) {
        self.newest().process.iter().for_each(New::kill);
    }

    /// Waits for the end of an upgrade.
    pub(super) fn wait(&self) {
        let thread = self.upgrading().take();
        // A panic was printed.
        thread.into_iter().for_each(|thread| _ = thread.join());
    }

    fn upgrading(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.upgrading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        self.new.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says why this process goes on, also to `taut upgrade`.
    fn refuse(&self, why: &str) {
        say(why);
        self.parts.teller.refuse(why);
    }

    /// Upgrades, or returns why this process goes on.
    fn upgrade(&self) -> Result<(), String> {
        let Parts { stop, supervisor, teller, hub, .. } = &*self.parts;
        let (number, stream) = self.begin().map_err(|why| {
            stop.handle.count_failed_upgrade();
            format!("no upgrade: {why}")
        })?;
        let mut settings = HandOver::default();
        settings.deadline = stop.deadline;
        settings.totals = hub.hub().map(Hub::totals).unwrap_or_default();
        settings.also.extend(self.parts.beside.clone());
        let handed = stop.handle.hand_over(stream, &settings).map_err(|error| self.give_up(&error))?;
        self.newest().has_moved = true;
        supervisor.main_process(number);
        say(&format!(
            "{} connections have moved to process {number} in {:?}; refused there: {}; closed: {}",
            handed.moved, handed.pause, handed.refused, handed.staying
        ));
        teller.moved(std::process::id(), number);
        Ok(())
    }

    /// Starts the new process. Returns its number, and the socket to it.
    fn begin(&self) -> Result<(u32, UnixStream), String> {
        if let Some(why) = self.parts.refused {
            return Err(why.to_owned());
        }
        let mut newest = self.newest();
        if newest.stopping {
            return Err("the server is stopping".to_owned());
        }
        // That one stays the process to which a stop is passed on.
        if let Some(process) = newest.process.as_ref().filter(|_| newest.has_moved) {
            return Err(format!("process {} has taken over already, and serves", process.number()));
        }
        let started = New::start(self.parts.worker.as_ref(), &self.parts.program, &self.parts.supervisor);
        let (new, stream) = started.map_err(|error| error.to_string())?;
        let number = new.number();
        newest.process = Some(new);
        Ok((number, stream))
    }

    /// Ends a successor that has not taken over, or not for long, and says why this process goes on.
    fn give_up(&self, error: &HandOverError) -> String {
        let Some(mut new) = self.newest().process.take() else { return format!("no upgrade: {error}") };
        let has_closed = |error: &io::Error| {
            use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
            matches!(error.kind(), UnexpectedEof | BrokenPipe | ConnectionReset)
        };
        let ended = match error {
            HandOverError::Failed(error) if !has_closed(error) => None,
            _ => new.how_it_ended(),
        };
        new.end();
        match (error, ended) {
            (HandOverError::Failed(_), Some(how)) => format!("no upgrade: the new {how}; this process goes on"),
            (error, Some(how)) => format!("no upgrade: {error}; the new {how}; this process goes on"),
            (error, None) => format!("no upgrade: {error}; this process goes on"),
        }
    }
}

fn say(line: &str) {
    output::note(format_args!("taut: {line}"));
}
