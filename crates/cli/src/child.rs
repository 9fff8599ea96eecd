//! Servers that end together with the `bench` that started them.

use crate::failure::Failure;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// Makes the kernel end this process when the thread that started it ends.
pub(crate) fn end_with_parent() -> Result<(), Failure> {
    let parent = getppid();
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| Failure::failed(format!("cannot watch the parent process: {error}")))?;
    // A parent that ended before the call above causes no signal, but this process has another parent then.
    if parent.is_none() || getppid() != parent {
        return Err(Failure::failed("the process that started this one is gone"));
    }
    Ok(())
}
