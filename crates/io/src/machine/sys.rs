//! The unsafe part: scheduling policies.
#![expect(unsafe_code, reason = "scheduling policies of the kernel")]

use std::io;

/// Makes the calling thread run only while its processor has nothing else to do (`SCHED_IDLE`, sched(7)).
///
/// Any other thread that wakes up on the processor takes its place at once, whatever is left of its time slice. Beside
/// threads that never sleep it gets about three thousandths of the processor. Leaving the policy takes privileges or a
/// raised `RLIMIT_NICE`.
///
/// # Errors
/// `sched_setscheduler(2)` fails; a sandbox may forbid it.
pub fn run_when_idle() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the thread is the calling one, and the kernel only reads the parameters.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::run_when_idle;

    #[test]
    fn only_the_calling_thread_steps_back() {
        // SAFETY: asks about the calling thread only.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let before = policy();
        let there = std::thread::spawn(move || {
            run_when_idle().unwrap();
            policy()
        });
        assert_eq!(there.join().unwrap(), libc::SCHED_IDLE);
        assert_eq!(policy(), before);
    }
}
