//! The unsafe part: scheduling policies, and the user of a process.
#![expect(unsafe_code, reason = "scheduling policies, and users of all threads")]

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

/// Makes the whole process run as another user and group, with these supplementary groups, for good.
///
/// Linux changes the user of one thread; the C library changes all of them (nptl(7)). It must be called by root, once sockets
/// are bound and keys are read. Root has no way back.
///
/// # Errors
/// The process is not root, or a system call fails. If a later one fails, the earlier ones stay in effect: end the process.
pub fn become_user(user: u32, group: u32, groups: &[u32]) -> io::Result<()> {
    let checked = |result: libc::c_int| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: the kernel reads as many groups as the slice has.
    checked(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) })?;
    // SAFETY: no pointers. Groups first, since only root can change them.
    checked(unsafe { libc::setresgid(group, group, group) })?;
    // SAFETY: no pointers.
    checked(unsafe { libc::setresuid(user, user, user) })
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
