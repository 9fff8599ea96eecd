//! Connections of the shard that its handlers close by their ids.

use std::collections::VecDeque;
use tautline_io::Token;
use tautline_ws::CloseCode;

/// The connections that are to be closed, in order. Each waits for the messages that were published before.
#[derive(Default)]
pub(crate) struct Closings(VecDeque<Closing>);

/// One of them.
pub(crate) struct Closing {
    pub(crate) conn: Token,
    pub(crate) code: CloseCode,
    pub(crate) reason: Box<str>,
    /// The number of messages that were published before.
    pub(crate) after: u64,
}

impl Closings {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push(&mut self, closing: Closing) {
        self.0.push_back(closing);
    }

    /// The next one that waits for none but the first `delivered` messages.
    pub(crate) fn next(&mut self, delivered: u64) -> Option<Closing> {
        self.0.pop_front_if(|closing| closing.after <= delivered)
    }
}
