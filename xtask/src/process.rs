//! Commands with deadlines. Each child leads a process group, so that the processes it starts end with it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::outcome::Failure;

/// The leaders of the groups that are running.
static GROUPS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// A point in time at which a command is stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    pub(crate) fn passed(self) -> bool {
        Instant::now() >= self.0
    }

    /// The earlier of this deadline and `time` from now.
    pub(crate) fn within(self, time: Duration) -> Self {
        Self(self.0.min(Instant::now() + time))
    }
}

/// A running command. Dropping it kills its process group.
#[derive(Debug)]
pub(crate) struct Running {
    name: String,
    child: process::Child,
    over: bool,
}

impl Running {
    /// Starts a command with nothing on its standard input.
    pub(crate) fn start(command: &mut Command) -> Result<Self, Failure> {
        let name = describe(command);
        let child = command.stdin(Stdio::null()).process_group(0).spawn();
        let child = child.map_err(|error| Failure::Failed(format!("cannot start `{name}`: {error}")))?;
        groups(|set| set.insert(child.id()));
        Ok(Self { name, child, over: false })
    }

    /// Starts a command whose output goes to a file.
    pub(crate) fn start_logged(command: &mut Command, log: &Path) -> Result<Self, Failure> {
        if let Some(folder) = log.parent() {
            fs::create_dir_all(folder)?;
        }
        let file = File::create(log)?;
        command.stdout(file.try_clone()?).stderr(file);
        Self::start(command)
    }

    /// Waits for the end; `None` if the deadline comes first.
    pub(crate) fn wait(&mut self, deadline: Deadline) -> Result<Option<ExitStatus>, Failure> {
        let mut pause = Duration::from_millis(2);
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.over = true;
                groups(|set| set.remove(&self.child.id()));
                return Ok(Some(status));
            }
            if deadline.passed() {
                return Ok(None);
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    /// Sends SIGTERM and waits; `None` if the command has not ended after `grace`.
    pub(crate) fn terminate(&mut self, grace: Duration) -> Result<Option<ExitStatus>, Failure> {
        self.signal(Signal::TERM);
        self.wait(Deadline::after(grace))
    }

    /// Whether the command has ended.
    pub(crate) fn ended(&mut self) -> Result<bool, Failure> {
        Ok(self.wait(Deadline::after(Duration::ZERO))?.is_some())
    }

    /// Waits until its log is as `is_ready` wants it, for a minute at most. Fails with the end of the log, and with `why`.
    pub(crate) fn wait_for(&mut self, log: &Path, is_ready: impl Fn(&str) -> bool, why: &str) -> Result<(), Failure> {
        let deadline = Deadline::after(Duration::from_secs(60));
        while !is_ready(&fs::read_to_string(log)?) {
            if deadline.passed() || self.ended()? {
                show_tail(log, 20);
                return Err(why.into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        if !self.over {
            signal_group(self.child.id(), signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.over {
            self.signal(Signal::KILL);
            // An error means that the child has ended already.
            let _ = self.child.wait();
            groups(|set| set.remove(&self.child.id()));
        }
    }
}

/// Runs a command whose output goes to the terminal.
pub(crate) fn run(command: &mut Command, deadline: Deadline) -> Result<(), Failure> {
    eprintln!("$ {}", describe(command));
    let mut running = Running::start(command)?;
    finish(&mut running, deadline)
}

/// Runs a command whose output goes to a file, and prints the end of the file if it fails.
pub(crate) fn run_logged(command: &mut Command, log: &Path, deadline: Deadline) -> Result<(), Failure> {
    let mut running = Running::start_logged(command, log)?;
    finish(&mut running, deadline).inspect_err(|_| show_tail(log, 30))
}

/// Runs a command whose output goes to a file, and from there to the terminal.
pub(crate) fn run_copied(command: &mut Command, log: &Path, deadline: Deadline) -> Result<(), Failure> {
    eprintln!("$ {}", describe(command));
    let mut running = Running::start_logged(command, log)?;
    let mut output = File::open(log)?;
    loop {
        let ended = running.wait(deadline.within(Duration::from_millis(200)))?.is_some();
        io::copy(&mut output, &mut io::stdout())?;
        if ended || deadline.passed() {
            return finish(&mut running, deadline);
        }
    }
}

/// Runs commands at the same time, each with a log, and prints the end of each log.
pub(crate) fn run_all(commands: Vec<(Command, PathBuf)>, deadline: Deadline) -> Result<(), Failure> {
    let mut running = Vec::new();
    for (mut command, log) in commands {
        eprintln!("$ {}", describe(&command));
        running.push((Running::start_logged(&mut command, &log)?, log));
    }
    let mut outcome = Ok(());
    for (mut running, log) in running {
        let done = finish(&mut running, deadline);
        show_tail(&log, if done.is_ok() { 3 } else { 40 });
        outcome = outcome.and(done);
    }
    outcome
}

/// Runs a short command and returns its standard output, or `None` if it fails or cannot run.
pub(crate) fn output(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a short command, and returns what it prints, or what it prints to standard error if it fails.
pub(crate) fn run_quietly(command: &mut Command) -> Result<Result<String, String>, Failure> {
    let name = describe(command);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| Failure::Failed(format!("cannot start `{name}`: {error}")))?;
    let [printed, told] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    Ok(if output.status.success() { Ok(printed) } else { Err(told) })
}

/// The standard output of a short command that has to succeed.
pub(crate) fn printed(command: &mut Command) -> Result<String, Failure> {
    let name = describe(command);
    run_quietly(command)?.map_err(|told| Failure::Failed(format!("`{name}` failed: {}", told.trim())))
}

/// Whether a short command runs and succeeds.
pub(crate) fn succeeds(program: &str, arguments: &[&str]) -> bool {
    output(Command::new(program).args(arguments)).is_some()
}

/// Prints the last lines of a log, indented, to standard error.
pub(crate) fn show_tail(log: &Path, lines: usize) {
    let Ok(bytes) = fs::read(log) else { return };
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    eprintln!("  end of {}:", log.display());
    for line in all.iter().skip(all.len().saturating_sub(lines)) {
        eprintln!("  | {line}");
    }
}

/// From now on, a signal that ends xtask kills its children first.
pub(crate) fn kill_children_on_signal() -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    thread::spawn(move || {
        if let Some(number) = signals.forever().next() {
            groups(|set| set.iter().for_each(|&leader| signal_group(leader, Signal::KILL)));
            process::exit(128 + number);
        }
    });
    Ok(())
}

fn finish(running: &mut Running, deadline: Deadline) -> Result<(), Failure> {
    match running.wait(deadline)? {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(Failure::Failed(format!("`{}`: {status}", running.name))),
        None => Err(Failure::Failed(format!("`{}` took too long and was stopped", running.name))),
    }
}

fn signal_group(leader: u32, signal: Signal) {
    if let Some(group) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        // An error means that the group has ended already.
        let _ = kill_process_group(group, signal);
    }
}

fn groups<T>(change: impl FnOnce(&mut BTreeSet<u32>) -> T) -> T {
    change(&mut GROUPS.lock().unwrap_or_else(PoisonError::into_inner))
}

fn describe(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or_else(|| command.get_program());
    let words = std::iter::once(name).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn the_exit_status_decides() {
        let deadline = Deadline::after(Duration::from_secs(20));
        assert!(run(&mut shell("exit 0"), deadline).is_ok());
        assert!(run(&mut shell("exit 3"), deadline).is_err());
        assert!(run(&mut Command::new("no-such-program"), deadline).is_err());
    }

    #[test]
    fn a_killed_command_takes_its_children_with_it() {
        let mut command = shell("sleep 60 & echo $!; wait");
        let mut running = Running::start(command.stdout(Stdio::piped())).unwrap();
        let mut line = String::new();
        io::BufRead::read_line(&mut io::BufReader::new(running.child.stdout.take().unwrap()), &mut line).unwrap();
        assert!(running.wait(Deadline::after(Duration::from_millis(10))).unwrap().is_none());
        drop(running);
        let status = || fs::read_to_string(format!("/proc/{}/stat", line.trim()));
        let gone = |text: String| text.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X']));
        let deadline = Deadline::after(Duration::from_secs(20));
        while status().is_ok_and(|text| !gone(text)) {
            assert!(!deadline.passed(), "the grandchild still runs");
            thread::sleep(Duration::from_millis(5));
        }
    }
}
