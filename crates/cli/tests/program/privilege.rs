//! Privileges that `taut serve` gives up.

use super::tls::{FILES, certificate, eventually, hang_up, openssl_is_there, write_certificate};
use super::{Home, Served};
use std::fs::{Permissions, read_dir, read_to_string, set_permissions};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, chown};
use tautline_testkit::certificate::{Authority, Validity};

/// The user `nobody`.
pub(super) const NOBODY: u32 = 65534;

pub(super) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED: only root can start a server that runs as another user");
    }
    is_root
}

/// A folder with a certificate that `nobody` may read.
pub(super) fn home_of_nobody(authority: &Authority) -> Home {
    let home = Home::new();
    write_certificate(&home, authority, Validity::Valid);
    let key = home.0.join("key.pem");
    chown(&key, Some(NOBODY), Some(NOBODY)).unwrap();
    set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    home
}

/// The values of a line of `status` (proc_pid_status(5)), of all threads.
pub(super) fn of_threads(server: &Served, name: &str) -> Vec<String> {
    let tasks = read_dir(format!("/proc/{}/task", server.worker())).unwrap();
    // A thread may end meanwhile.
    let status = tasks.filter_map(|task| read_to_string(task.unwrap().path().join("status")).ok());
    let value = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix(name).and_then(|rest| rest.strip_prefix(':')));
        line.unwrap_or_else(|| panic!("no {name} in {status}")).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let mut values: Vec<_> = status.map(value).collect();
    assert!(values.len() > 2, "loops, pools and the main thread: {values:?}");
    values.sort();
    values.dedup();
    values
}

fn echoes(home: &Home, server: &Served) {
    let url = format!("wss://localhost:{}/", server.port());
    let said = home.run_with(&["connect", "--ca", "ca.pem", "--wait", "5", &url], "well\n");
    assert_eq!((said.code, said.out.trim_end()), (Some(0), "well"), "{}", said.err);
}

#[test]
fn a_hardened_server_without_root_serves_and_reloads() {
    if !is_root() || !openssl_is_there() {
        return;
    }
    for driver in ["epoll", "uring"] {
        let authority = Authority::new("Test").unwrap();
        let home = home_of_nobody(&authority);
        let options = ["-v", "--driver", driver, "--user", "nobody", "--harden", "--shards", "2"];
        let server = home.serve(&[&options[..], &FILES].concat());
        assert_eq!(of_threads(&server, "Uid"), [format!("{NOBODY} {NOBODY} {NOBODY} {NOBODY}")]);
        assert_eq!(of_threads(&server, "Groups"), [NOBODY.to_string()]);
        assert_eq!(of_threads(&server, "CapEff"), ["0000000000000000"]);
        assert_eq!(of_threads(&server, "CapPrm"), ["0000000000000000"]);
        assert_eq!(of_threads(&server, "NoNewPrivs"), ["1"]);
        assert_eq!(of_threads(&server, "Seccomp"), ["2"]);
        echoes(&home, &server);
        let before = certificate(&home, &server);
        // In place, by name through a rename, and by a signal.
        write_certificate(&home, &authority, Validity::Valid);
        eventually("the watch reloads", || certificate(&home, &server) != before);
        let before = certificate(&home, &server);
        write_certificate(&home, &authority, Validity::Valid);
        hang_up(&server);
        eventually("the signal reloads", || certificate(&home, &server) != before);
        echoes(&home, &server);
        let said = server.stop();
        assert_eq!(said.code, Some(0), "{}", said.err);
        assert!(said.err.contains("running as nobody (user 65534"), "{}", said.err);
        assert!(said.err.contains("hardened: /etc/shadow cannot be opened: Permission denied"), "{}", said.err);
        assert!(said.err.contains("hardened: no program can be started: Operation not permitted"), "{}", said.err);
        // A kernel without Landlock is reported. Otherwise files that everybody may read are out of reach, too.
        let is_confined = said.err.contains("hardened: /etc/passwd cannot be opened: Permission denied");
        assert!(is_confined || said.err.contains("has no Landlock"), "{}", said.err);
    }
}

#[test]
fn a_hardened_server_serves_at_unix_sockets() {
    let home = Home::new();
    std::fs::create_dir(home.0.join("sockets")).unwrap();
    let path = home.0.join("sockets/taut.sock");
    // A path without a folder is one in the present folder.
    for name in [path.to_str().unwrap(), "sockets/taut.sock", "taut.sock"] {
        let server = home.serve(&["--plain", "--harden", "--unix", name]);
        let path = home.0.join(name);
        assert!(path.exists());
        let said = home.run_with(&["connect", "--wait", "5", &server.url], "well\n");
        assert_eq!((said.code, said.out.trim_end()), (Some(0), "well"), "{}", said.err);
        assert_eq!(server.stop().code, Some(0));
        assert!(!path.exists(), "it is removed at the end");
    }
}

#[test]
fn secrets_that_others_can_read_are_reported() {
    let home = Home::new();
    write_certificate(&home, &Authority::new("Test").unwrap(), Validity::Valid);
    std::fs::write(home.0.join("fleet"), "5".repeat(64)).unwrap();
    for (mode, who) in
        [(0o600, None), (0o640, Some("can be read by group ")), (0o644, Some("can be read by every user"))]
    {
        for name in ["key.pem", "fleet"] {
            set_permissions(home.0.join(name), Permissions::from_mode(mode)).unwrap();
        }
        let said = home.serve(&[&FILES[..], &["--ticket-secret", "fleet"]].concat()).stop().err;
        let warned = said.lines().filter(|line| line.contains("can be read by")).count();
        assert_eq!(warned, if who.is_some() { 2 } else { 0 }, "{mode:o}: {said}");
        let Some(who) = who else { continue };
        assert!(said.contains("the private key key.pem") && said.contains(who) && said.contains("chmod 600"), "{said}");
        assert!(said.contains("the ticket secret fleet"), "{said}");
    }
}

#[test]
fn files_that_the_user_cannot_read_again_are_reported() {
    if !is_root() {
        return;
    }
    let home = home_of_nobody(&Authority::new("Test").unwrap());
    let serve = || home.serve(&[&["--user", "nobody"][..], &FILES].concat()).stop().err;
    let line = "key.pem cannot be read as nobody, so every reload will fail";
    let said = serve();
    assert!(!said.contains(line), "{said}");
    chown(home.0.join("key.pem"), Some(0), Some(0)).unwrap();
    let said = serve();
    assert!(said.contains(line), "{said}");
}

#[test]
fn a_user_that_cannot_be_used_is_refused() {
    let home = Home::new();
    for (user, why) in [("no-such-user", "there is no user"), ("root", "would stay root")] {
        let said = home.run(&["serve", "--plain", "--listen", "127.0.0.1:0", "--user", user]);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains(why), "{said:?}");
    }
}

#[test]
fn the_budget_of_memory_is_an_option() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--memory-budget", "64MiB"]);
    echoes_plain(&home, &server);
    let said = server.stop();
    assert!(said.err.contains("\nmemory: ") && said.err.contains("0 refused, 0 closed for it"), "{}", said.err);
    // There is memory for one connection.
    let server = home.serve(&["--plain", "--memory-budget", "1"]);
    let _first = TcpStream::connect(("127.0.0.1", server.port().parse().unwrap())).unwrap();
    eventually("the first is counted", || home.run(&["connect", &server.url]).code != Some(0));
    assert_ne!(home.run(&["connect", &server.url]).code, Some(0));
    let said = server.stop();
    assert!(said.err.contains("7/8 of limits.memory (1) are used: new connections are refused"), "{}", said.err);
    let refused = home.run(&["serve", "--plain", "--memory-budget", "0"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
}

fn echoes_plain(home: &Home, server: &Served) {
    let said = home.run_with(&["connect", "--wait", "5", &server.url], "well\n");
    assert_eq!((said.code, said.out.trim_end()), (Some(0), "well"), "{}", said.err);
}
