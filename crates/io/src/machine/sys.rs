//! The unsafe part: the clock, scheduling policies, the user of a process, and tables of descriptors.
#![expect(unsafe_code, reason = "the clock, scheduling policies, users of all threads, and tables of descriptors")]

use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::io;
use std::time::Duration;

/// The time of `CLOCK_MONOTONIC` (clock_gettime(2)), of which [`Instant`](std::time::Instant) gives only differences.
///
/// The C library's function reads it without a system call, as that of rustix does, but also under valgrind.
#[must_use]
#[inline]
pub fn monotonic() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a time that may be written.
    if unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) } != 0 {
        // Linux has had this clock since 2.6, and calls of it fail only for one that is missing.
        return Duration::ZERO;
    }
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// Makes the calling thread run only while its processor has nothing else to do (`SCHED_IDLE`, sched(7)).
///
/// Any other thread that wakes up on the processor takes its place at once, whatever is left of its time slice. Beside
/// threads that never sleep it gets about three thousandths of the processor. Leaving the policy takes privileges or a
/// raised `RLIMIT_NICE`.
///
/// # Errors
/// `sched_setscheduler(2)` fails; a sandbox may forbid it.
pub fn run_when_idle() -> io::Result<()> {
    run_thread_when_idle(0)
}

/// As [`run_when_idle`], for a thread of any process of this user. Zero is the calling one.
///
/// # Errors
/// As [`run_when_idle`], and if there is no such thread.
pub fn run_thread_when_idle(thread: u32) -> io::Result<()> {
    // The kernel's `struct sched_param`: the priority. The function of musl's name always fails.
    let priority: libc::c_int = 0;
    // SAFETY: the kernel only reads the priority.
    if unsafe { libc::syscall(libc::SYS_sched_setscheduler, thread, libc::SCHED_IDLE, &raw const priority) } == 0 {
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

/// A program's promise that its threads exchange no descriptors, so that each may have a table of its own.
///
/// The kernel holds the limit of open descriptors against each table, and the threads of a process share one. A process
/// that cannot raise the limit holds as many connections as the limit says, or that number for each table.
#[derive(Clone, Copy, Debug)]
pub struct OwnDescriptors(());

impl OwnDescriptors {
    /// Makes the promise.
    ///
    /// # Safety
    /// A thread that [takes](Self::take) a table has the descriptors of that instant. Of those that are opened later, no
    /// thread with another table may use or close one, nor own a file or a socket.
    #[must_use]
    pub const unsafe fn promise() -> Self {
        Self(())
    }

    /// Gives the calling thread, and threads that it starts later, a copy of its table (`unshare(2)`, `CLONE_FILES`).
    ///
    /// Descriptors that are open now stay open in the old table too, until that ends with its last thread.
    ///
    /// # Errors
    /// The kernel has no memory for the table, or a sandbox forbids the call.
    pub fn take(self) -> io::Result<()> {
        // SAFETY: no other thread uses later descriptors, as was promised.
        Ok(unsafe { unshare_unsafe(UnshareFlags::FILES) }?)
    }
}

#[cfg(test)]
mod tests {
    use super::{OwnDescriptors, monotonic, run_when_idle};
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::time::{Duration, Instant};

    #[test]
    fn the_clock_goes_as_that_of_the_library() {
        let (before, instant) = (monotonic(), Instant::now());
        std::thread::sleep(Duration::from_millis(20));
        let of_library = instant.elapsed();
        let passed = monotonic() - before;
        assert!(passed >= of_library && passed < of_library + Duration::from_secs(1), "{passed:?}, {of_library:?}");
        assert!(!before.is_zero());
    }

    #[test]
    fn descriptors_of_a_table_of_its_own_are_unknown_to_other_threads() {
        // SAFETY: the file is used and closed by the thread that opens it.
        let own = unsafe { OwnDescriptors::promise() };
        let (name, go_on) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
        let there = std::thread::spawn(move || {
            if let Err(error) = own.take() {
                eprintln!("skipped: tables of descriptors: {error}");
                return;
            }
            let files: Vec<File> = (0..50).map(|_| File::open("/dev/null").unwrap()).collect();
            name.0.send(files[49].as_raw_fd()).unwrap();
            go_on.1.recv().unwrap();
        });
        // Nothing is sent where a sandbox forbids it.
        let Ok(number) = name.1.recv() else { return };
        // Other tests open files meanwhile, but not fifty.
        let known = std::fs::read_link(format!("/proc/self/fd/{number}"));
        go_on.0.send(()).unwrap();
        there.join().unwrap();
        assert!(known.is_err() || known.unwrap() != std::path::Path::new("/dev/null"), "{number}");
    }

    #[test]
    fn only_the_calling_thread_steps_back() {
        // SAFETY: asks about the calling thread only.
        let policy = || unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
        let before = policy();
        let there = std::thread::spawn(move || {
            run_when_idle().unwrap();
            policy()
        });
        assert_eq!(there.join().unwrap(), libc::c_long::from(libc::SCHED_IDLE));
        assert_eq!(policy(), before);
    }
}
