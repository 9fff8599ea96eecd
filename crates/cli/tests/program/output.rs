//! Output that is stuck, full or closed, and the form of every line.

use super::{Home, Served};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write, pipe};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A pipe that is full, and whose reader does not read.
fn stuck() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'\n'; 4096]).is_ok() {}
    fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

/// Sends SIGTERM, and returns the exit code. Fails if the end takes long.
fn stop(mut server: Served) -> Option<i32> {
    let mut child = server.child.take().unwrap();
    super::faults::signal(&child.id().to_string(), "-TERM");
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if begun.elapsed() > Duration::from_mins(1) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("SIGTERM was not obeyed");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Each set of options that makes a server tell something.
const TALKATIVE: [&[&str]; 4] = [
    &[],
    &["--plain", "--admin", "127.0.0.1:0"],
    &["--plain", "--dashboard=127.0.0.1:0"],
    &["--plain", "--stages", "--admin", "127.0.0.1:0", "--dashboard=127.0.0.1:0"],
];

#[test]
fn a_stuck_standard_error_stops_neither_loops_nor_signals() {
    let home = Home::new();
    for options in TALKATIVE {
        let (_reader, writer) = stuck();
        let options = [options, &["-vv"]].concat();
        let server = home.serve_with(&options, |command| {
            command.stderr(writer);
        });
        if options.contains(&"--plain") {
            // Each connection has lines at this level, and more of them than the queue holds do no harm.
            for number in 0..50 {
                let mut client = tautline::connect(&server.url).unwrap();
                client.text(&number.to_string()).unwrap();
                assert_eq!(client.receive().unwrap().data(), number.to_string().as_bytes());
            }
        }
        assert_eq!(stop(server), Some(0), "{options:?}");
    }
}

#[test]
fn one_stuck_pipe_for_all_output_stops_neither_start_nor_end() {
    let home = Home::new();
    let (_reader, writer) = stuck();
    let arguments = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "unix:admin.sock",
        "--access-log",
        "-",
        "-vv",
        "--log-format",
        "json",
    ];
    let mut command = home.taut(&arguments);
    command.stdout(writer.try_clone().unwrap()).stderr(writer);
    let server = Served { child: Some(command.spawn().unwrap()), url: String::new() };
    let admin = home.0.join("admin.sock");
    super::tls::eventually("the server serves", || UnixStream::connect(&admin).is_ok());
    for _ in 0..20 {
        assert_eq!(super::admin::exchange(&admin, "GET /healthz", ""), (200, "ok\n".to_owned()));
    }
    assert_eq!(stop(server), Some(0));
}

#[test]
fn a_standard_error_without_room_or_reader_kills_nothing() {
    let home = Home::new();
    for options in TALKATIVE {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let server = home.serve_with(options, |command| {
            command.stderr(full);
        });
        assert_eq!(stop(server), Some(0), "full: {options:?}");
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let server = home.serve_with(options, |command| {
            command.stderr(writer);
        });
        assert_eq!(stop(server), Some(0), "closed: {options:?}");
    }
    // An end by an error has its own code, and not that of a panic.
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let failed = home.taut(&["serve", "--cert", "missing.pem", "--key", "missing.pem"]).stderr(full).status().unwrap();
    assert_eq!(failed.code(), Some(2));
}

#[test]
fn lines_that_did_not_fit_are_counted_once_the_reader_goes_on() {
    let home = Home::new();
    let (reader, writer) = stuck();
    let server = home.serve_with(&["--plain", "--admin", "unix:admin.sock"], |command| {
        command.stderr(writer);
    });
    let process = Pid::from_raw(server.pid().parse().unwrap()).unwrap();
    let lost = || {
        let (_, figures) = super::admin::exchange(&home.0.join("admin.sock"), "GET /metrics", "");
        let line = figures.lines().find(|line| line.starts_with("taut_log_lines_lost_total{log=\"program\"}"));
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
    };
    let begun = Instant::now();
    while lost() == 0 {
        assert!(begun.elapsed() < Duration::from_mins(2), "the queue is not full");
        // Each is answered with a report of several lines, unless one is on its way.
        for _ in 0..100 {
            kill_process(process, Signal::USR1).unwrap();
            std::thread::yield_now();
        }
    }
    // The line follows those that waited.
    let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
    let told = lines.find(|line| line.ends_with("lines of the log were lost: their reader is too slow")).unwrap();
    assert!(told.contains(" WARN ]"), "{told}");
    let rest = std::thread::spawn(move || lines.collect::<Vec<_>>());
    assert_eq!(stop(server), Some(0));
    assert!(
        rest.join().unwrap().iter().any(|line| line.starts_with("closing connections")),
        "the last lines are there"
    );
}

fn objects(text: &str) -> Vec<Value> {
    let read = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
    let objects: Vec<Value> = text.lines().map(read).collect();
    for object in &objects {
        for field in ["time", "level", "target", "message"] {
            assert!(object[field].is_string(), "{field} of {object}");
        }
    }
    objects
}

#[test]
fn in_json_every_line_is_an_object() {
    let home = Home::new();
    let all = ["--admin", "127.0.0.1:0", "--dashboard=127.0.0.1:0", "--stages", "--log-format", "json", "-vv"];
    let server = home.serve(&all);
    super::faults::signal(&server.pid(), "-USR1");
    // An upgrade is refused, and that is said.
    super::faults::signal(&server.pid(), "-USR2");
    let said = server.stop().err;
    let messages: Vec<String> =
        objects(&said).iter().map(|object| object["message"].as_str().unwrap().to_owned()).collect();
    for what in [
        "no --cert given",
        "other clients can trust its authority",
        "admin listener at",
        "live figures at",
        "connections: ",
        "closing connections",
        "no upgrade: --dashboard has an address",
    ] {
        assert!(messages.iter().any(|message| message.contains(what)), "{what} is missing in {messages:#?}");
    }
}

#[test]
fn in_json_errors_are_objects_too() {
    let home = Home::new();
    for arguments in [
        &["serve", "--log-format", "json", "--cert", "missing.pem", "--key", "missing.pem"][..],
        &["serve", "--log-format=json", "--wrong"],
        &["--log-format", "json", "serve", "--listen", "256.0.0.1:1"],
        &["connect", "--log-format", "json", "http://localhost/"],
    ] {
        let said = home.run(arguments);
        assert_eq!(said.code, Some(2), "{arguments:?}: {}", said.err);
        let objects = objects(&said.err);
        assert_eq!(objects.len(), 1, "{arguments:?}");
        assert_eq!(objects[0]["level"], "error");
    }
}
