//! The ways in which a proxy changes, and the means to tell it.

use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};
use tautline_measure::named;

/// Time for a process until it has changed.
const PATIENCE: Duration = Duration::from_secs(10);

named! {
    /// A change of a proxy that goes on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Change {
        /// To another configuration.
        Reload = "reload",
        /// To a new process with the program at the same path.
        Program = "new program",
    }
}

/// Sends a signal.
pub(super) fn signal(pid: u32, signal: Signal) -> Result<(), String> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or("there is no such process")?;
    kill_process(pid, signal).map_err(|error| format!("a signal was not sent: {error}"))
}

/// Waits for something that a process does.
pub(super) fn wait_until(is_done: impl Fn() -> bool) -> Result<(), String> {
    let end = Instant::now() + PATIENCE;
    while !is_done() {
        if Instant::now() > end {
            return Err("it did not change in time".to_owned());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
