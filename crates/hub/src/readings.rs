//! The pages that one loop has the log read: a bounded number at a time, since each takes memory until the loop has sent it.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use tautline::ConnId;

/// Most pages that the log reads for one loop at a time.
const MOST: usize = 32;

/// A subscriber of a topic.
type Reader = (Arc<str>, ConnId);

#[derive(Default)]
pub(crate) struct Readings {
    /// The number of the last reading.
    last: u64,
    running: usize,
    /// Subscribers that wait for a place, in the order of their requests. Each is there once, however often it asks.
    waiting: VecDeque<Reader>,
    known: HashSet<Reader>,
}

impl Readings {
    /// The number of a new reading. `None` if the subscriber has to wait until [`next`](Self::next) returns it.
    pub(crate) fn begin(&mut self, topic: &Arc<str>, conn: ConnId) -> Option<u64> {
        if self.running >= MOST {
            let reader = (topic.clone(), conn);
            if self.known.insert(reader.clone()) {
                self.waiting.push_back(reader);
            }
            return None;
        }
        self.running += 1;
        self.last += 1;
        Some(self.last)
    }

    /// A reading has ended, also if nobody wants its page any more.
    pub(crate) const fn end(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    /// The subscriber that has waited longest, if there is a place for it.
    pub(crate) fn next(&mut self) -> Option<Reader> {
        let reader = if self.running < MOST { self.waiting.pop_front() } else { None }?;
        self.known.remove(&reader);
        Some(reader)
    }
}
