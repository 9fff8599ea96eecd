use crate::plain_error::plain_error;
use core::fmt;

use super::block::MAX_PAYLOAD;
use super::event::{Direction, Event, Kind};
use super::varint;

/// Events that become one block of a recording.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    pub(super) content: Vec<u8>,
    events: u32,
    /// Stamp of the first event.
    first: u64,
    /// Stamp of the last event.
    last: u64,
}

/// An event with a payload above [`MAX_PAYLOAD`], which no recording takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TooLarge;

impl fmt::Display for TooLarge {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a recording takes payloads of at most {MAX_PAYLOAD} bytes")
    }
}

plain_error!(TooLarge);

impl Chunk {
    /// A chunk that holds a number of bytes without allocating.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { content: Vec::with_capacity(capacity), ..Self::default() }
    }

    /// Adds an event. Its bytes are copied.
    ///
    /// # Errors
    /// If the payload is too large. The chunk is as before then.
    pub fn push(&mut self, event: &Event<'_>) -> Result<(), TooLarge> {
        if event.payload.len() > MAX_PAYLOAD {
            return Err(TooLarge);
        }
        if self.events == 0 {
            (self.first, self.last) = (event.at, event.at);
        }
        let direction = if event.direction == Direction::Out { 0x80 } else { 0 };
        self.content.push(event.kind.number() | direction);
        varint::push(&mut self.content, varint::zigzag(event.at.wrapping_sub(self.last).cast_signed()));
        varint::push(&mut self.content, event.connection.into());
        varint::push(&mut self.content, event.payload.len() as u64);
        self.content.extend_from_slice(event.payload);
        self.last = event.at;
        self.events = self.events.saturating_add(1);
        Ok(())
    }

    /// Adds an event that tells of lost ones.
    pub(super) fn push_lost(&mut self, at: u64, count: u64) {
        let payload = &count.to_le_bytes();
        // Eight bytes are never too many.
        let _ = self.push(&Event { at, connection: 0, direction: Direction::In, kind: Kind::Lost, payload });
    }

    /// Whether an event makes this chunk longer than a number of bytes. One alone may.
    pub(super) fn is_full_for(&self, event: &Event<'_>, most: usize) -> bool {
        // A kind and three integers, of this event and of one that tells of lost ones with eight bytes of its own.
        const AROUND: usize = 2 * (1 + 3 * varint::MOST) + 8;
        self.events > 0 && self.content.len() + event.payload.len() + AROUND > most
    }

    /// Forgets all events. Memory beyond a number of bytes is given back.
    pub(super) fn clear(&mut self, most: usize) {
        self.content.clear();
        self.content.shrink_to(most);
        self.events = 0;
    }

    /// The number of events.
    #[must_use]
    pub const fn events(&self) -> u32 {
        self.events
    }

    /// The stamp of the first event.
    #[must_use]
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// The stamp of the last event.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.last
    }
}
