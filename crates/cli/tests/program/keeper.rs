//! Servers that have given up their privileges, or are the first process of a container: a keeper starts them.

use super::privilege::{NOBODY, home_of_nobody, is_root, of_threads};
use super::tls::{FILES, eventually, openssl_is_there};
use super::upgrade::{HARDENED, PATIENCE, connect, copy, copy_to, echo, install, is_alive, signal};
use super::{Home, Served, children_of, name_of};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tautline_testkit::certificate::Authority;

/// Upgrades a server by its keeper, whose number stays.
fn upgrade(home: &Home, served: &Served) {
    let before = served.worker();
    let said = home.run(&["upgrade", &served.pid(), &before]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(is_alive(&served.pid()) && !is_alive(&before));
    assert_ne!(served.worker(), before);
}

#[test]
fn a_hardened_server_is_upgraded_and_its_successor_is_hardened_too() {
    if !is_root() || !openssl_is_there() {
        return;
    }
    for options in [&["--user", "nobody"][..], &["--user", "nobody", "--harden"], &["--harden"]] {
        let home = home_of_nobody(&Authority::new("Test").unwrap());
        std::fs::set_permissions(&home.0, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let at = ["--shards", "2", "--admin", "unix:admin.sock"];
        let served = home.serve(&[&at[..], options, &FILES].concat());
        let mut sockets: Vec<_> = (0..20).map(|_| connect(&served)).collect();
        for round in ["one", "two", "three"] {
            upgrade(&home, &served);
            echo(&mut sockets, round);
            sockets.push(connect(&served));
            if options.contains(&"--user") {
                assert_eq!(of_threads(&served, "Uid"), [format!("{NOBODY} {NOBODY} {NOBODY} {NOBODY}")]);
                assert_eq!(of_threads(&served, "CapEff"), ["0000000000000000"]);
            }
            if options.contains(&"--harden") {
                assert_eq!(of_threads(&served, "NoNewPrivs"), ["1"]);
                assert_eq!(of_threads(&served, "Seccomp"), ["2"]);
            }
            assert_eq!(super::admin::exchange(&home.0.join("admin.sock"), "GET /readyz", "").0, 200);
        }
        // No process is left behind.
        eventually("old workers have ended", || children_of(&served.pid()).len() == 1);
        drop(sockets);
        let said = served.stop();
        assert_eq!(said.code, Some(0), "{}", said.err);
        assert_eq!(said.err.matches("connections have moved to process").count(), 3, "{}", said.err);
    }
}

#[cfg(feature = "harden")]
#[test]
fn a_hardened_server_says_why_it_goes_on() {
    let home = Home::new();
    let program = copy(&home);
    let served = home.serve_by(&program, &[&["--plain"], HARDENED].concat(), |_| {});
    let mut sockets = [connect(&served)];
    for (text, mode, why) in [
        ("", 0o600, "cannot start the new process: Permission denied"),
        ("#!/bin/sh\nexit 7\n", 0o700, "the new process ended with status 7; this process goes on"),
    ] {
        install(text, &program, mode);
        let said = home.run(&["upgrade", &served.pid()]);
        assert!(said.code == Some(1) && said.err.contains(why), "{why}: {said:?}");
        echo(&mut sockets, why);
    }
    // Some end before the keeper has told them all.
    install("#!/bin/false\n", &program, 0o700);
    for _ in 0..20 {
        let said = home.run(&["upgrade", &served.pid()]);
        assert!(said.code == Some(1) && said.err.contains("the new process ended with status 1"), "{said:?}");
    }
    std::fs::remove_file(&program).unwrap();
    copy_to(&program);
    upgrade(&home, &served);
    echo(&mut sockets, "at last");
    drop(sockets);
    let said = served.stop();
    assert!(said.code == Some(0) && !said.err.contains("cannot tell"), "{}", said.err);
}

#[cfg(feature = "harden")]
#[test]
fn the_end_of_a_worker_is_not_hidden() {
    let home = Home::new();
    for (name, code) in [("-KILL", 128 + 9), ("-ABRT", 128 + 6)] {
        let served = home.serve(&[&["--plain"], HARDENED].concat());
        signal(name, &served.worker());
        let said = served.wait();
        assert_eq!(said.code, Some(code), "{}", said.err);
        assert!(said.err.contains("the server's process was ended by signal"), "{}", said.err);
    }
    // As without a keeper.
    let said = home.run(&[&["serve", "--cert", "no.pem", "--key", "no.pem"], HARDENED].concat());
    assert_eq!(said.code, Some(2), "{said:?}");
}

/// Each worker of an upgrade is killed at many moments. Then one serves, or the keeper has ended with that signal.
#[cfg(feature = "harden")]
#[test]
fn a_worker_that_is_killed_during_an_upgrade_leaves_one_or_ends_the_service() {
    let (mut served_on, mut ended) = (0, 0);
    for round in 0..24 {
        let home = Home::new();
        let mut served = home.serve(&[&["--plain"], HARDENED].concat());
        drop(served.child.as_mut().unwrap().stderr.take());
        let sockets = [connect(&served), connect(&served)];
        let old = served.worker();
        signal("-USR2", &served.pid());
        let start = Instant::now();
        let new = loop {
            let other = children_of(&served.pid()).into_iter().find(|child| *child != old);
            if other.is_some() || !is_alive(&old) {
                break other;
            }
            assert!(start.elapsed() < PATIENCE);
        };
        std::thread::sleep(Duration::from_millis(round / 2 * 8));
        let victim = if round % 2 == 0 { Some(old.clone()) } else { new };
        let victim = victim.filter(|victim| is_alive(victim));
        victim.iter().for_each(|victim| _ = Command::new("kill").args(["-KILL", victim]).status());
        // Its listening socket may be open in a process that does not serve yet, and never will.
        let serves = || home.run_with(&["connect", "--wait", "2", &served.url], "hello\n").out == "hello\n";
        let mut decided = None;
        eventually("a worker serves, or the keeper has ended", || {
            decided = if !is_alive(&served.pid()) { Some(false) } else { serves().then_some(true) };
            decided.is_some()
        });
        drop(sockets);
        if decided == Some(true) {
            assert_eq!(served.stop().code, Some(0), "round {round}");
            served_on += 1;
        } else {
            assert!(!serves(), "round {round}: a worker has no keeper");
            assert_eq!(served.wait().code, Some(128 + 9), "round {round}");
            ended += 1;
        }
    }
    assert!(served_on > 0 && ended > 0, "{served_on} rounds with a server, {ended} without");
}

#[cfg(feature = "harden")]
#[test]
fn a_worker_ends_with_its_keeper() {
    let home = Home::new();
    let served = home.serve(&[&["--plain"], HARDENED].concat());
    let worker = served.worker();
    assert_ne!(worker, served.pid());
    signal("-KILL", &served.pid());
    let start = Instant::now();
    while is_alive(&worker) {
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A service manager stops each process of a service, and the keeper passes its signal on.
#[cfg(feature = "harden")]
#[test]
fn a_stop_of_all_processes_is_one_stop_and_a_second_one_ends_them() {
    let home = Home::new();
    for again in [false, true] {
        let served = home.serve(&[&["--plain", "--drain", "3"], HARDENED].concat());
        let mut socket = connect(&served);
        signal("-TERM", &served.pid());
        signal("-TERM", &served.worker());
        if again {
            eventually("it drains", || {
                std::net::TcpStream::connect(("127.0.0.1", served.port().parse().unwrap())).is_err()
            });
            signal("-TERM", &served.pid());
            let said = served.wait();
            assert_eq!(said.code, Some(1), "{}", said.err);
            continue;
        }
        let closed = socket.receive().unwrap_err().to_string();
        assert!(closed.contains("1001"), "{closed}");
        drop(socket);
        let said = served.wait();
        assert_eq!(said.code, Some(0), "{}", said.err);
    }
}

#[cfg(feature = "harden")]
#[test]
fn a_keeper_holds_no_socket_of_its_server() {
    let home = Home::new();
    let path = home.0.join("passed.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    // As systemd passes it.
    let script = r#"LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@" 3<&0 0</dev/null"#;
    let mut command = home.command(std::path::Path::new("sh"), &["-c", script, env!("CARGO_BIN_EXE_taut")]);
    command.args(["serve", "--plain"]).args(HARDENED);
    command.stdin(Stdio::from(std::os::fd::OwnedFd::from(listener))).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), format!("listening on unix:{}", path.display()));
    let served = Served { child: Some(child), url: String::new() };
    let sockets = |process: &str| -> Vec<String> {
        let all = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
        all.filter_map(|fd| Some(std::fs::read_link(fd.path()).ok()?.to_str()?.to_owned()))
            .filter(|link| link.starts_with("socket:"))
            .collect()
    };
    // For its signals, at both ends, for `taut upgrade`, and for its worker.
    assert_eq!(sockets(&served.pid()).len(), 4, "{:?}", sockets(&served.pid()));
    upgrade(&home, &served);
    eventually("the old worker is forgotten", || sockets(&served.pid()).len() == 4);
    assert_eq!(served.stop().code, Some(0));
}

/// The end of the first process of a container is the end of all.
#[test]
fn the_first_process_of_a_container_is_upgraded() {
    let there = Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).status();
    if !there.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: only root can make a namespace of processes");
        return;
    }
    let home = Home::new();
    let mut command =
        home.command(std::path::Path::new("unshare"), &["--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.arg(env!("CARGO_BIN_EXE_taut")).args(["serve", "--plain", "--listen", "127.0.0.1:0"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("listening on ").unwrap().to_owned();
    let served = Served { child: Some(child), url };
    let first = children_of(&served.pid()).pop().unwrap();
    assert_eq!(name_of(&first), "taut");
    let mut sockets = [connect(&served), connect(&served)];
    let outside = home.run(&["upgrade", &first]);
    assert!(outside.code == Some(2) && outside.err.contains("is in a container"), "{outside:?}");
    for round in ["one", "two"] {
        let mut inside = Command::new("nsenter");
        inside.args(["--pid", "--mount", "--target", &first, env!("CARGO_BIN_EXE_taut"), "upgrade", "1"]);
        let said = inside.output().unwrap();
        assert!(said.status.success(), "{said:?}");
        echo(&mut sockets, round);
    }
    // An orphan is collected by the first process.
    let orphan = ["--pid", "--mount", "--target", &first, "sh", "-c", "(sleep 0.1 &)"];
    assert!(Command::new("nsenter").args(orphan).status().unwrap().success());
    let zombies = || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let status = all.filter_map(|entry| std::fs::read_to_string(entry.path().join("status")).ok());
        status.filter(|status| status.contains(&format!("PPid:\t{first}\n")) && status.contains("State:\tZ")).count()
    };
    std::thread::sleep(Duration::from_millis(300));
    eventually("the orphan is collected", || zombies() == 0);
    drop(sockets);
    signal("-TERM", &first);
    assert_eq!(served.wait().code, Some(0));
}
