//! CPU time, memory and placement of threads, as counted by the kernel.

use crate::Error;
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// CPU time of all threads of a process: the sum of the scheduler's run times (`/proc/PID/task/*/schedstat`, ns).
///
/// Threads that have ended are not counted, so measured threads must live through the measurement.
///
/// # Errors
/// The process has ended, or this user may not look at it.
pub fn process_time(pid: u32) -> io::Result<Duration> {
    let mut total = 0;
    let mut threads = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        match fs::read_to_string(task?.path().join("schedstat")) {
            Ok(text) => {
                total += parse_schedstat(&text)?;
                threads += 1;
            }
            // The thread has ended since the folder was listed.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound) => {}
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
    }
    if threads == 0 {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the process has ended or the kernel keeps no schedstat"));
    }
    Ok(Duration::from_nanos(total))
}

/// Clock ticks that a process spent in its own code and in the kernel (`/proc/PID/stat`), 10 ms each.
///
/// The kernel divides the scheduler's exact time between them, by what it saw at its ticks. The shares of some hundred
/// milliseconds are therefore good to a few percent.
///
/// # Errors
/// The process has ended.
pub fn process_ticks(pid: u32) -> io::Result<(u64, u64)> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat"))?)
}

/// CPU time of the calling thread.
#[must_use]
pub fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// CPU time of `work` on the calling thread.
///
/// # Errors
/// `work` failed.
pub fn timed<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<(Duration, T), Error> {
    let began = thread_time();
    let done = work()?;
    Ok((thread_time().saturating_sub(began), done))
}

/// Repeats a batch until its runs took `least` of CPU time. Returns the CPU time per item in us, and the number of items.
///
/// `batch` returns the CPU time of one run and its number of items.
///
/// # Errors
/// A batch failed.
pub fn time_per_item(
    least: Duration,
    mut batch: impl FnMut() -> Result<(Duration, usize), Error>,
) -> Result<(f64, u64), Error> {
    /// Bounds the wall time in case the CPU clock does not advance.
    const LONGEST: Duration = Duration::from_secs(60);
    let (mut total, mut items, start) = (Duration::ZERO, 0, Instant::now());
    while total < least && start.elapsed() < LONGEST {
        let (took, count) = batch()?;
        total += took;
        items += count as u64;
    }
    Ok((total.as_secs_f64() * 1e6 / items as f64, items))
}

/// Resident memory of a process in bytes.
///
/// It is exact if `smaps_rollup` may be read. Otherwise it is the kernel's running estimate (`status`), which can be off
/// by some pages for each CPU.
///
/// # Errors
/// There is no such process.
pub fn resident(pid: u32) -> io::Result<u64> {
    fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
        .and_then(|text| parse_kb(&text, "Rss:"))
        .or_else(|_| fs::read_to_string(format!("/proc/{pid}/status")).and_then(|text| parse_kb(&text, "VmRSS:")))
}

/// Resident memory of a server's process in bytes.
///
/// # Errors
/// There is no such process.
pub fn resident_memory(pid: u32) -> Result<u64, Error> {
    resident(pid)
        .map_err(|error| Error::Failed(format!("cannot read the memory of the server, process {pid}: {error}")))
}

/// CPUs that the calling thread may run on.
#[must_use]
pub fn allowed() -> Vec<usize> {
    sched_getaffinity(None)
        .map(|set| (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
        .unwrap_or_else(|_| vec![0])
}

/// CPUs of a server and of its load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// CPU of the server.
    pub server: usize,
    /// CPU of the load; the server's CPU if there is only one.
    pub load: usize,
}

impl Placement {
    /// The first two CPUs that the calling thread may run on.
    #[must_use]
    pub fn here() -> Self {
        let cpus = allowed();
        let server = cpus.first().copied().unwrap_or(0);
        Self { server, load: cpus.get(1).copied().unwrap_or(server) }
    }

    /// Whether server and load share a CPU.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        self.server == self.load
    }
}

/// Keeps the calling thread on its CPUs until dropped. Threads and processes that it starts meanwhile stay there.
#[derive(Debug)]
pub struct Pinned {
    before: CpuSet,
}

impl Pinned {
    /// Pins the calling thread to `cpu`.
    ///
    /// # Errors
    /// The thread may not run on that CPU.
    pub fn to(cpu: usize) -> Result<Self, Error> {
        Self::to_any(&[cpu])
    }

    /// Keeps the calling thread on these CPUs.
    ///
    /// # Errors
    /// The thread may not run on any of them.
    pub fn to_any(cpus: &[usize]) -> Result<Self, Error> {
        let before = sched_getaffinity(None).map_err(|error| Error::io("read the CPUs this thread may use", error))?;
        let mut set = CpuSet::new();
        for &cpu in cpus {
            if cpu >= CpuSet::MAX_CPU {
                return Err(Error::Usage(format!("CPU {cpu} does not exist")));
            }
            set.set(cpu);
        }
        sched_setaffinity(None, &set).map_err(|error| {
            Error::Usage(format!("cannot run on the CPUs {cpus:?}: {error}; allowed are {:?}", allowed()))
        })?;
        Ok(Self { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Fails only if the CPUs were removed meanwhile; then there is nothing to return to.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Lets the thread with this number run on `cpu` alone.
pub fn move_thread(thread: u32, cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    // 0 would be the calling thread.
    let thread = i32::try_from(thread).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    Ok(sched_setaffinity(Some(thread), &set)?)
}

/// Run time of `run time (ns), wait time (ns), time slices`.
fn parse_schedstat(text: &str) -> io::Result<u64> {
    text.split_ascii_whitespace()
        .next()
        .and_then(|field| field.parse().ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "schedstat has an unknown form"))
}

/// User and system time of proc_pid_stat(5). The name in parentheses may contain anything.
fn parse_stat(text: &str) -> io::Result<(u64, u64)> {
    let mut fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace().skip(11);
    let mut next = || fields.next()?.parse().ok();
    let unknown = || io::Error::new(io::ErrorKind::InvalidData, "/proc/PID/stat has an unknown form");
    next().zip(next()).ok_or_else(unknown)
}

fn parse_kb(text: &str, key: &str) -> io::Result<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(key))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|number| number.trim().parse::<u64>().ok())
        .map(|kib| kib * 1024)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("no {key} in the kernel's answer")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn parses_the_formats_of_the_kernel() {
        assert_eq!(parse_schedstat("123456789 5 7\n").unwrap(), 123_456_789);
        assert!(parse_schedstat("").is_err());
        assert_eq!(parse_stat("7 (a ) b) S 1 7 7 0 -1 4 5 6 0 0 123 45 0 0 20\n").unwrap(), (123, 45));
        assert!(parse_stat("").is_err() && parse_stat("7 (a) S 1").is_err());
        assert_eq!(parse_kb("VmPeak:\t 9 kB\nVmRSS:\t    2048 kB\n", "VmRSS:").unwrap(), 2 << 20);
        assert!(parse_kb("VmPeak:\t 9 kB\n", "VmRSS:").is_err());
    }

    #[test]
    fn work_adds_to_the_time_of_the_thread() {
        let (before, start) = (thread_time(), Instant::now());
        // Other processes may have the CPUs for a while.
        while thread_time() - before < Duration::from_millis(1) {
            assert!(start.elapsed() < PATIENCE);
        }
    }

    #[test]
    fn reads_the_time_of_another_process() {
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let before = process_time(child.id()).unwrap();
        let start = Instant::now();
        let used = || process_time(child.id()).unwrap() - before;
        while used() < Duration::from_millis(5) && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
        let (used, time) = (used(), start.elapsed());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!((Duration::from_millis(5)..time + Duration::from_secs(5)).contains(&used), "{used:?} of {time:?}");
    }

    #[test]
    fn refuses_a_process_that_does_not_exist() {
        assert!(process_time(u32::MAX).is_err());
        assert!(resident(u32::MAX).is_err());
    }

    #[test]
    fn counts_touched_memory_as_resident() {
        let block = vec![1_u8; 64 << 20];
        let resident = resident(std::process::id()).unwrap();
        assert!(resident >= block.len() as u64, "{resident}");
    }

    #[test]
    fn pinning_ends_when_dropped() {
        let before = allowed();
        let cpu = before[0];
        {
            let _pinned = Pinned::to(cpu).unwrap();
            assert_eq!(allowed(), [cpu]);
        }
        assert_eq!(allowed(), before);
        assert!(Pinned::to(usize::MAX).is_err());
    }
}
