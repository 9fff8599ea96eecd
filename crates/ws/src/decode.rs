mod assembly;
mod found;
mod header;
mod payload;
mod state;

use self::assembly::Assembly;
use self::found::Found;
pub use self::state::{DecoderState, FrameState, MessageState};
use crate::deflate::Inflater;
use crate::mask::mask;
use crate::{Error, Event, Header, Kind, Message, Opcode, Role};
use core::fmt;
use core::ops::Range;
use tautline_buf::Pool;

/// The result of one [`Decoder::decode`].
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Decoded<'b> {
    /// How many bytes of the input were used.
    pub used: usize,
    /// The event in the used bytes; `None` if all of the input was used and no event is complete yet.
    pub event: Option<Event<'b>>,
}

/// Turns the peer's bytes into messages and control frames.
///
/// A message that lies in the input as one whole frame is unmasked in place and returned as a slice of the input. An
/// incomplete frame or a fragmented message is unmasked into an assembly buffer from the pool. That buffer grows with
/// the bytes that arrived, and never past the limit. So the caller need not keep input, and an idle decoder holds no
/// buffer.
///
/// An error is final: the decoder repeats it for all further input. After a close frame, further input is used up
/// without events (RFC 6455, section 5.5.1).
///
/// ```
/// use tautline_buf::Pool;
/// use tautline_ws::{Decoder, Event, Role};
///
/// let mut pool = Pool::new(1 << 20);
/// let mut decoder = Decoder::new(Role::Server, 1 << 20);
/// let mut input = *b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"; // RFC 6455, section 5.7
/// let decoded = decoder.decode(&mut input, &mut pool)?;
/// assert_eq!(decoded.used, 11);
/// let Some(Event::Message(message)) = decoded.event else { panic!("a message") };
/// assert_eq!(message.text(), Some("Hello"));
/// # Ok::<(), tautline_ws::Error>(())
/// ```
pub struct Decoder {
    assembly: Assembly,
    inflater: Option<Box<Inflater>>,
    max_message: usize,
    /// Bytes of the current message so far, as they came: a compressed one's before they are inflated.
    total: usize,
    /// Fragments of the current message that brought no byte.
    empty: u32,
    /// Bytes of the current frame's payload that have not arrived yet.
    remaining: u64,
    phase: Phase,
    /// The masking key, rotated to the next byte of the payload.
    key: [u8; 4],
    head: [u8; Header::MAX_LEN],
    head_len: u8,
    opcode: Opcode,
    fin: bool,
    role: Role,
    streaming: bool,
    message: Option<Progress>,
}

/// The position of a decoder in the stream.
///
/// ```text
///   whole message ┌──┐
///      handed out │  ▼     any other frame
///   in place      └─Idle ───────────────────┐
///                     ▲                     ▼      header
///                     │ nothing held     Header ─────────────► Payload
///                     └──────────────────┴─ ▲ ◄────────────────┘ │ close frame
///                                             end of frame       ▼
///     anywhere ──── error ───► Failed                          Closed
/// ```
enum Phase {
    /// Before a frame's header, with no message in progress and no bytes held: the next message may take the fast path.
    Idle,
    /// Before or inside a frame's header.
    Header,
    /// Before or inside a frame's payload.
    Payload,
    /// Behind a close frame.
    Closed,
    /// Behind an error, which is boxed so that connections without one are small.
    Failed(Box<Error>),
}

/// The message in progress.
#[derive(Clone, Copy)]
struct Progress {
    kind: Kind,
    compressed: bool,
    streaming: bool,
    /// No chunk of the message was handed out.
    first: bool,
}

impl Decoder {
    /// Makes a decoder for the frames that `role` receives, with messages of up to `max_message` bytes.
    ///
    /// If a message is compressed, its inflated bytes count. Its compressed bytes may be twice as many, and 4 KiB more, for
    /// senders that flush often. A message may have as many empty fragments as bytes.
    #[must_use]
    pub const fn new(role: Role, max_message: usize) -> Self {
        Self {
            assembly: Assembly::new(),
            inflater: None,
            max_message,
            total: 0,
            empty: 0,
            remaining: 0,
            phase: Phase::Idle,
            key: [0; 4],
            head: [0; Header::MAX_LEN],
            head_len: 0,
            opcode: Opcode::Continuation,
            fin: false,
            role,
            streaming: false,
            message: None,
        }
    }

    /// Adds a decompressor, so that compressed messages are accepted.
    #[must_use]
    pub fn with_inflater(mut self, inflater: Inflater) -> Self {
        self.inflater = Some(Box::new(inflater));
        self
    }

    /// Sets whether messages are handed out in [chunks](Event::Chunk) as they arrive, from the next message on.
    ///
    /// The limit on a message's size applies to the sum of its chunks.
    pub fn set_streaming(&mut self, on: bool) {
        self.streaming = on;
        if on && matches!(self.phase, Phase::Idle) {
            self.phase = Phase::Header;
        }
        self.resume_fast_path();
    }

    /// Decodes the next event from the front of `input`.
    ///
    /// The caller drops the used bytes and presents the others again, with or without more behind them. If there is no
    /// event, all of `input` was used.
    ///
    /// An event borrows from the decoder or from `input`. The decoder changes used bytes of `input`.
    ///
    /// # Errors
    /// The peer broke the protocol or exceeded the limit. The error is final.
    #[inline]
    pub fn decode<'b>(&'b mut self, input: &'b mut [u8], pool: &mut Pool) -> Result<Decoded<'b>, Error> {
        if matches!(self.phase, Phase::Idle)
            && let Some((kind, range)) = whole_message(self.role, input, self.max_message)
        {
            let used = range.end;
            let data = match self.role {
                Role::Server => unmask_behind_key(input, range),
                Role::Client => &mut input[range],
            };
            return match Message::validate(kind, data) {
                Ok(message) => Ok(Decoded { used, event: Some(Event::Message(message)) }),
                Err(error) => Err(self.fail(error, pool)),
            };
        }
        self.decode_any(input, pool)
    }

    /// Returns the buffer of the last event to the pool, if nothing else needs it.
    ///
    /// Without this call, the next [`decode`](Self::decode) does so.
    #[inline]
    pub fn recycle(&mut self, pool: &mut Pool) {
        if self.assembly.is_held() {
            self.release(pool);
        }
    }

    /// The bytes of the last message, chunk, ping or pong, if they lie in the decoder and not in the input.
    ///
    /// They stay until the next [`decode`](Self::decode) or [`recycle`](Self::recycle). A caller that cannot keep the
    /// borrow of an [`Event`] keeps the place of its bytes in the input, or takes them from here.
    #[must_use]
    pub fn held(&self) -> Option<&[u8]> {
        self.assembly.held()
    }

    /// Whether no message and no frame is in progress.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle | Phase::Header) && self.head_len == 0 && self.message.is_none()
    }

    /// Whether a message in progress has memory.
    #[inline]
    #[must_use]
    pub const fn has_message(&self) -> bool {
        self.assembly.has_memory()
    }

    /// The memory of the message in progress, and approximately that of the decompressor, in bytes.
    #[must_use]
    pub fn memory(&self) -> (usize, usize) {
        (self.assembly.capacity(), self.inflater.as_ref().map_or(0, |inflater| inflater.memory()))
    }

    #[inline(never)]
    fn decode_any<'b>(&'b mut self, input: &'b mut [u8], pool: &mut Pool) -> Result<Decoded<'b>, Error> {
        self.recycle(pool);
        let (used, found) = match self.find(input, pool) {
            Ok(found) => found,
            Err(error) => return Err(self.fail(error, pool)),
        };
        self.resume_fast_path();
        let event = found.map(|found| self.event(found)).transpose()?;
        Ok(Decoded { used, event })
    }

    /// Finds the next event; returns how many bytes were used up to its end.
    fn find<'i>(&mut self, input: &'i mut [u8], pool: &mut Pool) -> Result<(usize, Option<Found<'i>>), Error> {
        let len = input.len();
        let mut rest = input;
        loop {
            match self.phase {
                Phase::Idle | Phase::Header => match self.take_header(rest)? {
                    Some(used) => rest = &mut rest[used..],
                    None => return Ok((len, None)),
                },
                Phase::Payload => {}
                Phase::Closed => return Ok((len, None)),
                Phase::Failed(ref error) => return Err(**error),
            }
            let (piece, behind) = self.split_payload(rest);
            let found = match self.message {
                Some(message) if !self.opcode.is_control() => self.take_data(message, piece, pool)?,
                _ => self.take_control(piece, pool)?,
            };
            if found.is_some() || behind.is_empty() {
                return Ok((len - behind.len(), found));
            }
            rest = behind;
        }
    }

    /// Drops the bytes of the last event; an empty buffer goes back to the pool.
    fn release(&mut self, pool: &mut Pool) {
        if matches!(self.phase, Phase::Closed) {
            // A message that a close frame cut off goes too.
            self.assembly.clear(pool);
        } else {
            self.assembly.release(pool);
        }
        self.resume_fast_path();
    }

    /// Allows the fast path again if no bytes are held.
    fn resume_fast_path(&mut self) {
        if self.is_idle() && !self.assembly.is_held() && self.assembly.is_empty() {
            self.phase = if self.streaming { Phase::Header } else { Phase::Idle };
        }
    }

    #[cold]
    fn fail(&mut self, error: Error, pool: &mut Pool) -> Error {
        self.phase = Phase::Failed(Box::new(error));
        self.assembly.clear(pool);
        error
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").field("role", &self.role).field("held", &self.assembly.len()).finish_non_exhaustive()
    }
}

/// The fast path: finds a message at the front of `input` that is one whole, valid, plain frame below 64 KiB.
///
/// `None` leaves the input, valid or not, to the slow path.
#[inline]
fn whole_message(role: Role, input: &[u8], max_message: usize) -> Option<(Kind, Range<usize>)> {
    let [first, second, rest @ ..] = input else { return None };
    let kind = match first {
        0x81 => Kind::Text,
        0x82 => Kind::Binary,
        _ => return None,
    };
    // The mask bit is 0 here if it is right. If it is wrong, it is 1 and makes the length invalid.
    let (len, key_len) = match role {
        Role::Server => (second ^ 0x80, 4),
        Role::Client => (*second, 0),
    };
    let (len, start) = match (len, rest) {
        (0..126, _) => (usize::from(len), 2 + key_len),
        (126, [high, low, ..]) => (usize::from(u16::from_be_bytes([*high, *low])), 4 + key_len),
        _ => return None,
    };
    let minimal = start == 2 + key_len || len >= 126;
    let end = start + len;
    (minimal && len <= max_message && end <= input.len()).then_some((kind, start..end))
}

/// Unmasks `input[range]` with the key in front of it.
#[inline]
fn unmask_behind_key(input: &mut [u8], range: Range<usize>) -> &mut [u8] {
    let (head, data) = input[..range.end].split_at_mut(range.start);
    if let Some(key) = head.last_chunk() {
        mask(data, *key);
    }
    data
}

#[cfg(test)]
mod tests;
