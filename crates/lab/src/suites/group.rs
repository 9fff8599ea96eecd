//! The processes of a server: the one that was started as the leader of its group, and those that came from it.

use rustix::process::{Pid, Signal, kill_process_group};
use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

/// The processes in the group of this leader that have not ended, the oldest first.
pub(super) fn members(leader: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut members: Vec<(u64, u32)> = processes
        .filter_map(|entry| {
            let pid = entry.file_name().to_string_lossy().parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            Some((began_in(&stat, leader)?, pid))
        })
        .collect();
    members.sort_unstable();
    members.into_iter().map(|(_, pid)| pid).collect()
}

/// The time at which a process began, if it is in the group and has not ended: fields 3, 5 and 22 of proc_pid_stat(5).
fn began_in(stat: &str, group: u32) -> Option<u64> {
    // A name may have spaces and parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let is_alive = !matches!(fields.next()?, "Z" | "X");
    let is_member = fields.nth(1)?.parse() == Ok(group);
    fields.nth(16)?.parse().ok().filter(|_| is_alive && is_member)
}

/// Tells all processes of a group to end.
pub(super) fn tell(leader: u32, signal: Signal) {
    if let Some(group) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        // Fails only if all have ended already.
        let _ = kill_process_group(group, signal);
    }
}

/// Ends a group: by itself within this time, or at once.
pub(super) fn end(leader: &mut Child, patience: Duration) {
    tell(leader.id(), Signal::TERM);
    let end = Instant::now() + patience;
    // The number of a group is nobody else's while it has a member, which a leader is that has not been waited for.
    while !members(leader.id()).is_empty() {
        if Instant::now() > end {
            tell(leader.id(), Signal::KILL);
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = leader.wait();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    #[test]
    fn a_group_ends_with_processes_that_its_leader_left() {
        let mut command = Command::new("sh");
        let mut leader = command.args(["-c", "sleep 60 & sleep 61 & exit 0"]).process_group(0).spawn().unwrap();
        let began = Instant::now();
        // The leader is a zombie by then.
        while members(leader.id()).len() != 2 {
            assert!(began.elapsed() < Duration::from_secs(20), "{:?}", members(leader.id()));
            std::thread::sleep(Duration::from_millis(5));
        }
        end(&mut leader, Duration::from_secs(20));
        assert!(members(leader.id()).is_empty());
    }

    #[test]
    fn names_do_not_disturb_the_fields_of_a_process() {
        let rest = "1 77 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0";
        assert_eq!(began_in(&format!("5 (a) b (c) S {rest}"), 77), Some(4242));
        assert_eq!(began_in(&format!("5 (sh) Z {rest}"), 77), None);
        assert_eq!(began_in(&format!("5 (sh) S {rest}"), 7), None);
        assert_eq!(began_in("5", 7), None);
    }
}
