//! Upgrade after upgrade between two builds, under load.
//!
//! `cargo xtask upgrades` runs this at full size, with two builds. By itself it is small, and the builds are one.

use super::Home;
use super::crowd::{Crowd, Times};
use super::upgrade::successor;
use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, waitpid};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};
use std::time::Duration;

/// Connections, messages per second and upgrades of the run: `TAUT_UPGRADES=10000,20000,100`.
fn size() -> (usize, u64, usize) {
    let text = std::env::var("TAUT_UPGRADES").unwrap_or_else(|_| "100,1000,6".into());
    let parts: Vec<usize> = text.split(',').map(|part| part.trim().parse().unwrap()).collect();
    let [connections, rate, upgrades] = parts[..] else { panic!("three numbers, and not {text:?}") };
    (connections, rate as u64, upgrades)
}

/// One process of the row.
#[derive(Debug)]
struct Generation {
    /// The pause, as the process before it measured it.
    pause: Duration,
    /// The times of clients from before the upgrade until after it.
    during: Times,
    /// The times of clients after that.
    after: Times,
    /// Resident memory in KiB, and open descriptors.
    memory: u64,
    descriptors: usize,
}

/// The present process of the row, which is killed on drop.
struct Current(String);

impl Drop for Current {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", &self.0]).status();
        wait_for_end(&self.0);
    }
}

fn install(from: &Path, to: &Path) {
    let beside = to.with_extension("new");
    std::fs::copy(from, &beside).unwrap();
    std::fs::rename(&beside, to).unwrap();
}

fn memory_of(process: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse().unwrap()
}

/// Waits for the end of a process. Its parent has ended before, so it is a child of this process.
fn wait_for_end(process: &str) {
    let process = Pid::from_raw(process.parse().unwrap()).unwrap();
    let _ = waitpid(Some(process), WaitOptions::empty());
}

/// The pause in a line of the log.
fn pause_of(line: &str) -> Duration {
    let text = line.rsplit_once(" in ").unwrap().1.split(';').next().unwrap();
    let number = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match &text[number.len()..] {
        "s" => 1.0,
        "ms" => 1e-3,
        "µs" => 1e-6,
        other => panic!("{other:?} is no unit"),
    };
    Duration::from_secs_f64(number.parse::<f64>().unwrap() * unit)
}

/// The line about the upgrade that was asked for.
fn news(log: &mut BufReader<ChildStderr>) -> String {
    let mut line = String::new();
    while !line.contains("have moved") {
        assert!(!line.contains("no upgrade"), "{line}");
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0, "the servers have ended");
    }
    line
}

fn upgrade(
    home: &Home,
    process: &str,
    crowd: &Crowd,
    log: &mut BufReader<ChildStderr>,
    connections: usize,
) -> (String, Generation) {
    crowd.times();
    let asked = home.taut(&["upgrade", process]).stderr(Stdio::piped()).spawn().unwrap();
    let line = news(log);
    assert!(line.contains(&format!(" {connections} connections have moved")), "{line}");
    assert!(line.contains("refused there: 0; closed: none"), "{line}");
    wait_for_end(process);
    let asked = asked.wait_with_output().unwrap();
    assert!(asked.status.success(), "{asked:?}");
    std::thread::sleep(Duration::from_millis(300));
    let during = crowd.times();
    std::thread::sleep(Duration::from_millis(400));
    let (after, process) = (crowd.times(), successor(&line));
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count();
    let generation = Generation { pause: pause_of(&line), during, after, memory: memory_of(&process), descriptors };
    (process, generation)
}

#[test]
fn nothing_is_lost_in_a_row_of_upgrades_under_load() {
    let (connections, rate, upgrades) = size();
    tautline::layers::io::machine::raise_nofile_limit().unwrap();
    // Each process of the row is the child of the one before it, which has ended.
    set_child_subreaper(Some(getpid())).unwrap();
    let home = Home::new();
    let program = home.0.join("taut");
    let first = PathBuf::from(env!("CARGO_BIN_EXE_taut"));
    let builds = [std::env::var_os("TAUT_OTHER_BUILD").map_or_else(|| first.clone(), PathBuf::from), first];
    install(&builds[1], &program);
    // Without --core-dumps, only root can count the descriptors.
    let mut served = home.serve_by(&program, &["--core-dumps", "--shards", "2"], |_| {});
    let at = format!("127.0.0.1:{}", served.port()).parse().unwrap();
    let mut current = Current(served.pid());
    // It is waited for by its number, as its successors are.
    let mut log = BufReader::new(served.child.take().unwrap().stderr.take().unwrap());
    let crowd = Crowd::start(at, connections, rate);
    let mut row = Vec::new();
    for number in 0..upgrades {
        install(&builds[number % 2], &program);
        if crowd.has_failed() {
            break;
        }
        let (next, generation) = upgrade(&home, &current.0, &crowd, &mut log, connections);
        eprintln!("{number}: process {next}, {generation:?}");
        row.push(generation);
        current.0 = next;
    }
    let (replies, key_updates) = crowd.finish();
    assert!(replies > 0 && key_updates > 0, "{replies} replies, {key_updates} key updates");
    report(&row, connections, replies, key_updates);
    // Descriptors differ by builds.
    for build in [0, 1] {
        let of_build: Vec<_> = row.iter().skip(build).step_by(2).map(|one| one.descriptors).collect();
        assert!(of_build.iter().all(|count| *count == of_build[0]), "descriptors: {of_build:?}");
    }
    if row.len() >= 40 {
        let memory = |part: &[Generation]| median(part.iter().map(|one| one.memory).collect());
        let (first, last) = (memory(&row[10..20]), memory(&row[row.len() - 10..]));
        assert!(last <= first + first / 10, "memory grows from {first} to {last} KiB");
    }
}

fn median(mut all: Vec<u64>) -> u64 {
    all.sort_unstable();
    all[all.len() / 2]
}

fn report(row: &[Generation], connections: usize, replies: u64, key_updates: u64) {
    let micros = |time: fn(&Generation) -> Duration| -> Vec<u64> {
        row.iter().map(|one| u64::try_from(time(one).as_micros()).unwrap()).collect()
    };
    eprintln!("{connections} connections, {} upgrades, {replies} replies, {key_updates} key updates", row.len());
    for (what, times) in [
        ("pause", micros(|one| one.pause)),
        ("slowest reply around an upgrade", micros(|one| one.during.reply)),
        ("slowest reply between upgrades", micros(|one| one.after.reply)),
        ("longest turn of the clients around an upgrade", micros(|one| one.during.turn)),
    ] {
        let longest = times.iter().max().copied().unwrap_or_default();
        eprintln!("{what}: median {} us, longest {longest} us", median(times));
    }
    let part = row.len().min(10);
    for (what, part) in [("first", &row[..part]), ("last", &row[row.len() - part..])] {
        let memory = median(part.iter().map(|one| one.memory).collect());
        let descriptors: Vec<_> = part.iter().map(|one| one.descriptors).collect();
        eprintln!("{what} processes: median memory {memory} KiB, descriptors {descriptors:?}");
    }
}
