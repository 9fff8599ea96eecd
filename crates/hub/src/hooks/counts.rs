//! Figures of the questions to an application.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the times that are counted, in milliseconds.
const BOUNDS: [u64; 12] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000, 30_000];

/// The counters themselves.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) calls: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) cached: AtomicU64,
    pub(super) full: AtomicU64,
    times: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

pub(super) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    /// Counts the time of an answer.
    pub(super) fn took(&self, time: Duration) {
        let bucket = BOUNDS.iter().position(|most| time <= Duration::from_millis(*most)).unwrap_or(BOUNDS.len());
        add(&self.times[bucket]);
        self.micros.fetch_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn read(&self, waiting: usize) -> HookCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let bounds = BOUNDS.iter().map(|most| Duration::from_millis(*most)).chain([Duration::MAX]);
        HookCounts {
            calls: of(&self.calls),
            failures: of(&self.failures),
            refused: of(&self.refused),
            cached: of(&self.cached),
            full: of(&self.full),
            waiting: waiting as u64,
            times: bounds.zip(self.times.iter().map(of)).collect(),
            time: Duration::from_micros(of(&self.micros)),
        }
    }
}

/// The questions of a hub to its application, since the start.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HookCounts {
    /// Requests to the application.
    pub calls: u64,
    /// Requests without an answer that counts.
    pub failures: u64,
    /// Answers that refuse.
    pub refused: u64,
    /// Questions that an earlier answer decided.
    pub cached: u64,
    /// Questions that were not asked, since too many waited.
    pub full: u64,
    /// Questions that wait now.
    pub waiting: u64,
    /// Numbers of requests by their times: each with the longest time that it counts.
    pub times: Vec<(Duration, u64)>,
    /// The time of all requests.
    pub time: Duration,
}
