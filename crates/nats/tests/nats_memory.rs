//! The memory that a log takes in this process, beside that of a counting allocator.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tautline_hub::{Append, Entry, Kind, Log, LogError, Position, Sink};
use tautline_nats::{NatsConfig, NatsLog};

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

fn message(bytes: usize) -> Append {
    let data = format!("\"{}\"", "x".repeat(bytes)).into();
    Append { kind: Kind::History, key: None, data, id: None }
}

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
        log.append(&topic, message(1), Box::new(move |result| drop(done.send(result))));
        answers.recv_timeout(Duration::from_secs(1)).is_err()
    });
    let (before, counted) = (live(), log.memory());
    assert!(counted > 0);
    let (done, answers) = channel();
    for _ in 0..200 {
        let done = done.clone();
        log.append(&topic, message(10_000), Box::new(move |result| drop(done.send(result))));
    }
    let more = log.memory() - counted;
    assert!(is_right(more, before), "{more} counted, {} allocated", live() - before);
    assert!(answers.try_recv().is_err());
    log.bound(log.memory() + 10_000);
    log.append(&topic, message(10_000), Box::new(move |result| drop(done.send(result))));
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
    log.append(&topic, message(100), Box::new(move |result| drop(done.send(result))));
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

/// A nats-server that ends with the test.
struct Nats(Child, std::path::PathBuf);

impl Drop for Nats {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_dir_all(&self.1);
    }
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
    let _nats = Nats(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(), folder);
    let log = NatsLog::start(NatsConfig::new(format!("nats://127.0.0.1:{port}"))).unwrap();
    let begun = Arc::new(Begun::default());
    // The first has the streams made.
    let first = log.follow(&"log:first".into(), Kind::History, begun.clone());
    eventually("the first is followed", || begun.0.load(Ordering::Relaxed) == 1);
    let mut all = Vec::new();
    let before = live();
    for number in 0..200 {
        all.push(log.follow(&format!("log:{number}").into(), Kind::History, begun.clone()));
    }
    eventually("all are followed", || begun.0.load(Ordering::Relaxed) == 201);
    let counted = log.memory() - log.memory_of_topic();
    // A topic begins before its consumer is there.
    eventually("the count is right", || is_right(counted, before));
    std::thread::sleep(Duration::from_secs(1));
    assert!(is_right(counted, before), "{counted} counted, {} allocated", live() - before);
    drop((first, all));
    eventually("nothing counts", || log.memory() == 0);
}
