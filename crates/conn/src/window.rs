//! Received bytes that stay where the caller has read them, up to the event that it takes next.

use crate::frames::{self, Read, Visitor};
use crate::held::Output;
use crate::inbound::{self, Advanced, Inward, Record};
use crate::message::Outgoing;
use crate::supplies::Supplies;
use crate::verdict::Stop;
use core::fmt;
use core::ops::{ControlFlow, Range};
use tautline_buf::{Buf, Pool};
use tautline_tls::{Place, Session};
use tautline_ws::{Decoder, Event, Kind, Role};

/// The bytes of a connection whose caller reads them and takes one event at a time.
pub struct Window {
    /// Bytes of the peer; the front of them may be opened already.
    pub wire: Buf,
    /// The decoder of frames.
    pub decoder: Decoder,
    /// Whether the peer has ended the stream.
    pub ended: bool,
    /// Plaintext of a session that does not open records in place.
    scratch: Buf,
    /// The record at the front, if a part of it is left, or is the last event's.
    record: Option<Record>,
    /// Kind and place of the last event's bytes, if the decoder does not hold them: in the buffer that has the record's.
    payload: (Kind, Range<usize>),
}

/// A connection that reads from a [`Window`].
pub trait Windowed: Inward {
    /// Its window.
    fn window(&mut self) -> &mut Window;
}

/// The bytes of a message or a pong, where they were decrypted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Payload<'a> {
    kind: Kind,
    data: &'a [u8],
}

impl Window {
    /// Nothing has arrived.
    #[must_use]
    pub const fn new(role: Role, max_message: usize) -> Self {
        Self {
            wire: Buf::new(),
            decoder: Decoder::new(role, max_message),
            ended: false,
            scratch: Buf::new(),
            record: None,
            payload: (Kind::Binary, 0..0),
        }
    }

    /// The bytes of the last event. Otherwise empty.
    #[must_use]
    pub fn payload(&self) -> Payload<'_> {
        let (kind, range) = &self.payload;
        let in_scratch = self.record.as_ref().is_some_and(|record| record.plain.place == Place::Scratch);
        let buffer = if in_scratch { &self.scratch } else { &self.wire };
        Payload { kind: *kind, data: self.decoder.held().unwrap_or_else(|| &buffer.filled()[range.clone()]) }
    }

    /// Decodes frames up to the first event, of which `note` makes the caller's. Pings are answered. No further frame is read
    /// while more than `most` bytes of output wait.
    ///
    /// Returns the bytes used and the event, or the peer's close frame.
    ///
    /// # Errors
    /// The peer broke the protocol.
    pub fn frames<S: Session, W, R, T>(
        &mut self,
        plain: &mut [u8],
        most: usize,
        output: &mut Output<S, W, R>,
        supplies: &mut Supplies,
        note: fn(&Event<'_>) -> T,
    ) -> Result<Read<(usize, Option<T>)>, Stop> {
        let mut first = First { output, supplies, most, note, noted: None };
        match frames::read(&mut self.decoder, plain, &mut first)? {
            Read::Closed(code, reason) => Ok(Read::Closed(code, reason)),
            Read::Used(used) => {
                let event = first.noted.map(|(event, kind, len)| {
                    self.payload = (kind, 0..len);
                    event
                });
                Ok(Read::Used((used, event)))
            }
        }
    }

    /// Drops the bytes of the last event, and a record that is used up.
    #[inline]
    pub fn forget(&mut self, pool: &mut Pool) {
        self.payload = (Kind::Binary, 0..0);
        self.decoder.recycle(pool);
        if let Some(Record { plain, len }) = &self.record
            && plain.range.is_empty()
        {
            self.wire.take(*len);
            self.record = None;
        }
    }

    /// Whether nothing is left to read.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.wire.is_empty() && self.record.is_none()
    }

    /// The free bytes into which the peer's next bytes are to be read: at least `room`, and `first` if they are made now.
    pub fn room(&mut self, first: usize, room: usize, supplies: &mut Supplies) -> &mut [u8] {
        self.forget(&mut supplies.pool);
        if !self.wire.has_memory() {
            self.wire = supplies.take_window(first);
        } else if self.wire.room() < room {
            supplies.pool.reserve(&mut self.wire, first);
        }
        self.wire.reserve(room)
    }

    /// Drops the bytes of the last event, and gives memory back: no byte is expected soon.
    pub fn rest(&mut self, supplies: &mut Supplies) {
        self.forget(&mut supplies.pool);
        if self.record.is_some() {
            return;
        }
        if self.wire.is_empty() {
            supplies.give_window(core::mem::take(&mut self.wire));
        } else {
            supplies.pool.fit(&mut self.wire);
        }
    }
}

/// Reads until nothing is left that can be used, or until the connection [has stopped](Inward::has_stopped).
///
/// # Errors
/// The connection cannot go on.
pub fn read<C: Windowed>(conn: &mut C) -> Result<(), Stop> {
    let Window { wire, scratch, record, .. } = conn.window();
    let (mut wire, mut scratch, record) = (core::mem::take(wire), core::mem::take(scratch), record.take());
    let result = read_from(conn, &mut wire, &mut scratch, record);
    if conn.window().record.is_none() && scratch.has_memory() {
        // A scratch that holds no plaintext is worth nothing.
        conn.parts().pool.give(core::mem::take(&mut scratch));
    }
    let window = conn.window();
    (window.wire, window.scratch) = (wire, scratch);
    result
}

fn read_from<C: Windowed>(conn: &mut C, wire: &mut Buf, scratch: &mut Buf, record: Option<Record>) -> Result<(), Stop> {
    if let Some(mut record) = record {
        if conn.holds_back() {
            conn.hold();
        } else {
            let taken = inbound::plaintext(conn, record.plain.bytes(wire.filled_mut(), scratch))?;
            record.plain.range.start += taken;
        }
        if conn.has_stopped() || !record.plain.range.is_empty() {
            conn.window().keep(record);
            return Ok(());
        }
        wire.take(record.len);
    }
    let Advanced { used, amid } = inbound::advance(conn, wire.filled_mut(), scratch)?;
    wire.take(used);
    if let Some(record) = amid {
        conn.window().keep(record);
    }
    Ok(())
}

impl Window {
    /// Keeps a record, in front of whose rest the event's bytes lie.
    fn keep(&mut self, record: Record) {
        let end = record.plain.range.start;
        self.payload.1 = end.saturating_sub(self.payload.1.len())..end;
        self.record = Some(record);
    }
}

/// The visitor of a connection whose caller takes one event at a time.
struct First<'a, S, W, R, T> {
    output: &'a mut Output<S, W, R>,
    supplies: &'a mut Supplies,
    most: usize,
    note: fn(&Event<'_>) -> T,
    /// The event, with kind and length of its bytes.
    noted: Option<(T, Kind, usize)>,
}

impl<S: Session, W, R, T> Visitor for First<'_, S, W, R, T> {
    #[inline]
    fn pool(&mut self) -> &mut Pool {
        &mut self.supplies.pool
    }

    #[inline]
    fn wants_frame(&mut self, used: usize) -> bool {
        used == 0 || !self.output.is_open() || self.output.len() <= self.most
    }

    #[inline]
    fn visit(&mut self, event: Event<'_>) -> Result<ControlFlow<()>, Stop> {
        if !self.output.is_open() {
            // After our close frame, messages are no longer delivered.
            return Ok(ControlFlow::Continue(()));
        }
        let (kind, len) = match &event {
            Event::Message(message) => (message.kind(), message.data().len()),
            Event::Chunk { kind, data, .. } => (*kind, data.len()),
            Event::Pong(payload) => (Kind::Binary, payload.len()),
            Event::Ping(payload) => {
                self.output.pong(payload, self.supplies)?;
                return Ok(ControlFlow::Continue(()));
            }
            Event::Close(_) => return Ok(ControlFlow::Continue(())),
        };
        self.noted = Some(((self.note)(&event), kind, len));
        Ok(ControlFlow::Break(()))
    }
}

impl<'a> Payload<'a> {
    /// Text or binary; a pong is binary.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The bytes, of either kind. Those of a text are UTF-8.
    #[must_use]
    pub const fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The payload as text; `None` for a binary message, and for a piece of a text that begins or ends inside a character.
    #[must_use]
    pub fn text(&self) -> Option<&'a str> {
        match self.kind {
            // The decoder has validated it. This call pays again, so that no unsafe code is needed here.
            Kind::Text => core::str::from_utf8(self.data).ok(),
            Kind::Binary => None,
        }
    }
}

impl<'a> From<&Payload<'a>> for Outgoing<'a> {
    /// Takes kind and bytes of a received message, to echo or relay it.
    fn from(payload: &Payload<'a>) -> Self {
        let mut outgoing = Self::binary(payload.data);
        outgoing.kind = payload.kind;
        outgoing
    }
}

impl fmt::Debug for Payload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({:?}, {} B)", self.kind, self.data.len())
    }
}
