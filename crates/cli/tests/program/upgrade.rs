//! Upgrades of a running server: SIGUSR2 and `taut upgrade`.

use super::admin::exchange;
use super::{Home, Served};
use std::io::{BufRead, BufReader};
use std::process::{ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};
use tautline::{ClientConfig, Config, Roots, Socket, Target};

const PATIENCE: Duration = Duration::from_secs(60);

fn connect(served: &Served) -> Socket {
    let mut target = Target::new(&served.url.replace("127.0.0.1", "localhost")).unwrap();
    target.address = Some(format!("127.0.0.1:{}", served.port()).parse().unwrap());
    target.deflate = None;
    Socket::connect(target, ClientConfig::default().with_roots(Roots::DangerNone), Config::default()).unwrap()
}

fn echo(sockets: &mut [Socket], what: &str) {
    for socket in &mut *sockets {
        socket.text(what).unwrap();
    }
    for socket in sockets {
        assert_eq!(socket.receive().unwrap().data(), what.as_bytes());
    }
}

fn signal(name: &str, process: &str) {
    assert!(Command::new("kill").args([name, process]).status().unwrap().success());
}

/// The next line of a server's log about an upgrade.
fn news(log: &mut BufReader<ChildStderr>) -> String {
    loop {
        let mut line = String::new();
        assert!(log.read_line(&mut line).unwrap() > 0, "the server has ended without a word");
        if line.contains("upgrade:") || line.contains("have moved") {
            return line;
        }
    }
}

/// Whether a process runs. One that has ended may stay in the table until its new parent collects it.
fn is_alive(process: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains("(zombie)") && !line.contains("(dead)"))
}

/// A process that another one has started.
fn child_of(parent: &str) -> Option<String> {
    let is_child = |entry: &std::fs::DirEntry| {
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line.strip_prefix("PPid:").is_some_and(|number| number.trim() == parent))
    };
    let found = std::fs::read_dir("/proc").unwrap().flatten().find(is_child)?;
    found.file_name().into_string().ok()
}

/// The process that a line names.
pub(super) fn successor(line: &str) -> String {
    let rest = line.split_once("to process ").unwrap_or_else(|| panic!("{line}")).1;
    rest.split_once(' ').unwrap().0.to_owned()
}

#[test]
fn taut_upgrade_replaces_the_process_and_keeps_the_connections() {
    let home = Home::new();
    for tls in [&["--plain"][..], &["--shards", "2"]] {
        let mut served = home.serve(&[tls, &["--admin", "unix:admin.sock"]].concat());
        let mut log = BufReader::new(served.child.as_mut().unwrap().stderr.take().unwrap());
        let mut sockets: Vec<_> = (0..20).map(|_| connect(&served)).collect();
        echo(&mut sockets, "before");
        let asked =
            home.taut(&["upgrade", &served.pid()]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The old process ends at once when this process has waited for it.
        let line = news(&mut log);
        assert!(line.contains("20 connections have moved"), "{line}");
        let code = served.child.as_mut().unwrap().wait().unwrap().code();
        assert_eq!(code, Some(0));
        let asked = asked.wait_with_output().unwrap();
        assert!(asked.status.success(), "{asked:?}");
        echo(&mut sockets, "after");
        sockets.push(connect(&served));
        echo(&mut sockets, "with a new one");
        // The old process has ended, and an answer of its would say that it drains.
        assert_eq!(exchange(&home.0.join("admin.sock"), "GET /readyz", "").0, 200);
        signal("-TERM", &successor(&line));
        let gone = Instant::now();
        while is_alive(&successor(&line)) {
            assert!(gone.elapsed() < PATIENCE, "the successor does not end");
            // Its close frames are answered here.
            sockets.drain(..).for_each(drop);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_successor_that_cannot_start_changes_nothing() {
    let home = Home::new();
    assert_eq!(home.run(&["cert", "--dir", "a"]).code, Some(0));
    let mut served = home.serve(&["--cert", "a/cert.pem", "--key", "a/key.pem"]);
    let mut log = BufReader::new(served.child.as_mut().unwrap().stderr.take().unwrap());
    let mut sockets = [connect(&served), connect(&served)];
    echo(&mut sockets, "before");
    std::fs::rename(home.0.join("a/key.pem"), home.0.join("elsewhere")).unwrap();
    signal("-USR2", &served.pid());
    let line = news(&mut log);
    assert!(line.contains("no upgrade") && line.contains("goes on"), "{line}");
    echo(&mut sockets, "after");
    connect(&served);
    std::fs::rename(home.0.join("elsewhere"), home.0.join("a/key.pem")).unwrap();
    signal("-USR2", &served.pid());
    let line = news(&mut log);
    assert!(line.contains("2 connections have moved"), "{line}");
    echo(&mut sockets, "at last");
    signal("-KILL", &successor(&line));
}

#[test]
fn a_successor_that_is_killed_before_it_goes_on_changes_nothing() {
    let home = Home::new();
    let mut served = home.serve(&["--plain"]);
    let mut log = BufReader::new(served.child.as_mut().unwrap().stderr.take().unwrap());
    let mut sockets: Vec<_> = (0..50).map(|_| connect(&served)).collect();
    let mut killed = 0;
    for round in 0..20 {
        signal("-USR2", &served.pid());
        let start = Instant::now();
        let child = loop {
            if let Some(child) = child_of(&served.pid()) {
                break child;
            }
            if !is_alive(&served.pid()) {
                // The upgrade was over before this thread saw the new process.
                return signal("-KILL", &successor(&news(&mut log)));
            }
            assert!(start.elapsed() < PATIENCE);
        };
        std::thread::sleep(Duration::from_micros(round * 700));
        signal("-KILL", &child);
        let line = news(&mut log);
        if line.contains("have moved") {
            // It was this process's turn already: a server was killed, not an upgrade.
            return;
        }
        killed += 1;
        echo(&mut sockets, &format!("round {round}"));
    }
    assert!(killed > 0);
}

#[test]
fn processes_that_are_no_servers_get_no_signal() {
    let home = Home::new();
    let own = std::process::id().to_string();
    let refused = home.run(&["upgrade", &own]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert_eq!(home.run(&["upgrade", "0"]).code, Some(2));
}

#[test]
fn servers_that_cannot_be_upgraded_say_why_and_go_on() {
    let home = Home::new();
    let mut options = vec![
        (&["--dashboard=127.0.0.1:0"][..], "no upgrade: --dashboard"),
        (&["--own-descriptors"], "no upgrade: --own-descriptors"),
    ];
    if cfg!(feature = "harden") {
        options.push((&["--harden"], "no upgrade: without its privileges"));
    }
    if rustix::process::geteuid().is_root() {
        options.push((&["--user", "nobody"], "no upgrade: without its privileges"));
    }
    for (options, why) in options {
        let mut served = home.serve(&[&["--plain"], options].concat());
        let mut log = BufReader::new(served.child.as_mut().unwrap().stderr.take().unwrap());
        let mut sockets = [connect(&served)];
        for round in ["one", "two"] {
            signal("-USR2", &served.pid());
            let line = news(&mut log);
            assert!(line.contains(why), "{options:?}: {line}");
            echo(&mut sockets, round);
        }
        let asked = Instant::now();
        let refused = home.run(&["upgrade", &served.pid()]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.err.contains(why) && asked.elapsed() < PATIENCE / 2, "{refused:?}");
        connect(&served);
    }
}
