//! The start of a new process that takes over: by this process itself, or by its keeper.

use crate::keeper::{Request, Worker, described, take_stdin};
use crate::supervisor::Supervisor;
use rustix::process::{Pid, Signal, kill_process};
use std::env;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Names a variable that tells the new process that its standard input is the socket to the old one.
const VARIABLE: &str = "TAUT_TAKE_OVER";

/// How long a process takes to end after it has closed its sockets.
const ENDING: Duration = Duration::from_secs(2);

/// Whether an old process has started this one as its successor, itself.
pub(super) fn is_successor() -> bool {
    env::var_os(VARIABLE).is_some()
}

/// The socket to the old process, if one has started this one as its successor. To be called once.
pub(super) fn predecessor() -> io::Result<Option<UnixStream>> {
    if !is_successor() {
        return Ok(None);
    }
    Ok(Some(take_stdin()?.into()))
}

/// The new process.
pub(super) enum New {
    /// A child of this process. It is not waited for while its number may be used.
    Child(Child),
    /// A child of the keeper.
    Kept(u32, Worker),
}

impl New {
    /// Starts the program that is now at the path of this one. A keeper knows its own path.
    pub(super) fn start(
        worker: Option<&Worker>,
        program: &io::Result<PathBuf>,
        supervisor: &Supervisor,
    ) -> io::Result<(Self, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        if let Some(worker) = worker {
            return Ok((Self::Kept(worker.start_successor(theirs)?, worker.clone()), ours));
        }
        let unknown =
            |error: &io::Error| io::Error::new(error.kind(), format!("the program's path is unknown: {error}"));
        let program = program.as_ref().map_err(unknown)?;
        let mut command = Command::new(program);
        supervisor.pass_on(&mut command);
        let command = command.args(env::args_os().skip(1)).env(VARIABLE, "stdin");
        let child = command.stdin(Stdio::from(OwnedFd::from(theirs))).spawn();
        let child =
            child.map_err(|error| io::Error::new(error.kind(), format!("cannot start the new process: {error}")));
        Ok((Self::Child(child?), ours))
    }

    pub(super) fn number(&self) -> u32 {
        match self {
            Self::Child(child) => child.id(),
            Self::Kept(number, _) => *number,
        }
    }

    /// Asks it to stop. A process that stops already takes no notice.
    pub(super) fn stop(&self) {
        match self {
            Self::Child(child) => signal(child, Signal::QUIT),
            Self::Kept(_, worker) => worker.ask(&Request::Stop),
        }
    }

    /// Ends it at once.
    pub(super) fn kill(&self) {
        match self {
            Self::Child(child) => signal(child, Signal::KILL),
            Self::Kept(_, worker) => worker.ask(&Request::Abandon),
        }
    }

    /// How it has ended, if it ends by itself.
    pub(super) fn how_it_ended(&mut self) -> Option<String> {
        match self {
            Self::Child(child) => {
                let start = Instant::now();
                while start.elapsed() < ENDING {
                    if let Some(status) = child.try_wait().ok()? {
                        return Some(described(status));
                    }
                    thread::sleep(Duration::from_millis(1));
                }
                None
            }
            Self::Kept(number, worker) => worker.end_of_successor(*number, ENDING),
        }
    }

    /// Ends it, if it has not ended, and collects it.
    pub(super) fn end(self) {
        match self {
            Self::Child(mut child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            Self::Kept(_, worker) => worker.ask(&Request::Abandon),
        }
    }
}

fn signal(child: &Child, signal: Signal) {
    let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // It may have ended by itself.
    process.into_iter().for_each(|process| _ = kill_process(process, signal));
}
