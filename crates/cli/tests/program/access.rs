//! `--access-log`.

use super::admin::exchange;
use super::faults::signal;
use super::privilege::{NOBODY, is_root};
use super::tls::eventually;
use super::upgrade::{HARDENED, copy, install, is_alive};
use super::{Home, Served, children_of};
use serde_json::Value;
use std::fs::{Permissions, read_to_string};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Stdio;
use tautline::{CloseCode, Socket};

fn request(server: &Served, head: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(server.url.strip_prefix("ws://").unwrap()).unwrap();
    write!(stream, "{head}\r\n\r\n").unwrap();
    let mut answer = vec![0; 4096];
    let len = stream.read(&mut answer).unwrap();
    (stream, String::from_utf8_lossy(&answer[..len]).into_owned())
}

fn upgrade(path: &str, more: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{more}\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13"
    )
}

/// An echo, a refused upgrade, a plain request, and an abnormal end, one after the other.
fn visit(home: &Home, server: &Served, log: &str) {
    let lines = |count: usize| {
        eventually("the lines are written", || read_to_string(home.0.join(log)).unwrap().lines().count() >= count);
    };
    let mut client = tautline::connect(&format!("{}/chat?token=secret", server.url)).unwrap();
    for text in ["one", "two"] {
        client.text(text).unwrap();
        assert_eq!(client.receive().unwrap().data(), text.as_bytes());
    }
    client.close(CloseCode::NORMAL, "").unwrap();
    lines(1);
    let (_, answer) = request(server, &upgrade("/x", "Origin: https://evil.example\r\n"));
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    lines(2);
    let plain = "GET /?token=secret HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a\"b\t\u{9b}31m";
    assert!(request(server, plain).1.starts_with("HTTP/1.1 200 "));
    lines(3);
    assert!(request(server, &upgrade("/gone", "User-Agent: a\"b\tc\r\n")).1.starts_with("HTTP/1.1 101 "));
    lines(4);
}

#[test]
fn each_request_and_each_websocket_is_a_line() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--access-log", "access.log"]);
    visit(&home, &server, "access.log");
    // One that is open at the end has a line too.
    let mut client = tautline::connect(&format!("{}/last", server.url)).unwrap();
    signal(&server.pid(), "-TERM");
    assert!(client.receive().is_err());
    drop(client);
    assert_eq!(server.wait().code, Some(0));
    let text = read_to_string(home.0.join("access.log")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let expected = [
        (" \"GET /chat\" 101 seconds=", " messages=2/2 code=1000 by=client cause=peer agent="),
        (" \"GET /x\" 403 seconds=", " agent=\"-\""),
        (" \"GET /\" 200 seconds=", " agent=\"-\""),
        (" \"GET /gone\" 101 seconds=", " messages=0/0 code=1006 by=client cause=finished agent=\"a\\\"b\\tc\""),
        (" \"GET /last\" 101 seconds=", " messages=0/0 code=1001 by=server cause=local agent="),
    ];
    assert_eq!(lines.len(), expected.len(), "{text}");
    for (line, (begin, end)) in lines.iter().zip(expected) {
        let (time, rest) = line.split_once(" 127.0.0.1:").unwrap_or_else(|| panic!("{line}"));
        assert!(time.ends_with('Z') && time.len() == 24, "{line}");
        assert!(rest.contains(begin), "no {begin:?} in {line}");
        assert!(rest.contains(end), "no {end:?} in {line}");
        assert!(!line.contains("bytes=0/"), "{line}");
    }
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn in_json_each_line_is_an_object_also_with_tls_and_on_standard_output() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--access-log", "access.log", "--log-format", "json"]);
    visit(&home, &server, "access.log");
    assert_eq!(server.stop().code, Some(0));
    let text = read_to_string(home.0.join("access.log")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [echo, refused, page, gone] = &lines[..] else { panic!("{text}") };
    for (line, path, status) in [(echo, "/chat", 101), (refused, "/x", 403), (page, "/", 200), (gone, "/gone", 101)] {
        assert_eq!((line["method"].as_str(), line["path"].as_str()), (Some("GET"), Some(path)), "{line}");
        assert_eq!((line["status"].as_u64(), line["tls"].as_str()), (Some(status), None), "{line}");
        assert!(line["bytes_in"].as_u64() > Some(50) && line["bytes_out"].as_u64() > Some(50), "{line}");
        assert!(line["seconds"].is_f64() && line["peer"].is_string() && line["time"].is_string(), "{line}");
    }
    assert_eq!((&echo["code"], &echo["by"], &echo["cause"]), (&1000.into(), &"client".into(), &"peer".into()));
    assert_eq!((&echo["messages_in"], &echo["messages_out"]), (&2.into(), &2.into()));
    assert_eq!((&gone["code"], &gone["by"]), (&1006.into(), &"client".into()));
    assert_eq!(gone["user_agent"], "a\"b\tc");
    assert!(page["code"].is_null() && page["by"].is_null(), "{page}");

    let arguments = ["serve", "--listen", "127.0.0.1:0", "--access-log", "-", "--log-format", "json"];
    let mut server = home.taut(&arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    let said = home.run_with(&["connect", "--wait", "2", first.strip_prefix("listening on ").unwrap()], "hello\n");
    assert_eq!((said.code, said.out.as_str()), (Some(0), "hello\n"));
    let line: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
    signal(&server.id().to_string(), "-TERM");
    assert!(server.wait().unwrap().success());
    assert_eq!((line["tls"].as_str(), line["messages_in"].as_u64()), (Some("TLSv1.3"), Some(1)), "{line}");
}

#[test]
fn sighup_opens_the_file_again() {
    let home = Home::new();
    let hardened: &[&str] = if cfg!(feature = "harden") { &["--harden"] } else { &[] };
    for (number, options) in [&["--plain"][..], &[&["--plain"], hardened].concat()].into_iter().enumerate() {
        let (log, old) = (format!("{number}.log"), home.0.join(format!("{number}.old")));
        let server = home.serve(&[options, &["--access-log", &log]].concat());
        let log = home.0.join(log);
        let get = |path: &str| request(&server, &format!("GET {path} HTTP/1.1\r\nHost: localhost"));
        get("/before");
        eventually("a line", || read_to_string(&log).unwrap().contains("/before"));
        std::fs::rename(&log, &old).unwrap();
        get("/between");
        eventually("a line in the old file", || read_to_string(&old).unwrap().contains("/between"));
        signal(&server.pid(), "-HUP");
        eventually("the new file", || log.exists());
        get("/after");
        eventually("a line in the new file", || read_to_string(&log).unwrap().contains("/after"));
        assert!(!read_to_string(&old).unwrap().contains("/after"));
        let said = server.stop();
        assert_eq!(said.code, Some(0), "{said:?}");
    }
}

/// With a link, and a device, `--harden` leaves the server what SIGHUP needs.
#[cfg(feature = "harden")]
#[test]
fn a_hardened_server_opens_a_linked_file_again() {
    let home = Home::new();
    let (here, there) = (home.0.join("here"), home.0.join("there"));
    [&here, &there].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    let (log, old) = (there.join("access.log"), there.join("old.log"));
    std::os::unix::fs::symlink(&log, here.join("access.log")).unwrap();
    let server = home.serve(&["--plain", "--harden", "--access-log", "here/access.log"]);
    std::fs::rename(&log, &old).unwrap();
    signal(&server.pid(), "-HUP");
    eventually("the new file", || log.exists());
    let said = server.stop();
    assert_eq!(said.code, Some(0), "{said:?}");
    for device in ["/dev/null", "/dev/stdout", "/dev/stderr"] {
        let server = home.serve(&["--plain", "--harden", "--access-log", device]);
        signal(&server.pid(), "-HUP");
        let said = server.stop();
        assert!(said.code == Some(0) && !said.err.contains("cannot open"), "{device}: {said:?}");
        assert!(!said.err.contains("Landlock failed"), "{device}: {said:?}");
    }
}

#[test]
fn the_file_is_opened_by_the_user_of_the_server() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    std::fs::set_permissions(&home.0, Permissions::from_mode(0o755)).unwrap();
    let (logs, secret) = (home.0.join("logs"), home.0.join("secret"));
    std::fs::create_dir(&logs).unwrap();
    chown(&logs, Some(NOBODY), Some(NOBODY)).unwrap();
    std::fs::create_dir(&secret).unwrap();
    std::fs::set_permissions(&secret, Permissions::from_mode(0o700)).unwrap();
    let options = ["--plain", "--user", "nobody", "--access-log", "logs/access.log"];
    let server = home.serve(&options);
    let log = logs.join("access.log");
    let owner = || std::fs::metadata(&log).map(|file| (file.uid(), file.gid())).ok();
    assert_eq!(owner(), Some((NOBODY, NOBODY)));
    // A successor makes it again.
    std::fs::remove_file(&log).unwrap();
    let upgraded = home.run(&["upgrade", &server.pid()]);
    assert_eq!(upgraded.code, Some(0), "{upgraded:?}");
    assert_eq!(owner(), Some((NOBODY, NOBODY)));
    let said = server.stop();
    assert_eq!(said.code, Some(0), "{said:?}");
    std::fs::remove_file(&log).unwrap();
    std::os::unix::fs::symlink(secret.join("target"), &log).unwrap();
    let refused = home.run(&[&["serve", "--listen", "127.0.0.1:0"], &options[..]].concat());
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("cannot write logs/access.log as nobody: Permission denied"), "{}", refused.err);
    assert!(!secret.join("target").exists());
}

#[test]
fn lines_that_a_full_disk_does_not_take_are_counted_and_nothing_stops() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--access-log", "/dev/full", "--admin", "unix:admin.sock"]);
    for _ in 0..3 {
        assert!(request(&server, "GET / HTTP/1.1\r\nHost: localhost").1.starts_with("HTTP/1.1 200 "));
    }
    let figures = || exchange(&home.0.join("admin.sock"), "GET /metrics", "").1;
    eventually("three lines are lost", || figures().contains("taut_log_lines_lost_total{log=\"access\"} 3\n"));
    let said = server.stop();
    assert_eq!(said.code, Some(0));
    assert!(said.err.contains("of the access log were lost: No space left on device"), "{}", said.err);
    let refused = home.run(&["serve", "--plain", "--access-log", "missing/access.log"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("--access-log: cannot write missing/access.log"), "{}", refused.err);
}

#[test]
fn an_entry_goes_on_in_the_process_that_takes_over() {
    let home = Home::new();
    let mut server = home.serve(&["--plain", "--access-log", "access.log"]);
    let mut client: Socket = tautline::connect(&format!("{}/long", server.url)).unwrap();
    let mut echo = |text: &str| {
        client.text(text).unwrap();
        assert_eq!(client.receive().unwrap().data(), text.as_bytes());
    };
    echo("before");
    let upgraded = home.run(&["upgrade", &server.pid()]);
    assert_eq!(upgraded.code, Some(0), "{upgraded:?}");
    echo("after");
    let mut old = server.child.take().unwrap();
    assert_eq!(old.wait().unwrap().code(), Some(0));
    client.close(CloseCode::NORMAL, "").unwrap();
    let log = || read_to_string(home.0.join("access.log")).unwrap();
    eventually("the line is written", || log().contains('\n'));
    let text = log();
    assert!(text.contains("\"GET /long\" 101 ") && text.contains(" messages=2/2 code=1000 by=client"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    let mut lines = BufReader::new(old.stderr.take().unwrap()).lines().map(Result::unwrap);
    let said = lines.find(|line| line.contains("have moved")).unwrap();
    signal(&super::upgrade::successor(&said), "-KILL");
}

/// The totals of the old process go on, and belong to none of the new one's requests.
#[test]
fn the_first_entry_after_an_upgrade_has_bytes_of_its_own() {
    let home = Home::new();
    let mut server = home.serve(&["--plain", "--access-log", "access.log"]);
    let mut client: Socket = tautline::connect(&format!("{}/much", server.url)).unwrap();
    client.binary(&[7; 300_000]).unwrap();
    assert_eq!(client.receive().unwrap().data().len(), 300_000);
    client.close(CloseCode::NORMAL, "").unwrap();
    let upgraded = home.run(&["upgrade", &server.pid()]);
    assert_eq!(upgraded.code, Some(0), "{upgraded:?}");
    let mut old = server.child.take().unwrap();
    assert_eq!(old.wait().unwrap().code(), Some(0));
    request(&server, "GET /after HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let log = || read_to_string(home.0.join("access.log")).unwrap();
    eventually("the line is written", || log().contains("/after"));
    let text = log();
    let line = text.lines().find(|line| line.contains("/after")).unwrap();
    let bytes = line.split_once(" bytes=").unwrap().1.split(['/', ' ']).take(2);
    let bytes: Vec<u64> = bytes.map(|bytes| bytes.parse().unwrap()).collect();
    assert!(bytes.iter().all(|bytes| (1..10_000).contains(bytes)), "{line}");
    let mut lines = BufReader::new(old.stderr.take().unwrap()).lines().map(Result::unwrap);
    let said = lines.find(|line| line.contains("have moved")).unwrap();
    signal(&super::upgrade::successor(&said), "-KILL");
}

/// The new process has opened the file, and waits for the old one, which is stopped, when the file is moved away.
#[test]
fn a_file_that_is_moved_away_during_an_upgrade_is_made_again() {
    for options in [&[][..], HARDENED] {
        let home = Home::new();
        let program = copy(&home);
        let server = home.serve_by(&program, &[&["--plain", "--access-log", "access.log"], options].concat(), |_| {});
        let (log, moved) = (home.0.join("access.log"), home.0.join("moved.log"));
        let old = server.worker();
        let real = env!("CARGO_BIN_EXE_taut");
        let script = format!("#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.01; done\nexec {real} \"$@\"\n");
        install(&script, &program, 0o700);
        signal(&server.pid(), "-USR2");
        let mut new = None;
        eventually("the new process", || {
            new = children_of(&server.pid()).into_iter().find(|child| *child != old);
            new.is_some()
        });
        let new = new.unwrap();
        signal(&old, "-STOP");
        std::fs::write(home.0.join("go"), "").unwrap();
        eventually("the new process has opened the file", || {
            let fds = std::fs::read_dir(format!("/proc/{new}/fd"));
            let mut files = fds.into_iter().flatten().flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok());
            files.any(|file| file == log)
        });
        std::fs::rename(&log, &moved).unwrap();
        signal(&server.pid(), "-HUP");
        signal(&old, "-CONT");
        eventually("the old process has ended", || !is_alive(&old));
        let (_, answer) = request(&server, "GET /after HTTP/1.1\r\nHost: localhost");
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        let has_line = |file: &Path| read_to_string(file).is_ok_and(|text| text.contains("/after"));
        eventually("a line", || has_line(&log) || has_line(&moved));
        assert!(has_line(&log), "the line is in the old file");
        signal(&new, "-TERM");
        eventually("the new process has ended", || !is_alive(&new));
    }
}

#[test]
fn with_v_a_good_connection_is_a_line_of_the_log() {
    let home = Home::new();
    let server = home.serve(&["--plain", "-v"]);
    tautline::connect(&server.url).unwrap().close(CloseCode::NORMAL, "").unwrap();
    let said = server.stop().err;
    let line = said.lines().find(|line| line.contains("closed by the peer (1000)"));
    assert!(line.is_some_and(|line| line.contains("INFO ] 127.0.0.1:")), "{said}");
}
