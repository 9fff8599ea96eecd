use std::sync::Arc;
use tautline::{Kind, Message};

/// Largest message that a baseline receives or sends.
pub(super) const MAX_MESSAGE: usize = 16 << 20;

/// Bytes for answers of any size, shared by all threads of a server.
#[derive(Clone)]
pub(super) struct Source(Arc<Vec<u8>>);

impl Source {
    pub(super) fn new() -> Self {
        Self(Arc::new(vec![b'.'; MAX_MESSAGE]))
    }

    /// As many bytes as the message asks for: a number, little-endian.
    pub(super) fn answer(&self, message: &Message<'_>) -> &[u8] {
        let size = message.data().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        &self.0[..usize::try_from(size).map_or(MAX_MESSAGE, |size| size.min(MAX_MESSAGE))]
    }
}

/// The answer to a message: itself, or the bytes that it asks `source` for.
pub(super) fn answer<'a>(message: &'a Message<'_>, source: Option<&'a Source>) -> (Kind, &'a [u8]) {
    source.map_or_else(|| (message.kind(), message.data()), |source| (Kind::Binary, source.answer(message)))
}
