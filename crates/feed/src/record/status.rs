use core::sync::atomic::{AtomicU64, Ordering};
use std::io;
use std::sync::Mutex;

/// The numbers of events that a recorder has written and lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Events in the file.
    pub written: u64,
    /// Events that are not in the file: the queue was full, a write failed, or a payload was too large.
    pub lost: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// The last error of a write. Later blocks may have been written.
    pub error: Option<io::ErrorKind>,
}

/// A status that two threads share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    written: AtomicU64,
    lost: AtomicU64,
    bytes: AtomicU64,
    /// Nobody waits for it long: it is held to copy a value.
    error: Mutex<Option<io::ErrorKind>>,
}

impl Shared {
    pub(super) fn wrote(&self, events: u64, bytes: u64) {
        self.written.fetch_add(events, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn lost(&self, events: u64) {
        self.lost.fetch_add(events, Ordering::Relaxed);
    }

    pub(super) fn failed(&self, error: &io::Error) {
        if let Ok(mut last) = self.error.lock() {
            *last = Some(error.kind());
        }
    }

    pub(super) fn status(&self) -> Status {
        Status {
            written: self.written.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            error: self.error.lock().ok().and_then(|error| *error),
        }
    }
}
