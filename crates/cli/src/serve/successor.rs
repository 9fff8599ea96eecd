//! SIGUSR2: starts the program at the same path again, with the same arguments, and hands the connections over to it.

use crate::refusal::Teller;
use crate::supervisor::Supervisor;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tautline::{HandOver, ServerHandle};

/// Names a variable that tells the new process that its standard input is the socket to the old one.
const VARIABLE: &str = "TAUT_TAKE_OVER";

/// The socket to the old process, if one has started this one as its successor. The server and then the admin listener are taken
/// over through it.
pub(super) fn predecessor() -> io::Result<Option<UnixStream>> {
    if env::var_os(VARIABLE).is_none() {
        return Ok(None);
    }
    Ok(Some(io::stdin().as_fd().try_clone_to_owned()?.into()))
}

/// The means of a server to be replaced by a new process.
#[derive(Clone)]
pub(super) struct Successor {
    handle: ServerHandle,
    admin: Option<ServerHandle>,
    supervisor: Supervisor,
    /// Time that connections have to close that cannot move.
    deadline: Duration,
    /// The reason why there can be none.
    refused: Option<&'static str>,
    teller: Arc<Teller>,
    /// Whether an upgrade is on its way.
    busy: Arc<AtomicBool>,
    /// The thread of the latest upgrade. It may still tell why it has failed when the next one begins.
    upgrading: Arc<Mutex<Option<JoinHandle<()>>>>,
}

/// An upgrade is on its way while this lives.
struct Busy(Arc<AtomicBool>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Successor {
    pub(super) fn new(
        handle: &ServerHandle,
        admin: Option<ServerHandle>,
        supervisor: &Supervisor,
        deadline: Duration,
        refused: Option<&'static str>,
        teller: Teller,
    ) -> Self {
        let (handle, supervisor) = (handle.clone(), supervisor.clone());
        let teller = Arc::new(teller);
        Self { handle, admin, supervisor, deadline, refused, teller, busy: Arc::default(), upgrading: Arc::default() }
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
            }
        };
        match std::thread::Builder::new().name("upgrade".to_owned()).spawn(upgrade) {
            Ok(thread) => *self.upgrading() = Some(thread),
            Err(error) => self.refuse(&format!("no upgrade: cannot start a thread: {error}")),
        }
    }

    /// Waits for the end of an upgrade. Without its connections the server ends before the admin listener has moved.
    pub(super) fn wait(&self) {
        let thread = self.upgrading().take();
        // A panic was printed.
        thread.into_iter().for_each(|thread| _ = thread.join());
    }

    fn upgrading(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.upgrading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says why this process goes on, also to `taut upgrade`.
    fn refuse(&self, why: &str) {
        say(why);
        self.teller.tell(why);
    }

    /// Upgrades, or returns why this process goes on.
    fn upgrade(&self) -> Result<(), String> {
        if let Some(why) = self.refused {
            return Err(format!("no upgrade: {why}"));
        }
        let (child, stream) = spawn().map_err(|error| format!("no upgrade: cannot start the new process: {error}"))?;
        let mut settings = HandOver::default();
        settings.deadline = self.deadline;
        let number = child.id();
        self.supervisor.main_process(number);
        let for_admin = stream.try_clone();
        match self.handle.hand_over(stream, &settings) {
            Ok(handed) => {
                say(&format!(
                    "{} connections have moved to process {number} in {:?}; refused there: {}; closed: {}",
                    handed.moved, handed.pause, handed.refused, handed.staying
                ));
                let admin = self.admin.as_ref();
                let moved = admin.map(|admin| for_admin.and_then(|stream| admin.hand_over(stream, &settings)));
                if let Some(Err(error)) = moved {
                    say(&format!("the admin listener has not moved: {error}"));
                }
                Ok(())
            }
            Err(error) => {
                self.supervisor.main_process(std::process::id());
                end(child);
                Err(format!("no upgrade: {error}; this process goes on"))
            }
        }
    }
}

/// Starts the program that is now at the path of this one.
fn spawn() -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let program = without_suffix(std::fs::read_link("/proc/self/exe")?.into_os_string());
    let child = Command::new(program)
        .args(env::args_os().skip(1))
        .env(VARIABLE, "stdin")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()?;
    Ok((child, ours))
}

/// The path of a program without the mark that the kernel adds once another file has its place.
fn without_suffix(path: OsString) -> OsString {
    match path.as_bytes().strip_suffix(b" (deleted)") {
        Some(path) => OsStr::from_bytes(path).to_owned(),
        None => OsString::from_vec(path.into_vec()),
    }
}

fn end(mut child: Child) {
    // It may have ended by itself.
    let _ = child.kill();
    let _ = child.wait();
}

/// Prints a line, in one piece: the new process writes to the same log. `eprintln` would panic where its disk is full.
fn say(line: &str) {
    let _ = io::stderr().write_all(format!("taut: {line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::without_suffix;

    #[test]
    fn a_replaced_program_is_found_at_its_path() {
        assert_eq!(without_suffix("/usr/bin/taut (deleted)".into()), "/usr/bin/taut");
        assert_eq!(without_suffix("/usr/bin/taut".into()), "/usr/bin/taut");
    }
}
