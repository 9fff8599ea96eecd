use crate::failure::Failure;
use crate::verdict::{Verdict, Verdicts};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Have a running `taut serve` or `taut proxy` replaced by the program that is now at its path, without a disconnect.
///
/// Sends SIGUSR2, and waits until the new process serves and the old one has ended: connections that cannot move are closed
/// first. If the old process goes on, the reason is printed at once. The old process writes to its standard error how many have
/// moved.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  taut upgrade $(systemctl show --property MainPID --value taut)
  taut upgrade 4711                               the number of one server, not all of `pidof taut`")]
pub(crate) struct Arguments {
    /// Processes of the server, in any order; those of several servers are upgraded one after the other.
    #[arg(value_name = "PID", required = true, value_parser = clap::value_parser!(i32).range(1..))]
    processes: Vec<i32>,
    /// Seconds to wait for each server.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    wait: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut servers: Vec<i32> = arguments.processes.iter().map(|&process| keeper_of(process)).collect();
    servers.sort_unstable();
    servers.dedup();
    // One that is no server is a slip, so nothing happens to the others.
    let servers = servers.into_iter().map(|server| Ok((server, find(server)?))).collect::<Result<Vec<_>, Failure>>()?;
    servers.into_iter().try_for_each(|(number, process)| upgrade(number, &process, arguments.wait))
}

/// A server that can be upgraded from here.
fn find(number: i32) -> Result<OwnedFd, Failure> {
    let process = open(number).map_err(|error| cannot_reach(number, error))?;
    // The signal would end a program that does not expect it.
    if !expects_the_signal(number) {
        return Err(Failure::usage(format!(
            "process {number} is no `taut serve` or `taut proxy` that can be upgraded"
        )));
    }
    if is_elsewhere(number) {
        let what = "is in a container: run `taut upgrade` there, such as `docker exec NAME /taut upgrade 1`";
        return Err(Failure::usage(format!("process {number} {what}")));
    }
    Ok(process)
}

fn upgrade(number: i32, process: &OwnedFd, seconds: u64) -> Result<(), Failure> {
    let verdicts = Verdicts::listen(number.unsigned_abs()).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => Failure::failed(format!("another `taut upgrade` waits for process {number}")),
        _ => Failure::failed(format!("cannot listen for the answer of process {number}: {error}")),
    })?;
    pidfd_send_signal(process, Signal::USR2).map_err(|error| cannot_reach(number, error))?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let verdict = loop {
        let is_over = wait(&[verdicts.as_fd(), process.as_fd()], end)?;
        match verdicts.next() {
            Some(verdict) => break verdict,
            None if is_over == Some(1) => {
                let what = format!("process {number} has ended, and has not said that another one serves");
                return Err(Failure::failed(what));
            }
            None if is_over.is_none() => {
                let what = format!("process {number} still runs after {seconds} s; its log has the reason");
                return Err(Failure::failed(what));
            }
            None => {}
        }
    };
    match verdict {
        Verdict::Refused(why) => Err(Failure::failed(why)),
        Verdict::Moved { from, to } => {
            let [from, to] = [from, to].map(|process| i32::try_from(process).unwrap_or(i32::MAX));
            wait_for_end(from, to, end)
        }
    }
}

/// Waits until the process `from` has ended, while the process `to` serves.
fn wait_for_end(from: i32, to: i32, end: Instant) -> Result<(), Failure> {
    let has_ended = || Failure::failed(format!("the new process {to} has ended; the server's log has the reason"));
    let new = open(to).map_err(|_| has_ended())?;
    let Ok(old) = open(from) else {
        return if wait(&[new.as_fd()], Instant::now())?.is_some() { Err(has_ended()) } else { Ok(()) };
    };
    match wait(&[new.as_fd(), old.as_fd()], end)? {
        Some(0) => Err(has_ended()),
        Some(_) => Ok(()),
        None => {
            Err(Failure::failed(format!("process {to} serves, but process {from} still runs; its log has the reason")))
        }
    }
}

/// Waits until one of these can be read, or has ended, and returns its place. `None` if none is by that time.
fn wait(fds: &[impl AsFd], end: Instant) -> Result<Option<usize>, Failure> {
    let mut fds: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(&mut fds, Some(&left)) {
            Ok(_) => return Ok(fds.iter().position(|fd| !fd.revents().is_empty())),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Failure::failed(format!("cannot wait for processes: {error}"))),
        }
    }
}

fn open(process: i32) -> rustix::io::Result<OwnedFd> {
    pidfd_open(Pid::from_raw(process).ok_or(rustix::io::Errno::SRCH)?, PidfdFlags::empty())
}

fn cannot_reach(process: i32, error: rustix::io::Errno) -> Failure {
    Failure::failed(format!("cannot reach process {process}: {error}"))
}

/// The keeper of a worker. Any other process itself.
fn keeper_of(process: i32) -> i32 {
    let parent = || status(process).lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok());
    if name(process) == "taut-worker" { parent().unwrap_or(process) } else { process }
}

/// Whether the process is a `taut serve` or `taut proxy`, and has a handler for SIGUSR2.
///
/// The program may have any name. So a process is one that has the argument `serve` or `proxy`, the handlers of a server, and its
/// thread for output. A server of an older build is one by its name.
fn expects_the_signal(process: i32) -> bool {
    let status = status(process);
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let catches = |signal: Signal| caught >> (signal.as_raw() - 1) & 1 == 1;
    let all = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];
    let serves = || has_argument(process, b"serve") || has_argument(process, b"proxy");
    let is_server = || all.into_iter().all(catches) && serves() && has_thread(process, "output");
    catches(Signal::USR2) && (name(process) == "taut" || is_server())
}

fn has_argument(process: i32, wanted: &[u8]) -> bool {
    let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).skip(1).any(|argument| argument == wanted)
}

fn has_thread(process: i32, wanted: &str) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let mut names = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    names.any(|name| name.trim() == wanted)
}

/// Whether the process has other names for processes and sockets than this one. False if that cannot be seen.
fn is_elsewhere(process: i32) -> bool {
    let of = |process: &str, kind: &str| std::fs::read_link(format!("/proc/{process}/ns/{kind}")).ok();
    let differs = |kind| of(&process.to_string(), kind).is_some_and(|there| Some(there) != of("self", kind));
    differs("net") || differs("pid")
}

/// The name that the kernel keeps, from the path of the program.
fn name(process: i32) -> String {
    std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default().trim().to_owned()
}

fn status(process: i32) -> String {
    std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default()
}
