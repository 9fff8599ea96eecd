//! The memory that a log counts, beside what is allocated. For the tests of logs on other servers.

use crate::measuring::live;
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tautline_hub::{Append, Entry, Kind, Log, Position, Sink};

/// Longest wait. A test that waits longer fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a number is within 20 % of what was allocated since `before`.
pub(crate) fn is_right(counted: usize, before: usize) -> bool {
    let real = live().saturating_sub(before);
    (real * 4 / 5..=real * 6 / 5).contains(&counted)
}

/// Counts the topics that have begun.
#[derive(Default)]
pub(crate) struct Begun(AtomicUsize);

impl Sink for Begun {
    fn begin(&self, _: Position) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn entry(&self, _: Entry) {}

    fn lost(&self) {}
}

/// A message of so many bytes.
pub(crate) fn append(bytes: usize) -> Append {
    let data = format!("\"{}\"", "x".repeat(bytes)).into();
    Append { kind: Kind::History, key: None, data, id: None }
}

/// Follows a number of topics of a log, and compares the count with what is allocated.
pub(crate) fn follow(log: &dyn Log, number: usize) {
    let begun = Arc::new(Begun::default());
    let follow = |topic: &str| log.follow(&topic.into(), Kind::History, begun.clone());
    // The first takes memory that all share.
    let first = follow("log:first");
    eventually("the first is followed", || begun.0.load(Ordering::Relaxed) == 1);
    let before = live();
    let all: Vec<_> = (0..number).map(|number| follow(&format!("log:{number}"))).collect();
    eventually("all are followed", || begun.0.load(Ordering::Relaxed) == number + 1);
    let counted = log.memory() - log.memory_of_topic();
    // A topic may begin before all that belongs to it is there, and some memory is free again soon.
    eventually("the count is right", || is_right(counted, before));
    std::thread::sleep(Duration::from_secs(1));
    assert!(is_right(counted, before), "{counted} counted, {} allocated", live() - before);
    drop((first, all));
    eventually("nothing counts", || log.memory() == 0);
}

/// A server with a folder, which both end with the test.
pub(crate) struct Process(pub(crate) Child, pub(crate) PathBuf);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_dir_all(&self.1);
    }
}
