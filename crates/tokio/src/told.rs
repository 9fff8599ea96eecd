use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The time after which a server wants its client back, noted by a connection for the attempt after it.
#[derive(Debug)]
pub(crate) struct Told(AtomicU64);

/// No time.
const NONE: u64 = u64::MAX;

impl Told {
    pub(crate) fn note(&self, after: Duration) {
        let millis = u64::try_from(after.as_millis()).unwrap_or(NONE).min(NONE - 1);
        self.0.store(millis, Ordering::Relaxed);
    }

    pub(crate) fn take(&self) -> Option<Duration> {
        let millis = self.0.swap(NONE, Ordering::Relaxed);
        (millis != NONE).then(|| Duration::from_millis(millis))
    }
}

impl Default for Told {
    fn default() -> Self {
        Self(AtomicU64::new(NONE))
    }
}
