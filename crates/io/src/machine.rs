//! Settings that a program makes before it runs drivers: processors, priorities and descriptors.

mod sys;

pub use sys::{OwnDescriptors, become_user, monotonic, run_thread_when_idle, run_when_idle};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs::read_to_string;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// System calls that drivers make only when they are opened, for programs that give up the others.
pub const SETUP_CALLS: [i64; 1] = [libc::SYS_io_uring_setup];

/// The processors that the calling thread may run on, in ascending order.
///
/// # Errors
/// `sched_getaffinity(2)` fails.
pub fn cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Lets the calling thread run on processor `cpu` only.
///
/// # Errors
/// There is no such processor, or this process may not use it.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Raises this process's soft limit of open descriptors to the hard limit, and returns it. Every connection takes one
/// descriptor; the usual soft limit is 1024.
///
/// # Errors
/// `setrlimit(2)` fails.
pub fn raise_nofile_limit() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    }
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

/// The descriptors that this process may still open: `RLIMIT_NOFILE` without those in use.
///
/// The kernel gives the lowest number that is free, so numbers below it count as used.
///
/// # Errors
/// `eventfd(2)` fails, such as with `EMFILE` if all descriptors are in use.
pub fn free_descriptors() -> io::Result<usize> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let next = eventfd(0, EventfdFlags::CLOEXEC)?.as_raw_fd();
    let free = limit.saturating_sub(u64::try_from(next).unwrap_or(0));
    Ok(usize::try_from(free).unwrap_or(usize::MAX))
}

/// Makes room for `count` descriptors in this process's table, as far as `RLIMIT_NOFILE` allows.
///
/// The kernel doubles the table when it is full. If threads share it, the one that opens a descriptor then waits until no
/// processor reads the old table (`synchronize_rcu`): 8 to 25 ms on two processors, in which a loop serves nobody. An
/// entry takes 8 bytes of the kernel's memory.
///
/// # Errors
/// `eventfd(2)` or `fcntl(2)` fails, such as with `EMFILE` if all descriptors are in use.
pub fn reserve_descriptors(count: usize) -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let highest = u64::try_from(count).unwrap_or(u64::MAX).min(limit).saturating_sub(1);
    let any = eventfd(0, EventfdFlags::CLOEXEC)?;
    // The table grows to hold the highest descriptor, which is closed again.
    fcntl_dupfd_cloexec(&any, i32::try_from(highest).unwrap_or(i32::MAX))?;
    Ok(())
}

/// Keeps this process's memory, with private keys and sessions, out of core dumps, and from other processes of its user.
///
/// `PR_SET_DUMPABLE` (prctl(2)): a crash leaves no core, debuggers and profilers need root, and root owns the process's
/// files in `/proc`. A library must not decide that for its program, so only a program calls this, before it reads a key.
///
/// # Errors
/// `prctl(2)` fails.
pub fn forbid_core_dumps() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// The memory that this process may use, in bytes: that of the machine, or the limit of its control group (cgroups(7)).
#[must_use]
pub fn memory() -> Option<u64> {
    let machine = read_to_string("/proc/meminfo").ok().and_then(|text| total_memory(&text));
    let group = read_to_string("/proc/self/cgroup").ok().and_then(|text| {
        let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
        // Each group above can have a lower limit.
        let groups = Path::new(path.trim_start_matches('/')).ancestors();
        let limit = |group: &Path| read_to_string(Path::new("/sys/fs/cgroup").join(group).join("memory.max")).ok();
        groups.filter_map(limit).filter_map(|text| text.trim().parse().ok()).min()
    });
    machine.into_iter().chain(group).min()
}

fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::{cpus, forbid_core_dumps, free_descriptors, memory, pin_to_cpu, reserve_descriptors, total_memory};
    use rustix::process::{DumpableBehavior, Resource, dumpable_behavior, getrlimit, set_dumpable_behavior};
    use std::{fs, thread};

    #[test]
    fn the_memory_is_found() {
        assert_eq!(total_memory("MemTotal:       24101012 kB\nMemFree: 1 kB\n"), Some(24_101_012 << 10));
        assert_eq!(total_memory("MemTotal: much"), None);
        assert!(memory().unwrap() > 64 << 20);
    }

    #[test]
    fn free_descriptors_are_those_up_to_the_limit() {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let free = free_descriptors().unwrap() as u64;
        // Standard input, output and error are open, and other tests open some.
        assert!(free <= limit - 3 && free > limit / 2, "{free} of {limit}");
    }

    #[test]
    fn core_dumps_can_be_forbidden() {
        let before = dumpable_behavior().unwrap();
        forbid_core_dumps().unwrap();
        assert_eq!(dumpable_behavior(), Ok(DumpableBehavior::NotDumpable));
        set_dumpable_behavior(before).unwrap();
    }

    #[test]
    fn the_table_of_descriptors_has_the_room_that_was_asked_for() {
        let size = || {
            let status = fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
            line.trim().parse::<u64>().unwrap()
        };
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let count = limit.min(100_000);
        reserve_descriptors(usize::try_from(count).unwrap()).unwrap();
        assert!(size() >= count);
        if limit <= 100_000 {
            // More than the limit allows is not asked for.
            reserve_descriptors(usize::MAX).unwrap();
        }
        reserve_descriptors(0).unwrap();
    }

    #[test]
    fn pins_the_calling_thread_only() {
        let all = cpus().unwrap();
        assert!(!all.is_empty() && all.is_sorted());
        let (first, last) = (all[0], all[all.len() - 1]);
        let pinned = thread::spawn(move || {
            pin_to_cpu(last).unwrap();
            let alone = cpus().unwrap();
            pin_to_cpu(first).unwrap();
            (alone, cpus().unwrap())
        });
        assert_eq!(pinned.join().unwrap(), (vec![last], vec![first]));
        assert_eq!(cpus().unwrap(), all);
    }

    #[test]
    fn refuses_processors_that_do_not_exist() {
        for cpu in [1023, 1024, usize::MAX] {
            assert!(pin_to_cpu(cpu).is_err(), "{cpu}");
        }
    }
}
