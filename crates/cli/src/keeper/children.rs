//! The processes that a keeper has started.

use super::link::{Answer, Link, Request};
use super::worker::VARIABLE;
use crate::program;
use crate::supervisor::Supervisor;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use std::env;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

/// The workers, the oldest first.
pub(super) struct Children {
    /// The path of the program, at which another one may be by now.
    program: PathBuf,
    supervisor: Supervisor,
    all: Vec<Child>,
}

/// A worker.
pub(super) struct Child {
    process: Pid,
    /// `None` once it was closed at the other end.
    link: Option<Link>,
    /// Whether it has said that it serves.
    pub(super) serves: bool,
    /// Whether it has said that its successor serves.
    pub(super) has_moved: bool,
}

/// A process that has ended.
pub(super) struct Ended {
    pub(super) process: Pid,
    pub(super) status: ExitStatus,
}

impl Children {
    pub(super) fn new(supervisor: &Supervisor) -> io::Result<Self> {
        Ok(Self { program: program::path()?, supervisor: supervisor.clone(), all: Vec::new() })
    }

    /// Starts the program that is now at the path of this one, with the same arguments.
    pub(super) fn start(&mut self) -> io::Result<Pid> {
        let (ours, theirs) = Link::pair()?;
        let mut command = Command::new(&self.program);
        command.args(env::args_os().skip(1)).env(VARIABLE, "stdin").env_remove("NOTIFY_SOCKET");
        self.supervisor.pass_on(&mut command);
        // A terminal's Ctrl-C goes to the keeper alone, which passes it on once.
        let child = command.stdin(Stdio::from(theirs.0)).process_group(0).spawn()?;
        let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let process = process.ok_or_else(|| io::Error::other("the process has no number"))?;
        self.all.push(Child { process, link: Some(ours), serves: false, has_moved: false });
        Ok(process)
    }

    /// Passes a new worker its sockets.
    pub(super) fn begin(&self, worker: Pid, sockets: Vec<OwnedFd>, predecessor: Option<OwnedFd>) {
        let sockets = sockets.into_iter().map(Answer::Socket);
        let predecessor = predecessor.map(Answer::TakeOver);
        for answer in sockets.chain(predecessor).chain([Answer::Begin]) {
            self.tell(worker, &answer);
        }
    }

    pub(super) fn links(&self) -> impl Iterator<Item = &Link> {
        self.all.iter().filter_map(|child| child.link.as_ref())
    }

    pub(super) fn workers(&self) -> Vec<Pid> {
        self.all.iter().map(|child| child.process).collect()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The next word of a worker, if one has come.
    pub(super) fn hear(&mut self, worker: Pid) -> Option<Request> {
        let child = self.find_mut(worker)?;
        let request = child.link.as_ref()?.next_request();
        request.unwrap_or_else(|_| {
            child.link = None;
            None
        })
    }

    pub(super) fn tell(&self, worker: Pid, answer: &Answer) {
        let Some(link) = self.find(worker).and_then(|child| child.link.as_ref()) else { return };
        match link.answer(answer) {
            Ok(()) => {}
            // It has ended, which is told by itself.
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {}
            Err(error) => log::warn!("cannot tell the server's process {}: {error}", worker.as_raw_nonzero()),
        }
    }

    pub(super) fn has_moved(&self, worker: Pid) -> bool {
        self.find(worker).is_some_and(|child| child.has_moved)
    }

    /// The youngest worker that serves.
    pub(super) fn serving(&self) -> Option<Pid> {
        self.all.iter().rev().find(|child| child.serves).map(|child| child.process)
    }

    pub(super) fn is_serving(&self, worker: Pid) -> bool {
        self.find(worker).is_some_and(|child| child.serves)
    }

    /// Sends a signal to a worker. Its number is its own until this process has collected it.
    pub(super) fn send(&self, worker: Pid, signal: Signal) {
        if let Err(error) = kill_process(worker, signal) {
            log::warn!("cannot signal the server's process {}: {error}", worker.as_raw_nonzero());
        }
    }

    /// Ends the successors of a worker that have not taken over.
    pub(super) fn abandon(&self, current: Pid) {
        let is_abandoned = |child: &&Child| !child.serves && child.process != current;
        self.all.iter().filter(is_abandoned).for_each(|child| self.send(child.process, Signal::KILL));
    }

    /// The next process that has ended. It may be none of the workers: the first process of a container is the parent of all
    /// that have lost theirs.
    pub(super) fn next_ended(&self) -> Option<Ended> {
        let (process, status) = wait(WaitOptions::NOHANG).ok().flatten()?;
        Some(Ended { process, status: ExitStatus::from_raw(status.as_raw()) })
    }

    /// Forgets a worker. `None` if the process is none.
    pub(super) fn remove(&mut self, worker: Pid) -> Option<Child> {
        let place = self.all.iter().position(|child| child.process == worker)?;
        Some(self.all.remove(place))
    }

    fn find(&self, worker: Pid) -> Option<&Child> {
        self.all.iter().find(|child| child.process == worker)
    }

    pub(super) fn find_mut(&mut self, worker: Pid) -> Option<&mut Child> {
        self.all.iter_mut().find(|child| child.process == worker)
    }
}
