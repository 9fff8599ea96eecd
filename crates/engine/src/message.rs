//! What applications send, and what they are told of it.

use std::sync::Arc;
use tautline_ws::{Kind, Message, Prepared};

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Text or binary.
    pub kind: Kind,
    /// Its bytes; UTF-8 where it is text.
    pub payload: &'a [u8],
    /// Whether to compress it where permessage-deflate was negotiated.
    pub compress: bool,
    /// For [`KeepLatest`](crate::SlowConsumer::KeepLatest): a waiting message with the same key is replaced.
    pub key: Option<u64>,
}

impl<'a> Outgoing<'a> {
    /// A text message.
    #[must_use]
    pub const fn text(text: &'a str) -> Self {
        Self { kind: Kind::Text, payload: text.as_bytes(), compress: true, key: None }
    }

    /// A binary message.
    #[must_use]
    pub const fn binary(payload: &'a [u8]) -> Self {
        Self { kind: Kind::Binary, payload, compress: true, key: None }
    }

    /// The same, not to be compressed.
    #[must_use]
    pub const fn uncompressed(self) -> Self {
        Self { compress: false, ..self }
    }

    /// The same, replacing a waiting message of that key.
    #[must_use]
    pub const fn with_key(self, key: u64) -> Self {
        Self { key: Some(key), ..self }
    }
}

impl<'a> From<&Message<'a>> for Outgoing<'a> {
    /// The same message again: an echo, a relay.
    fn from(message: &Message<'a>) -> Self {
        Self { kind: message.kind(), payload: message.data(), compress: true, key: None }
    }
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It leaves at the end of this turn.
    Sent,
    /// It waits for the peer to read; so many bytes wait in all.
    Queued(usize),
    /// The slow-consumer policy dropped it, or a streamed message must end before it.
    Dropped,
    /// The connection is closing or closed; it went nowhere.
    Closed,
}

/// A message encoded once for many connections.
#[derive(Clone, Debug)]
pub(crate) struct Publication {
    pub(crate) topic: Arc<str>,
    pub(crate) message: Prepared,
    pub(crate) compress: bool,
    pub(crate) key: Option<u64>,
}
