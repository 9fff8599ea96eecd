//! Published messages that wait for their delivery.

use crate::message::Publication;
use std::collections::VecDeque;

/// Most messages of a topic that are delivered in one walk over its subscribers.
const RUN: usize = 64;
/// Waiting messages, and their bytes, from which on the shard delivers them before it does anything else.
const MOST_WAITING: usize = 1024;
const MOST_BYTES: usize = 16 << 20;

/// The published messages that are not delivered yet.
#[derive(Default)]
pub(crate) struct Publications {
    waiting: VecDeque<Publication>,
    /// The messages that are being delivered, all of one topic. They are not in `waiting`.
    pub(crate) run: Vec<Publication>,
    /// Bytes of the messages in `waiting`.
    bytes: usize,
}

impl Publications {
    pub(crate) fn push(&mut self, publication: Publication) {
        self.bytes += publication.message.payload().len();
        self.waiting.push_back(publication);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.run.is_empty() && self.waiting.is_empty()
    }

    /// Messages whose delivery has not begun.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether so much waits that nothing else should be added.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= MOST_WAITING || self.bytes >= MOST_BYTES
    }

    /// Moves the next messages of one topic into `run`: all consecutive ones, at most `most`.
    pub(crate) fn begin_run(&mut self, most: usize) {
        while self.run.len() < most.min(RUN)
            && let Some(next) = self.waiting.front()
            && self.run.first().is_none_or(|first| first.topic == next.topic)
            && let Some(next) = self.waiting.pop_front()
        {
            self.bytes -= next.message.payload().len();
            self.run.push(next);
        }
        if self.waiting.is_empty() {
            // A burst leaves no memory behind.
            self.waiting.shrink_to(MOST_WAITING);
        }
    }
}
