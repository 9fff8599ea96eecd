//! The memory that a log takes in this process, beside that of a counting allocator.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tautline_hub::{Append, Entry, Kind, Log, LogError, Position, Sink};
use tautline_redis::{RedisConfig, RedisLog};

struct Measuring;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls pass unchanged to the system allocator.
unsafe impl GlobalAlloc for Measuring {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Measuring = Measuring;

/// Longest wait. A test that waits longer fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// Lets one test run at a time, because all share the counting allocator.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn live() -> usize {
    LIVE.load(Ordering::Relaxed)
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a number is within 20 % of what the allocator says.
fn is_right(counted: usize, before: usize) -> bool {
    let real = live().saturating_sub(before);
    (real * 4 / 5..=real * 6 / 5).contains(&counted)
}

/// Counts the topics that have begun.
#[derive(Default)]
struct Begun(AtomicUsize);

impl Sink for Begun {
    fn begin(&self, _: Position) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn entry(&self, _: Entry) {}

    fn lost(&self) {}
}

#[test]
fn what_has_ended_does_not_count() {
    let _alone = alone();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let log = RedisLog::start(RedisConfig::new(format!("redis://{closed}"))).unwrap();
    let topic: Arc<str> = "log:prices".into();
    let following = log.follow(&topic, Kind::History, Arc::new(Begun::default()));
    assert!(log.memory() >= log.memory_of_topic());
    let (done, answers) = channel();
    let append = Append { kind: Kind::History, key: None, data: "1".into(), id: None };
    log.append(&topic, append.clone(), Box::new(move |result| drop(done.send(result))));
    assert_eq!(answers.recv_timeout(PATIENCE), Ok(Err(LogError::Away)));
    let (done, answers) = channel();
    for _ in 0..3 {
        let done = done.clone();
        log.read(&topic, Kind::History, None, Box::new(move |result| _ = done.send(result.is_ok())));
    }
    (0..3).for_each(|_| assert_eq!(answers.recv_timeout(PATIENCE), Ok(false)));
    log.bound(1_000);
    let (done, answers) = channel();
    log.append(&topic, append, Box::new(move |result| drop(done.send(result))));
    assert_eq!(answers.recv_timeout(PATIENCE), Ok(Err(LogError::Full)));
    drop(following);
    eventually("nothing counts", || log.memory() == 0);
}

/// A redis-server that ends with the test.
struct Redis(Child, std::path::PathBuf);

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_dir_all(&self.1);
    }
}

impl Redis {
    fn start() -> (Self, RedisLog) {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = std::env::temp_dir().join(format!("tautline-redis-memory-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--dir"]).arg(&folder);
        let redis = Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(), folder);
        (redis, RedisLog::start(RedisConfig::new(format!("redis://127.0.0.1:{port}"))).unwrap())
    }
}

#[test]
#[ignore = "needs redis-server: cargo xtask redis"]
fn messages_that_wait_for_redis_count() {
    let _alone = alone();
    let (redis, log) = Redis::start();
    let topic: Arc<str> = "log:prices".into();
    let message = |bytes: usize| {
        let data = format!("\"{}\"", "x".repeat(bytes)).into();
        Append { kind: Kind::History, key: None, data, id: Some("12345678".into()) }
    };
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
    let (_redis, log) = Redis::start();
    let begun = Arc::new(Begun::default());
    let first = log.follow(&"log:first".into(), Kind::History, begun.clone());
    eventually("the first is followed", || begun.0.load(Ordering::Relaxed) == 1);
    let mut all = Vec::new();
    let before = live();
    for number in 0..2_000 {
        all.push(log.follow(&format!("log:{number}").into(), Kind::History, begun.clone()));
    }
    eventually("all are followed", || begun.0.load(Ordering::Relaxed) == 2_001);
    let counted = log.memory() - log.memory_of_topic();
    let end = Instant::now() + PATIENCE;
    // The memory that subscriptions take for a while is free again.
    while !is_right(counted, before) {
        assert!(Instant::now() < end, "{counted} counted, {} allocated", live() - before);
        std::thread::sleep(Duration::from_millis(5));
    }
    drop((first, all));
    eventually("nothing counts", || log.memory() == 0);
}
