//! Events in a time.

use std::time::{Duration, Instant};

/// The begin of a time, and the events in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    since: Instant,
    events: u32,
}

impl Rate {
    pub(crate) const fn begin(now: Instant) -> Self {
        Self { since: now, events: 0 }
    }

    /// Counts an event. False if more than `most` have come within `time`.
    pub(crate) fn take(&mut self, most: u32, time: Duration, now: Instant) -> bool {
        if self.is_over(time, now) {
            *self = Self::begin(now);
        }
        self.events = self.events.saturating_add(1);
        self.events <= most
    }

    /// Whether the time is over, and the next event begins another one.
    pub(crate) fn is_over(self, time: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= time
    }
}
