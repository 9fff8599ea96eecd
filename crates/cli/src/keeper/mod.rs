//! A small process that stays while servers come and go: it starts the server, and each new program that takes over.
//!
//! ```text
//!  service manager, terminal, container
//!        │ signals            ▲ notifications, exit status
//!        ▼                    │
//!      keeper: no network, no keys, never confined
//!        │ starts, stops      ▲ "start a successor", "I serve", notifications
//!        ▼                    │
//!      worker ── connections ──► its successor, a worker too
//! ```
//! A server that has given up its privileges (`--harden`, `--user`) can start no program that needs them, and the first process of
//! a container may not end. The keeper can, and does not. It reads nothing but signals and the few words of its workers, and holds
//! no socket of a peer: it passes on those that a service manager has opened, and closes them.

mod children;
mod link;
mod worker;

pub(crate) use link::{Request, described};
pub(crate) use worker::{Sockets, Worker, take_stdin};

use crate::failure::Failure;
use crate::output;
use crate::supervisor::{self, Supervisor};
use crate::verdict::Teller;
use children::{Child, Children, Ended};
use link::Answer;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

type Signals = SignalDelivery<UnixStream, SignalOnly>;

/// Runs as the keeper until the last worker has ended, and ends the process with its status.
pub(crate) fn run() -> Result<(), Failure> {
    let cannot = |error: io::Error| Failure::failed(format!("cannot start the server's process: {error}"));
    output::begin();
    let mut signals = hold().map_err(cannot)?;
    let sockets = supervisor::take_sockets().map_err(|error| Failure::usage(format!("socket activation: {error}")))?;
    let supervisor = Supervisor::find();
    let mut children = Children::new(&supervisor).map_err(cannot)?;
    let first = children.start().map_err(cannot)?;
    let mut keeper = Keeper::new(children, first, supervisor);
    keeper.children.begin(first, sockets, None);
    loop {
        keeper.wait(&signals).map_err(cannot)?;
        keeper.hear();
        for signal in signals.pending() {
            keeper.obey(signal);
        }
        if let Some(code) = keeper.collect() {
            output::finish();
            std::process::exit(code);
        }
    }
}

/// Begins to hold signals. No signal that a keeper gets is for itself alone.
fn hold() -> io::Result<Signals> {
    let (read, write) = UnixStream::pair()?;
    let all = [SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
    Signals::with_pipe(read, write, SignalOnly, all)
}

struct Keeper {
    children: Children,
    /// The worker that serves, or is to serve first.
    current: Pid,
    /// The end of the current worker, while a successor may still have taken over from it.
    ended: Option<ExitStatus>,
    /// Whether that is the end of a worker that had handed over, which says nothing about the service.
    is_weak: bool,
    /// A successor that has ended without a word that it serves. It may have taken over all the same.
    gone: Option<(Pid, ExitStatus)>,
    /// Signals for a worker that does not serve yet.
    held: Vec<Signal>,
    /// Whether the server is to stop.
    stopping: bool,
    /// Whether SIGINT or SIGTERM has asked for that. Again it ends the server at once.
    asked: bool,
    killed: bool,
    supervisor: Supervisor,
    teller: Teller,
}

impl Keeper {
    fn new(children: Children, current: Pid, supervisor: Supervisor) -> Self {
        let teller = Teller::new(None);
        Self {
            children,
            current,
            ended: None,
            is_weak: false,
            gone: None,
            held: Vec::new(),
            stopping: false,
            asked: false,
            killed: false,
            supervisor,
            teller,
        }
    }

    /// Waits for a signal, or a worker's word.
    fn wait(&self, signals: &Signals) -> io::Result<()> {
        let links = self.children.links().map(|link| PollFd::new(link, PollFlags::IN));
        let mut fds: Vec<PollFd<'_>> =
            [PollFd::new(signals.get_read(), PollFlags::IN)].into_iter().chain(links).collect();
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Does what the workers have asked for.
    fn hear(&mut self) {
        for worker in self.children.workers() {
            self.hear_one(worker);
        }
    }

    fn hear_one(&mut self, worker: Pid) {
        while let Some(request) = self.children.hear(worker) {
            match request {
                Request::Serves => self.serves(worker),
                Request::Stop => self.obey(SIGQUIT),
                // It may come after the successor has said that it serves.
                Request::Moved(to) => {
                    if let Some(child) = self.children.find_mut(worker) {
                        child.has_moved = true;
                    }
                    self.teller.moved(number(worker), to);
                    if let Some((gone, status)) = self.gone.filter(|(gone, _)| number(*gone) == to) {
                        self.lose(gone, status);
                    }
                }
                // A worker that has handed over says no more for the service.
                _ if worker != self.current => {}
                Request::Successor(number, stream) => self.start_successor(worker, number, stream),
                Request::Notify(state) => self.supervisor.pass(&state),
                Request::Abandon => self.children.abandon(worker),
                Request::Refused(why) => self.teller.refuse(&why),
            }
        }
    }

    fn serves(&mut self, worker: Pid) {
        if let Some(child) = self.children.find_mut(worker) {
            child.serves = true;
        }
        self.current = worker;
        (self.ended, self.gone) = (None, None);
        for signal in std::mem::take(&mut self.held) {
            self.children.send(worker, signal);
        }
    }

    fn start_successor(&mut self, worker: Pid, request: u32, stream: OwnedFd) {
        let started = if self.stopping {
            Err("the server is stopping".to_owned())
        } else {
            self.children.start().map_err(|error| format!("cannot start the new process: {error}"))
        };
        let answer = match started {
            Ok(successor) => {
                self.children.begin(successor, Vec::new(), Some(stream));
                Answer::Started(request, number(successor))
            }
            Err(why) => Answer::NotStarted(request, why),
        };
        self.children.tell(worker, &answer);
    }

    fn obey(&mut self, signal: i32) {
        match signal {
            SIGHUP => self.forward(Signal::HUP),
            SIGUSR1 => self.forward(Signal::USR1),
            SIGUSR2 => self.forward(Signal::USR2),
            // As a server takes them: SIGQUIT again changes nothing.
            SIGQUIT if self.stopping => {}
            SIGINT | SIGTERM | SIGQUIT => {
                let is_second = self.asked && signal != SIGQUIT;
                self.asked |= signal != SIGQUIT;
                self.stopping = true;
                // The service manager may have sent the worker a signal of its own. SIGQUIT is no second one.
                let signal = if is_second { Signal::KILL } else { Signal::QUIT };
                self.children.workers().into_iter().for_each(|worker| self.children.send(worker, signal));
                self.killed |= is_second;
            }
            _ => {}
        }
    }

    /// Passes a signal on to the worker that serves, as soon as it does: without a handler it would end it.
    ///
    /// SIGHUP is meant for a successor as well, which may have read the files before.
    fn forward(&mut self, signal: Signal) {
        let is_serving = self.children.is_serving(self.current);
        if is_serving {
            self.children.send(self.current, signal);
        }
        let has_successor = || self.children.workers().into_iter().any(|worker| !self.children.is_serving(worker));
        let is_held = !is_serving || (signal == Signal::HUP && has_successor());
        if is_held && !self.held.contains(&signal) {
            self.held.push(signal);
        }
    }

    /// Collects the processes that have ended. Returns the exit code once there is no worker left.
    fn collect(&mut self) -> Option<i32> {
        while let Some(Ended { process, status }) = self.children.next_ended() {
            // Its last words are older than its end.
            self.hear_one(process);
            let Some(child) = self.children.remove(process) else { continue };
            if process == self.current {
                self.succeed(&child, status);
            } else if !child.serves {
                // A successor that has not taken over, or is about to say so. The end of one that has handed over is no news.
                self.gone = Some((process, status));
                if self.children.has_moved(self.current) {
                    self.lose(process, status);
                }
                self.children.tell(self.current, &Answer::Ended(number(process), described(status)));
            }
        }
        let status = self.ended.filter(|_| self.children.is_empty())?;
        Some(self.code(status))
    }

    /// The exit code after the end of the last worker.
    fn code(&self, status: ExitStatus) -> i32 {
        match (status.code(), status.signal()) {
            (Some(code), _) => code,
            // As a second signal ends a server without a keeper.
            _ if self.killed => 1,
            // It was stopped before it had begun to serve.
            (None, Some(SIGQUIT)) if self.stopping => 0,
            (None, signal) => {
                log::error!("the server's {}", described(status));
                // As shells report it.
                128 + signal.unwrap_or_default()
            }
        }
    }

    /// A successor has taken over and has ended. Its end is that of the service, unless another one serves.
    fn lose(&mut self, successor: Pid, status: ExitStatus) {
        log::error!("the server's new process {}, which had taken over: {}", number(successor), described(status));
        (self.ended, self.is_weak) = (Some(status), false);
    }

    /// Finds the worker that goes on after the end of the current one.
    fn succeed(&mut self, ended: &Child, status: ExitStatus) {
        // Neither one that had handed over nor one that had not taken over has failed for the service: an earlier one has.
        // The one that has taken over says how it ends itself.
        if self.ended.is_none() || !ended.has_moved && (ended.serves || self.is_weak) {
            (self.ended, self.is_weak) = (Some(status), ended.has_moved);
        }
        // One that serves goes on. A successor that has just begun says so, or ends.
        if let Some(other) = self.children.serving().or_else(|| self.children.workers().pop()) {
            self.current = other;
        }
    }
}

fn number(worker: Pid) -> u32 {
    worker.as_raw_nonzero().get().unsigned_abs()
}
