//! The memory that a log takes in this process, beside that of a counting allocator.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

#[path = "../../hub/tests/helpers/counted.rs"]
mod counted;
#[path = "../../testkit/measuring/sys.rs"]
mod measuring;

use counted::{Begun, PATIENCE, Process, append, eventually, follow, is_right};
use measuring::{alone, live};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use tautline_hub::{Kind, Log, LogError};
use tautline_nats::{NatsConfig, NatsLog};

/// A server that greets its client, and then never answers JetStream's requests.
fn silent_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let info = r#"{"server_id":"x","server_name":"x","version":"2.11.4","go":"x","host":"x","port":1,"headers":true,"max_payload":1048576,"jetstream":true,"proto":1}"#;
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.write_all(format!("INFO {info}\r\n").as_bytes());
            let mut lines = BufReader::new(stream.try_clone().unwrap());
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
                if line.starts_with(b"PING") && stream.write_all(b"PONG\r\n").is_err() {
                    break;
                }
                line.clear();
            }
        }
    });
    format!("nats://{address}")
}

#[test]
fn messages_that_wait_for_nats_count_and_are_bounded() {
    let _alone = alone();
    let log = NatsLog::start(NatsConfig::new(silent_server())).unwrap();
    let topic: Arc<str> = "log:prices".into();
    // Until the connection is there, messages are answered at once.
    eventually("a message waits", || {
        let (done, answers) = channel();
        log.append(&topic, append(1), Box::new(move |result| drop(done.send(result))));
        answers.recv_timeout(Duration::from_secs(1)).is_err()
    });
    let (before, counted) = (live(), log.memory());
    assert!(counted > 0);
    let (done, answers) = channel();
    for _ in 0..200 {
        let done = done.clone();
        log.append(&topic, append(10_000), Box::new(move |result| drop(done.send(result))));
    }
    let more = log.memory() - counted;
    assert!(is_right(more, before), "{more} counted, {} allocated", live() - before);
    assert!(answers.try_recv().is_err());
    log.bound(log.memory() + 10_000);
    log.append(&topic, append(10_000), Box::new(move |result| drop(done.send(result))));
    assert_eq!(answers.recv_timeout(PATIENCE), Ok(Err(LogError::Full)));
}

#[test]
fn what_has_ended_does_not_count() {
    let _alone = alone();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let log = NatsLog::start(NatsConfig::new(format!("nats://{closed}"))).unwrap();
    let topic: Arc<str> = "log:prices".into();
    let following = log.follow(&topic, Kind::History, Arc::new(Begun::default()));
    assert_eq!(log.memory(), log.memory_of_topic());
    let (done, answers) = channel();
    log.append(&topic, append(100), Box::new(move |result| drop(done.send(result))));
    assert_eq!(answers.recv_timeout(PATIENCE), Ok(Err(LogError::Away)));
    let (done, answers) = channel();
    for _ in 0..3 {
        let done = done.clone();
        log.read(&topic, Kind::History, None, Box::new(move |result| _ = done.send(result.is_ok())));
    }
    assert!(log.memory() > log.memory_of_topic());
    (0..3).for_each(|_| assert_eq!(answers.recv_timeout(PATIENCE), Ok(false)));
    drop(following);
    eventually("nothing counts", || log.memory() == 0);
}

#[test]
#[ignore = "needs nats-server: cargo xtask hub"]
fn followed_topics_count() {
    let _alone = alone();
    let program = std::env::var_os("TAUTLINE_NATS_SERVER").unwrap_or_else(|| panic!("run `cargo xtask hub`"));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let folder = std::env::temp_dir().join(format!("tautline-nats-memory-{}", std::process::id()));
    let mut command = Command::new(program);
    command.args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--jetstream", "--store_dir"]).arg(&folder);
    let _nats = Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(), folder);
    let log = NatsLog::start(NatsConfig::new(format!("nats://127.0.0.1:{port}"))).unwrap();
    follow(&log, 200);
}
