//! Upgrade after upgrade between two builds, under load.
//!
//! `cargo xtask upgrades` runs this at full size, with two builds. By itself it is small, and the builds are one.

use super::crowd::{Crowd, Times};
use super::manager::Manager;
use super::upgrade::{HARDENED, is_alive, listener_at};
use super::{Home, Served};
use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, waitpid};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

/// Connections, messages per second and upgrades of the run: `TAUT_UPGRADES=10000,20000,100`.
fn size() -> (usize, u64, usize) {
    let text = std::env::var("TAUT_UPGRADES").unwrap_or_else(|_| "100,1000,6".into());
    let parts: Vec<usize> = text.split(',').map(|part| part.trim().parse().unwrap()).collect();
    let [connections, rate, upgrades] = parts[..] else { panic!("three numbers, and not {text:?}") };
    (connections, rate as u64, upgrades)
}

/// The servers of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    /// They have given up their privileges, so a keeper starts them.
    Hardened,
    /// Their standard error takes nothing.
    WithoutLog,
    /// Below a service manager that believes the main process alone.
    Managed,
}

/// Upgrades that are asked for until one succeeds.
const MOST_TRIES: usize = 20;

/// The longest pause of a proxy's pairs at full size.
#[cfg(feature = "proxy")]
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// One process of the row.
#[derive(Debug)]
pub(super) struct Generation {
    /// The pause, as the process before it measured it. Without a log nobody knows.
    pub(super) pause: Option<Duration>,
    /// The times of clients from before the upgrade until after it.
    pub(super) during: Times,
    /// The times of clients after that.
    pub(super) after: Times,
    /// Resident memory in KiB, and open descriptors.
    pub(super) memory: u64,
    pub(super) descriptors: usize,
}

/// The present process of the row, which is killed on drop. A keeper ends with it.
pub(super) struct Current(pub(super) String);

impl Drop for Current {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", &self.0]).status();
        wait_for_end(&self.0);
    }
}

/// A row that runs.
struct Row {
    kind: Kind,
    home: Home,
    served: Served,
    manager: Option<Manager>,
    log: Option<BufReader<ChildStderr>>,
    crowd: Crowd,
    connections: usize,
}

pub(super) fn install(from: &Path, to: &Path) {
    let beside = to.with_extension("new");
    std::fs::copy(from, &beside).unwrap();
    std::fs::rename(&beside, to).unwrap();
}

pub(super) fn memory_of(process: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse().unwrap()
}

/// Waits for the end of a process. Without a keeper its parent has ended before, so it is a child of this process.
pub(super) fn wait_for_end(process: &str) {
    let _ = waitpid(Pid::from_raw(process.parse().unwrap()), WaitOptions::empty());
    while is_alive(process) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The pause in a line of the log.
pub(super) fn pause_of(line: &str) -> Duration {
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

/// Upgrades a process, and returns the line about it with the program that asked. On a busy machine the new process can be too
/// late. The old one goes on then, and is asked again.
pub(super) fn upgraded(home: &Home, process: &str, log: &mut BufReader<ChildStderr>) -> (String, Child) {
    for _ in 0..MOST_TRIES {
        let mut asked = home.taut(&["upgrade", "--wait", "600", process]).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        while !line.contains("have moved") && !line.contains("no upgrade") {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "the servers have ended");
        }
        if line.contains("have moved") {
            return (line, asked);
        }
        assert!(line.contains("does not answer in time; this process goes on"), "{line}");
        assert!(!asked.wait().unwrap().success(), "{line}");
        eprintln!("asked again: {line}");
    }
    panic!("no process has answered in time, {MOST_TRIES} times");
}

impl Row {
    fn start(kind: Kind, program: &Path, home: Home, connections: usize, rate: u64) -> Self {
        // Without --core-dumps, only root can count the descriptors.
        let options = ["--core-dumps", "--shards", "2"];
        // Without a certificate of its own, a server has more to say than that it serves.
        let certificate = ["--cert", "a/cert.pem", "--key", "a/key.pem"];
        let options = match kind {
            Kind::Hardened => [&options, HARDENED].concat(),
            Kind::WithoutLog => [&options[..], &certificate].concat(),
            Kind::Plain | Kind::Managed => options.to_vec(),
        };
        assert_eq!(home.run(&["cert", "--dir", "a"]).code, Some(0));
        let mut manager = None;
        let mut served = if kind == Kind::Managed {
            let (managing, served) = Manager::start(&home, program, &options);
            assert_eq!(managing.news(), (served.pid(), "READY=1".to_owned()));
            manager = Some(managing);
            served
        } else {
            home.serve_by(program, &options, |command| {
                if kind == Kind::WithoutLog {
                    command.stderr(File::options().write(true).open("/dev/full").unwrap());
                }
            })
        };
        let at = format!("127.0.0.1:{}", served.port()).parse().unwrap();
        let log = served.child.as_mut().unwrap().stderr.take().map(BufReader::new);
        let crowd = Crowd::start(at, connections, rate);
        Self { kind, home, served, manager, log, crowd, connections }
    }

    /// Upgrades the present process, and returns the next one.
    fn upgrade(&mut self, process: &str) -> (String, Generation) {
        self.crowd.times();
        let named = if self.kind == Kind::Hardened { self.served.pid() } else { process.to_owned() };
        let (pause, asked) = match &mut self.log {
            Some(log) => {
                let (line, asked) = upgraded(&self.home, &named, log);
                assert!(line.contains(&format!(" {} connections have moved", self.connections)), "{line}");
                assert!(line.contains("refused there: 0; closed: none"), "{line}");
                (Some(pause_of(&line)), asked)
            }
            None => (None, self.home.taut(&["upgrade", &named]).stderr(Stdio::piped()).spawn().unwrap()),
        };
        wait_for_end(process);
        let asked = asked.wait_with_output().unwrap();
        assert!(asked.status.success(), "{asked:?}");
        std::thread::sleep(Duration::from_millis(300));
        let during = self.crowd.times();
        std::thread::sleep(Duration::from_millis(400));
        let (after, new) = (self.crowd.times(), listener_at(self.served.port()));
        if let Some(manager) = &self.manager {
            assert_eq!(manager.news(), (process.to_owned(), format!("MAINPID={new}\nWATCHDOG=1")));
        }
        let descriptors = std::fs::read_dir(format!("/proc/{new}/fd")).unwrap().count();
        let memory = memory_of(&new);
        (new, Generation { pause, during, after, memory, descriptors })
    }
}

#[test]
fn nothing_is_lost_in_a_row_of_upgrades_under_load() {
    run(Kind::Plain);
}

#[test]
fn nothing_is_lost_in_a_row_of_upgrades_of_hardened_servers() {
    run(Kind::Hardened);
}

#[test]
fn nothing_is_lost_in_a_row_of_upgrades_whose_log_is_full() {
    run(Kind::WithoutLog);
}

#[test]
fn nothing_is_lost_in_a_row_of_upgrades_below_a_service_manager() {
    run(Kind::Managed);
}

fn run(kind: Kind) {
    let (connections, rate, upgrades) = size();
    tautline::layers::io::machine::raise_nofile_limit().unwrap();
    // Each process of the row is the child of the one before it, which has ended.
    set_child_subreaper(Some(getpid())).unwrap();
    let home = Home::new();
    let program = home.0.join("taut");
    let first = PathBuf::from(env!("CARGO_BIN_EXE_taut"));
    let builds = [std::env::var_os("TAUT_OTHER_BUILD").map_or_else(|| first.clone(), PathBuf::from), first];
    install(&builds[1], &program);
    let mut running = Row::start(kind, &program, home, connections, rate);
    let mut current = Current(running.served.worker());
    if kind != Kind::Hardened {
        // It is waited for by its number, as its successors are.
        running.served.child = None;
    }
    let mut row = Vec::new();
    for number in 0..upgrades {
        install(&builds[number % 2], &program);
        if running.crowd.has_failed() {
            break;
        }
        let (next, generation) = running.upgrade(&current.0);
        eprintln!("{number}: process {next}, {generation:?}");
        row.push(generation);
        current.0 = next;
    }
    let (replies, key_updates) = running.crowd.finish();
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

pub(super) fn median(mut all: Vec<u64>) -> u64 {
    all.sort_unstable();
    all[all.len() / 2]
}

pub(super) fn report(row: &[Generation], connections: usize, replies: u64, key_updates: u64) {
    let micros = |time: fn(&Generation) -> Option<Duration>| -> Vec<u64> {
        row.iter().filter_map(time).map(|time| u64::try_from(time.as_micros()).unwrap()).collect()
    };
    eprintln!("{connections} connections, {} upgrades, {replies} replies, {key_updates} key updates", row.len());
    for (what, times) in [
        ("pause", micros(|one| one.pause)),
        ("slowest reply around an upgrade", micros(|one| Some(one.during.reply))),
        ("slowest reply between upgrades", micros(|one| Some(one.after.reply))),
        ("longest turn of the clients around an upgrade", micros(|one| Some(one.during.turn))),
    ] {
        match times.iter().max().copied() {
            Some(longest) => eprintln!("{what}: median {} us, longest {longest} us", median(times)),
            None => eprintln!("{what}: unknown, as nobody could read the log"),
        }
    }
    let part = row.len().min(10);
    for (what, part) in [("first", &row[..part]), ("last", &row[row.len() - part..])] {
        let memory = median(part.iter().map(|one| one.memory).collect());
        let descriptors: Vec<_> = part.iter().map(|one| one.descriptors).collect();
        eprintln!("{what} processes: median memory {memory} KiB, descriptors {descriptors:?}");
    }
}
