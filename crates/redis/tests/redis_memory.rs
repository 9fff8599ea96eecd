//! The memory that a log takes in this process, beside that of a counting allocator.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

#[path = "../../hub/tests/helpers/counted.rs"]
mod counted;
#[path = "../../testkit/measuring/sys.rs"]
mod measuring;

use counted::{Begun, PATIENCE, Process, append, eventually, follow, is_right};
use measuring::{alone, live};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use tautline_hub::{Append, Kind, Log, LogError};
use tautline_redis::{RedisConfig, RedisLog};

#[test]
fn what_has_ended_does_not_count() {
    let _alone = alone();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let log = RedisLog::start(RedisConfig::new(format!("redis://{closed}"))).unwrap();
    let topic: Arc<str> = "log:prices".into();
    let following = log.follow(&topic, Kind::History, Arc::new(Begun::default()));
    assert!(log.memory() >= log.memory_of_topic());
    let (done, answers) = channel();
    log.append(&topic, append(1), Box::new(move |result| drop(done.send(result))));
    assert_eq!(answers.recv_timeout(PATIENCE), Ok(Err(LogError::Away)));
    let (done, answers) = channel();
    for _ in 0..3 {
        let done = done.clone();
        log.read(&topic, Kind::History, None, Box::new(move |result| _ = done.send(result.is_ok())));
    }
    (0..3).for_each(|_| assert_eq!(answers.recv_timeout(PATIENCE), Ok(false)));
    log.bound(1_000);
    let (done, answers) = channel();
    log.append(&topic, append(1), Box::new(move |result| drop(done.send(result))));
    assert_eq!(answers.recv_timeout(PATIENCE), Ok(Err(LogError::Full)));
    drop(following);
    eventually("nothing counts", || log.memory() == 0);
}

/// A server, and a log on it.
fn start() -> (Process, RedisLog) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let folder = std::env::temp_dir().join(format!("tautline-redis-memory-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--dir"]).arg(&folder);
    let redis = Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(), folder);
    (redis, RedisLog::start(RedisConfig::new(format!("redis://127.0.0.1:{port}"))).unwrap())
}

#[test]
#[ignore = "needs redis-server: cargo xtask redis"]
fn messages_that_wait_for_redis_count() {
    let _alone = alone();
    let (redis, log) = start();
    let topic: Arc<str> = "log:prices".into();
    let message = |bytes: usize| Append { id: Some("12345678".into()), ..append(bytes) };
    let (done, answers) = channel();
    eventually("a message is stored", || {
        let done = done.clone();
        log.append(&topic, message(1), Box::new(move |result| _ = done.send(result.is_ok())));
        answers.recv_timeout(PATIENCE).unwrap()
    });
    for (number, bytes) in [(500, 1), (200, 10_000)] {
        eventually("nothing counts", || log.memory() == 0);
        // It takes messages, and answers none.
        assert!(Command::new("kill").args(["-STOP", &redis.0.id().to_string()]).status().unwrap().success());
        let before = live();
        for _ in 0..number {
            let done = done.clone();
            log.append(&topic, message(bytes), Box::new(move |result| _ = done.send(result.is_ok())));
        }
        let counted = log.memory();
        eventually("the count is right", || is_right(counted, before));
        assert!(Command::new("kill").args(["-CONT", &redis.0.id().to_string()]).status().unwrap().success());
        (0..number).for_each(|_| _ = answers.recv_timeout(PATIENCE).unwrap());
    }
}

#[test]
#[ignore = "needs redis-server: cargo xtask redis"]
fn followed_topics_count() {
    let _alone = alone();
    let (_redis, log) = start();
    follow(&log, 2_000);
}
