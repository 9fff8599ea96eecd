//! Published messages that wait for their delivery.

use crate::topics::receipt::{Receipt, Receipts};
use crate::topics::recipients::{Destination, Recipients};
use std::collections::VecDeque;
use std::sync::Arc;
use tautline_conn::message::{Encoded, Outgoing, Published};
use tautline_io::Token;

/// Most messages of a topic that are delivered in one walk over its subscribers.
const RUN: usize = 64;
/// Bytes of messages from which on no further one joins a walk.
const RUN_BYTES: usize = 1 << 20;
/// Waiting messages, and their bytes, from which on no others are taken from other threads and from connections that rest.
const MOST_WAITING: usize = 1024;
const MOST_BYTES: usize = 16 << 20;

/// A message on its way to connections of one shard.
#[derive(Clone, Debug)]
pub(crate) struct Publication {
    pub(crate) to: Destination,
    pub(crate) message: Encoded,
    /// The connection that published it, if it does not get it.
    pub(crate) except: Option<Token>,
    /// The counts that the publisher wants.
    pub(crate) receipts: Option<Arc<Receipts>>,
    /// Its mark, if it is timed: a message to one connection.
    pub(crate) timed: Option<u64>,
}

impl Publication {
    pub(crate) fn new(to: Recipients<'_>, message: Outgoing<'_>, published: &Published) -> Self {
        Self { to: to.into(), message: Encoded::new(message, published), except: None, receipts: None, timed: None }
    }

    /// A message to the subscribers of a topic.
    pub(crate) fn to_topic(topic: &str, message: Outgoing<'_>, published: &Published) -> Self {
        Self::new(Recipients::Topic(topic), message, published)
    }

    /// Has `done` called with the counts.
    pub(crate) fn counted(self, done: impl FnOnce(Receipt) + Send + 'static) -> Self {
        Self { receipts: Some(Arc::new(Receipts::new(Box::new(done)))), ..self }
    }

    /// The part for another shard than the publisher's; `None` if it has no receivers.
    pub(crate) fn on(&self, shard: u32) -> Option<Self> {
        let to = self.to.on(shard)?;
        Some(Self { to, message: self.message.clone(), except: None, receipts: self.receipts.clone(), timed: None })
    }

    /// A shard did not take the message.
    pub(crate) fn miss(&self) {
        if let Some(receipts) = &self.receipts {
            receipts.miss();
        }
    }

    /// Bytes of the message.
    pub(crate) fn len(&self) -> usize {
        self.message.message.payload().len()
    }
}

/// The published messages that are not delivered yet.
#[derive(Default)]
pub(crate) struct Publications {
    waiting: VecDeque<Publication>,
    /// The messages that are being delivered, all of one topic, or one to a list of connections. They are not in `waiting`.
    pub(crate) run: Vec<Publication>,
    /// Bytes of the messages in `waiting`.
    bytes: usize,
    /// The number of all messages so far.
    pushed: u64,
}

impl Publications {
    pub(crate) fn push(&mut self, publication: Publication) {
        self.bytes += publication.len();
        self.pushed += 1;
        self.waiting.push_back(publication);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.run.is_empty() && self.waiting.is_empty()
    }

    /// The number of all messages so far.
    pub(crate) const fn pushed(&self) -> u64 {
        self.pushed
    }

    /// The number of messages that were delivered.
    pub(crate) fn delivered(&self) -> u64 {
        self.pushed - (self.waiting.len() + self.run.len()) as u64
    }

    /// Messages whose delivery has not begun.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether so much waits that it is delivered before anything else is done. Connections that publish rest before it comes to
    /// that, unless there are many.
    pub(crate) fn are_too_many(&self) -> bool {
        self.waiting.len() >= 2 * MOST_WAITING || self.bytes >= 2 * MOST_BYTES
    }

    /// Whether so much waits that nothing else should be added.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= MOST_WAITING || self.bytes >= MOST_BYTES
    }

    /// Moves the next messages of one topic into `run`: all consecutive ones, at most `most`.
    pub(crate) fn begin_run(&mut self, most: usize) {
        let mut bytes: usize = self.run.iter().map(Publication::len).sum();
        while self.run.len() < most.min(RUN)
            && bytes < RUN_BYTES
            && let Some(next) = self.waiting.front()
            && self.run.first().is_none_or(|first| first.to.goes_with(&next.to))
            && let Some(next) = self.waiting.pop_front()
        {
            self.bytes -= next.len();
            bytes += next.len();
            self.run.push(next);
        }
        if self.waiting.is_empty() {
            // A burst leaves no memory behind.
            self.waiting.shrink_to(MOST_WAITING);
        }
    }
}
