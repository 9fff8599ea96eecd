use crate::failure::Failure;
use crate::refusal::Refusals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::time::{Duration, Instant};

/// Have a running `taut serve` replaced by the program that is now at its path, without a disconnect.
///
/// Sends SIGUSR2, and waits until the old process has ended: connections that cannot move are closed first. If the old process
/// goes on, the reason is printed at once. The old process writes to its standard error how many have moved.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  install taut /usr/local/bin/taut && taut upgrade $(pidof taut)")]
pub(crate) struct Arguments {
    /// Process of the server.
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    process: i32,
    /// Seconds to wait for the old process's end.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    wait: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let number = arguments.process;
    let cannot = |error: rustix::io::Errno| Failure::failed(format!("cannot reach process {number}: {error}"));
    let process = Pid::from_raw(number).ok_or_else(|| Failure::usage("this is no number of a process"))?;
    let process = pidfd_open(process, PidfdFlags::empty()).map_err(cannot)?;
    // The signal would end a program that does not expect it.
    if !expects_the_signal(number) {
        return Err(Failure::usage(format!("process {number} is no `taut serve` that can be upgraded")));
    }
    // Without it the server cannot answer, and its log has the reason.
    let refusals = Refusals::listen(number).ok();
    pidfd_send_signal(&process, Signal::USR2).map_err(cannot)?;
    let end = Instant::now() + Duration::from_secs(arguments.wait);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let mut fds = vec![PollFd::new(&process, PollFlags::IN)];
        fds.extend(refusals.as_ref().map(|refusals| PollFd::new(refusals, PollFlags::IN)));
        match poll(&mut fds, Some(&left)) {
            Ok(0) => {
                let what = format!("process {number} still runs after {} s; its log has the reason", arguments.wait);
                return Err(Failure::failed(what));
            }
            Ok(_) if !fds[0].revents().is_empty() => return Ok(()),
            Ok(_) => {
                if let Some(why) = refusals.as_ref().and_then(Refusals::next) {
                    return Err(Failure::failed(why));
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(cannot(error)),
        }
    }
}

/// Whether the process is this program, and has a handler for SIGUSR2.
fn expects_the_signal(process: i32) -> bool {
    let read = |file| std::fs::read_to_string(format!("/proc/{process}/{file}")).unwrap_or_default();
    let status = read("status");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    // The name that the kernel keeps, from the path of the program.
    read("comm").trim() == "taut" && caught >> (Signal::USR2.as_raw() - 1) & 1 == 1
}
