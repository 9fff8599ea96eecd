//! Upgrades of a running server: SIGUSR2 and `taut upgrade`.

use super::admin::exchange;
use super::tls::{FILES, certificate, eventually, openssl_is_there, write_certificate};
use super::{Home, Served, children_of};
use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};
use tautline::{ClientConfig, Config, Roots, Socket, Target};
use tautline_testkit::certificate::{Authority, Validity};

/// Options of a server that has a keeper.
pub(super) const HARDENED: &[&str] = if cfg!(feature = "harden") { &["--harden"] } else { &[] };

pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn connect(served: &Served) -> Socket {
    let mut target = Target::new(&served.url.replace("127.0.0.1", "localhost")).unwrap();
    target.address = Some(format!("127.0.0.1:{}", served.port()).parse().unwrap());
    target.deflate = None;
    Socket::connect(target, ClientConfig::default().with_roots(Roots::DangerNone), Config::default()).unwrap()
}

pub(super) fn echo(sockets: &mut [Socket], what: &str) {
    for socket in &mut *sockets {
        socket.text(what).unwrap();
    }
    for socket in sockets {
        assert_eq!(socket.receive().unwrap().data(), what.as_bytes());
    }
}

pub(super) fn signal(name: &str, process: &str) {
    assert!(Command::new("kill").args([name, process]).status().unwrap().success());
}

/// The next line of a server's log about an upgrade.
pub(super) fn news(log: &mut BufReader<ChildStderr>) -> String {
    loop {
        let mut line = String::new();
        assert!(log.read_line(&mut line).unwrap() > 0, "the server has ended without a word");
        if line.contains("upgrade:") || line.contains("have moved") {
            return line;
        }
    }
}

/// Whether a process runs. One that has ended may stay in the table until its new parent collects it.
pub(super) fn is_alive(process: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains("(zombie)") && !line.contains("(dead)"))
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
            if let Some(child) = children_of(&served.pid()).pop() {
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
        println!("round {round}, new process {child}: {line}");
        if line.contains("have moved") || line.contains("took over and then failed") {
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
    assert_eq!(home.run(&["upgrade"]).code, Some(2));
    // Nor does a server that is named beside it.
    let served = home.serve(&["--plain"]);
    let refused = home.run(&["upgrade", &served.pid(), &own]);
    assert!(refused.code == Some(2) && refused.err.contains(&own), "{refused:?}");
    assert!(is_alive(&served.pid()) && children_of(&served.pid()).is_empty());
}

/// The program is known by what it does, also behind a keeper.
#[test]
fn a_program_with_another_name_is_upgraded() {
    for options in [&[][..], HARDENED] {
        let home = Home::new();
        let other = home.0.join("other");
        std::fs::rename(copy(&home), &other).unwrap();
        let served = home.serve_by(&other, &[&["--plain"], options].concat(), |_| {});
        let old = served.worker();
        let mut sockets = [connect(&served)];
        let said = home.run(&["upgrade", &served.pid()]);
        assert_eq!(said.code, Some(0), "{said:?}");
        echo(&mut sockets, "after");
        let serves = listener_at(served.port());
        assert_ne!(serves, old);
        // Any number of its processes will do, and a program that only has the argument is none.
        let said = home.run(&["upgrade", &serves]);
        assert_eq!(said.code, Some(0), "{said:?}");
        echo(&mut sockets, "after that");
        signal("-KILL", &listener_at(served.port()));
    }
    let home = Home::new();
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap : HUP INT QUIT TERM USR1 USR2; read line", "serve", "serve"]);
    let mut shell = shell.stdin(Stdio::piped()).spawn().unwrap();
    let said = home.run(&["upgrade", &shell.id().to_string()]);
    assert!(said.code == Some(2) && said.err.contains("is no `taut serve`"), "{said:?}");
    drop(shell.stdin.take());
    shell.wait().unwrap();
}

/// The new process reads the files when it starts, and again only if they have changed since.
#[test]
fn an_upgrade_is_no_reload() {
    for options in [&[][..], HARDENED] {
        let home = Home::new();
        assert_eq!(home.run(&["cert", "--dir", "."]).code, Some(0));
        let all = ["-v", "--cert", "cert.pem", "--key", "key.pem", "--admin", "unix:admin.sock"];
        let mut served = home.serve(&[&all[..], options].concat());
        let mut log = BufReader::new(served.child.as_mut().unwrap().stderr.take().unwrap());
        let mut serves = served.pid();
        for _ in 0..2 {
            let said = home.run(&["upgrade", &serves]);
            assert_eq!(said.code, Some(0), "{said:?}");
            serves = listener_at(served.port());
        }
        let (_, metrics) = exchange(&home.0.join("admin.sock"), "GET /metrics", "");
        assert!(metrics.contains("tautline_reloads_total{result=\"done\"} 0\n"), "{metrics}");
        signal("-TERM", &serves);
        let mut text = String::new();
        std::io::Read::read_to_string(&mut log, &mut text).unwrap();
        assert_eq!(text.matches("connections have moved").count(), 2, "{text}");
        assert!(!text.contains("was reloaded"), "{text}");
        // No form of the source.
        assert!(!text.contains("Folders"), "{text}");
        let is_confined = text.contains("no files can be opened, but those of the system that a server needs; in ");
        assert!(options.is_empty() || is_confined || text.contains("Landlock"), "{text}");
    }
}

/// The new process has read them, and waits for the old one, which is stopped, when they change. Nothing watches them.
#[test]
fn files_that_change_during_an_upgrade_are_read_again() {
    if !openssl_is_there() {
        return;
    }
    let (home, authority) = (Home::new(), Authority::new("Test").unwrap());
    write_certificate(&home, &authority, Validity::Valid);
    let program = copy(&home);
    let mut served =
        home.serve_by(&program, &[&["--no-watch", "--access-log", "access.log"], &FILES[..]].concat(), |_| {});
    drop(served.child.as_mut().unwrap().stderr.take());
    let real = env!("CARGO_BIN_EXE_taut");
    let script = format!("#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.01; done\nexec {real} \"$@\"\n");
    install(&script, &program, 0o700);
    signal("-USR2", &served.pid());
    eventually("the new process", || !children_of(&served.pid()).is_empty());
    let new = children_of(&served.pid()).pop().unwrap();
    let before = certificate(&home, &served);
    signal("-STOP", &served.pid());
    std::fs::write(home.0.join("go"), "").unwrap();
    // It opens the access log behind the certificates.
    eventually("the new process has read the files", || {
        let fds = std::fs::read_dir(format!("/proc/{new}/fd"));
        let mut files = fds.into_iter().flatten().flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok());
        files.any(|file| file == home.0.join("access.log"))
    });
    write_certificate(&home, &authority, Validity::Valid);
    signal("-HUP", &served.pid());
    signal("-CONT", &served.pid());
    eventually("the old process has ended", || !is_alive(&served.pid()));
    eventually("the new certificate is used", || certificate(&home, &served) != before);
    signal("-KILL", &listener_at(served.port()));
}

#[test]
fn servers_that_cannot_be_upgraded_say_why_and_go_on() {
    let home = Home::new();
    let options = [
        (&["--dashboard=127.0.0.1:0"][..], "no upgrade: --dashboard"),
        (&["--own-descriptors"], "no upgrade: --own-descriptors"),
    ];
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

/// Installs a program at a path, as packages do.
pub(super) fn install(program: &str, at: &Path, mode: u32) {
    let beside = at.with_extension("new");
    // As with the copy below, another process writes.
    let written = Command::new("sh").args(["-c", "printf %s \"$0\" > \"$1\"", program]).arg(&beside).status().unwrap();
    assert!(written.success());
    std::fs::set_permissions(&beside, Permissions::from_mode(mode)).unwrap();
    std::fs::rename(&beside, at).unwrap();
}

/// A copy of the program, which a test may replace.
pub(super) fn copy(home: &Home) -> PathBuf {
    let program = home.0.join("taut");
    copy_to(&program);
    program
}

/// Copies the program to this path.
///
/// Another process writes. Children that other tests start meanwhile would inherit the file, and it could not be executed.
pub(super) fn copy_to(program: &Path) {
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_taut")).arg(program).status().unwrap();
    assert!(copied.success());
}

#[test]
fn every_failed_upgrade_is_counted_and_says_how_the_new_process_ended() {
    let home = Home::new();
    let program = copy(&home);
    let mut served = home.serve_by(&program, &["--plain", "--admin", "unix:admin.sock"], |_| {});
    let mut log = BufReader::new(served.child.as_mut().unwrap().stderr.take().unwrap());
    let mut sockets = [connect(&served)];
    let script = |line: &str| format!("#!/bin/sh\n{line}\n");
    let (ends, killed) = (script("exit 7"), script("kill -KILL $$"));
    let wrong = [
        (None, "No such file"),
        (Some(("", 0o600)), "Permission denied"),
        (Some(("no program", 0o700)), "Exec format error"),
        (Some((ends.as_str(), 0o700)), "the new process ended with status 7; this process goes on"),
        (Some((killed.as_str(), 0o700)), "the new process was ended by signal 9 (SIGKILL); this process goes on"),
    ];
    for (failed, (new, why)) in (1..).zip(wrong) {
        match new {
            None => std::fs::remove_file(&program).unwrap(),
            Some((text, mode)) => install(text, &program, mode),
        }
        let said = home.run(&["upgrade", &served.pid()]);
        assert!(said.code == Some(1) && said.err.contains(why), "{why}: {said:?}");
        assert!(news(&mut log).contains(why), "{why}");
        let metrics = exchange(&home.0.join("admin.sock"), "GET /metrics", "").1;
        let line = format!("tautline_upgrades_total{{result=\"failed\"}} {failed}\n");
        assert!(metrics.contains(&line), "no {line} in {metrics}");
        echo(&mut sockets, why);
    }
}

#[test]
fn taut_upgrade_fails_if_nobody_says_that_the_new_process_serves() {
    let home = Home::new();
    let program = copy(&home);
    let served = home.serve_by(&program, &["--plain"], |_| {});
    // It never greets, and goes with its socket.
    install("#!/bin/sh\nexec cat\n", &program, 0o700);
    let mut asked = home.taut(&["upgrade", &served.pid()]).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while children_of(&served.pid()).is_empty() {
        assert!(start.elapsed() < PATIENCE && asked.try_wait().unwrap().is_none());
    }
    signal("-KILL", &served.pid());
    drop(served);
    let said = asked.wait_with_output().unwrap();
    let err = String::from_utf8(said.stderr).unwrap();
    assert_eq!(said.status.code(), Some(1), "{err}");
    assert!(err.contains("has not said that another one serves"), "{err}");
}

#[test]
fn a_stop_during_an_upgrade_ends_both_processes() {
    for options in [&[][..], HARDENED] {
        for delay in [0, 1, 3, 10, 30, 60, 100, 200, 400, 700] {
            let home = Home::new();
            let mut served = home.serve(&[&["--plain", "--drain", "1"], options].concat());
            let log = served.child.as_mut().unwrap().stderr.take().unwrap();
            let mut sockets = [connect(&served), connect(&served)];
            signal("-USR2", &served.pid());
            std::thread::sleep(Duration::from_millis(delay));
            if !is_alive(&served.pid()) {
                // A process that is gone passes nothing on. Its log names the one that serves.
                let line = news(&mut BufReader::new(log));
                signal("-KILL", &successor(&line));
                break;
            }
            signal("-TERM", &served.pid());
            // The log ends with the last process that writes to it.
            let (tell, told) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                for line in BufReader::new(log).lines().map_while(Result::ok) {
                    let _ = tell.send(line + "\n");
                }
            });
            let mut text = String::new();
            let start = Instant::now();
            loop {
                match told.recv_timeout(Duration::from_secs(5)) {
                    Ok(line) => text += &line,
                    Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
                    Err(_) => assert!(start.elapsed() < PATIENCE, "{options:?}, {delay} ms: {text}"),
                }
                // The kernel takes no signal to a process that is ending. It has said which one serves.
                if let Some(line) = text.lines().find(|line| line.contains("have moved"))
                    && start.elapsed() > Duration::from_secs(5)
                    && !is_alive(&served.pid())
                {
                    signal("-KILL", &successor(line));
                }
            }
            assert!(sockets.iter_mut().all(|socket| socket.receive().is_err()), "{options:?}, {delay} ms: {text}");
            assert!(TcpStream::connect(("127.0.0.1", served.port().parse().unwrap())).is_err(), "{delay} ms: {text}");
        }
    }
}

#[test]
fn a_server_that_stops_refuses_an_upgrade() {
    let home = Home::new();
    let mut served = home.serve(&["--plain"]);
    let mut log = BufReader::new(served.child.as_mut().unwrap().stderr.take().unwrap());
    // It does not answer the close frame, so the server waits for it.
    let _socket = connect(&served);
    signal("-TERM", &served.pid());
    eventually("it stops", || TcpStream::connect(("127.0.0.1", served.port().parse().unwrap())).is_err());
    signal("-USR2", &served.pid());
    let line = news(&mut log);
    assert!(line.contains("no upgrade: the server is stopping"), "{line}");
}

/// The old process still closes a connection that cannot move.
#[test]
fn a_server_that_was_taken_over_starts_no_other_process_and_passes_a_stop_on() {
    let home = Home::new();
    let mut served = home.serve(&["--plain", "--drain", "60"]);
    let mut log = BufReader::new(served.child.as_mut().unwrap().stderr.take().unwrap());
    // Its request never ends.
    let mut unfinished = TcpStream::connect(("127.0.0.1", served.port().parse().unwrap())).unwrap();
    unfinished.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    let mut sockets = [connect(&served)];
    signal("-USR2", &served.pid());
    let new = successor(&news(&mut log));
    signal("-USR2", &served.pid());
    let line = news(&mut log);
    assert!(line.contains(&format!("no upgrade: process {new} has taken over already")), "{line}");
    echo(&mut sockets, "after");
    assert_eq!(children_of(&served.pid()), std::slice::from_ref(&new));
    signal("-TERM", &served.pid());
    let _ = sockets[0].receive();
    drop(sockets);
    eventually("the new process has ended", || !is_alive(&new));
}

/// A program that leaves a mark when it is started, and then is `taut`.
fn marks(mark: &str) -> String {
    format!("#!/bin/sh\n: > {mark}\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_taut"))
}

#[test]
fn the_program_is_the_one_at_the_path_of_the_start() {
    for options in [&[][..], HARDENED] {
        let home = Home::new();
        for folder in ["one", "two"] {
            std::fs::create_dir(home.0.join(folder)).unwrap();
        }
        let start = |path: &str| {
            copy_to(&home.0.join("one/taut"));
            home.serve_by(&home.0.join(path), &[&["--plain"], options].concat(), |_| {})
        };
        let is_upgraded = |served: &Served, mark: &str| {
            let mut sockets = [connect(served)];
            let said = home.run(&["upgrade", &served.pid()]);
            assert_eq!(said.code, Some(0), "{said:?}");
            echo(&mut sockets, mark);
            assert!(home.0.join(mark).exists(), "{mark}, {options:?}: the old program was started");
            signal("-KILL", &listener_at(served.port()));
        };
        // The old program is kept under another name.
        let served = start("one/taut");
        std::fs::rename(home.0.join("one/taut"), home.0.join("one/taut.old")).unwrap();
        install(&marks("renamed"), &home.0.join("one/taut"), 0o700);
        is_upgraded(&served, "renamed");
        // A link leads to the folder of the present release.
        std::os::unix::fs::symlink("one", home.0.join("current")).unwrap();
        let served = start("current/taut");
        install(&marks("linked"), &home.0.join("two/taut"), 0o700);
        std::os::unix::fs::symlink("two", home.0.join("next")).unwrap();
        std::fs::rename(home.0.join("next"), home.0.join("current")).unwrap();
        is_upgraded(&served, "linked");
    }
}

/// The process that listens at the port of a server.
pub(super) fn listener_at(port: &str) -> String {
    let said = Command::new("sh").args(["-c", &format!("ss -Hltnp 'sport = :{port}'")]).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let rest = said.split_once("pid=").unwrap_or_else(|| panic!("nobody listens at {port}: {said:?}")).1;
    rest.split(',').next().unwrap().to_owned()
}

/// A full disk, and a reader that is gone.
#[test]
fn a_log_that_takes_nothing_harms_no_upgrade() {
    for is_full in [true, false] {
        for options in [&[][..], HARDENED] {
            let home = Home::new();
            let all = [&["--plain", "--admin", "unix:admin.sock"], options].concat();
            let mut served = home.serve_with(&all, |command| {
                if is_full {
                    command.stderr(File::options().write(true).open("/dev/full").unwrap());
                }
            });
            drop(served.child.as_mut().unwrap().stderr.take());
            let mut sockets: Vec<_> = (0..5).map(|_| connect(&served)).collect();
            let before = served.worker();
            let said = home.run(&["upgrade", &served.pid()]);
            assert_eq!(said.code, Some(0), "{said:?}");
            echo(&mut sockets, "after");
            sockets.push(connect(&served));
            echo(&mut sockets, "with a new one");
            assert_eq!(exchange(&home.0.join("admin.sock"), "GET /readyz", "").0, 200);
            let serves = listener_at(served.port());
            assert_ne!(serves, before);
            signal("-KILL", &serves);
        }
    }
}
