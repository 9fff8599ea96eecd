//! A logger that keeps its lines for tests.

use super::eventually;
use log::{LevelFilter, Log, Metadata, Record};
use std::sync::{Mutex, Once};

struct Kept;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Log for Kept {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        ["tautline", "rustls"].iter().any(|ours| metadata.target().starts_with(ours))
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            LINES.lock().unwrap().push(format!("{} {}", record.level(), record.args()));
        }
    }

    fn flush(&self) {}
}

/// Keeps log lines from now on, up to the level Info.
pub(crate) fn keep() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Kept).unwrap();
        log::set_max_level(LevelFilter::Info);
    });
}

/// The lines that contain all of `parts`.
pub(crate) fn lines(parts: &[&str]) -> Vec<String> {
    let lines = LINES.lock().unwrap();
    lines.iter().filter(|line| parts.iter().all(|part| line.contains(part))).cloned().collect()
}

/// Waits for a line that contains all of `parts`.
pub(crate) fn expect(parts: &[&str]) {
    eventually(&format!("a log line with {parts:?}; of the first there are {:?}", lines(&parts[..1])), || {
        !lines(parts).is_empty()
    });
}
