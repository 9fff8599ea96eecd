mod header;
mod payload;
mod state;

use self::payload::Found;
pub use self::state::{DecoderState, FrameState, MessageState};
use crate::deflate::Inflater;
use crate::mask::mask;
use crate::utf8::Utf8;
use crate::{Error, Event, Header, Kind, Message, Opcode, Role};
use core::fmt;
use core::ops::Range;
use tautline_window::{Buf, Pool};

/// What one step of [`Decoder::decode`] did.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Decoded<'b> {
    /// Bytes of the input that are done with.
    pub used: usize,
    /// What they held; `None` where all of the input was used and nothing is whole yet.
    pub event: Option<Event<'b>>,
}

/// Turns the peer's bytes into messages and control frames.
///
/// A message that lies in the input as one whole frame is unmasked there and handed out as a slice of the input. Frames
/// that the input's end cuts, and fragmented messages, are unmasked into an assembly buffer from the pool, which grows
/// with the bytes that really arrived and never past the limit. So the caller need not keep input, and an idle decoder
/// holds no buffer.
///
/// An error is final: the decoder repeats it for all further input. After a close frame all further input is used up
/// without events (RFC 6455, section 5.5.1).
///
/// ```
/// use tautline_window::Pool;
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
    /// The message so far, and behind it the control frame so far.
    assembly: Buf,
    inflater: Option<Box<Inflater>>,
    max_message: usize,
    /// Bytes of the current message so far, where it is not compressed.
    total: usize,
    /// Bytes of the current frame's payload that are still to come.
    remaining: u64,
    /// Bytes of the assembly that outlast the control frame, or the event, that the rest of it belongs to.
    keep: usize,
    phase: Phase,
    /// The key for the next byte of the payload.
    key: [u8; 4],
    head: [u8; Header::MAX_LEN],
    head_len: u8,
    opcode: Opcode,
    fin: bool,
    role: Role,
    streaming: bool,
    /// The bytes of the assembly behind `keep` were handed out.
    stale: bool,
    /// Fresh wherever a message begins, for the end of a text makes it so.
    utf8: Utf8,
    message: Option<Progress>,
}

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
    /// As `Header`, with nothing held and nothing begun: the next message may take the short way.
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
    /// No chunk of it was handed out.
    first: bool,
}

impl Decoder {
    /// A decoder for what arrives at `role`, with messages of up to `max_message` bytes (inflated ones where they come
    /// compressed).
    #[must_use]
    pub const fn new(role: Role, max_message: usize) -> Self {
        Self {
            assembly: Buf::new(),
            inflater: None,
            max_message,
            total: 0,
            remaining: 0,
            keep: 0,
            phase: Phase::Idle,
            key: [0; 4],
            head: [0; Header::MAX_LEN],
            head_len: 0,
            opcode: Opcode::Continuation,
            fin: false,
            role,
            streaming: false,
            stale: false,
            utf8: Utf8::new(),
            message: None,
        }
    }

    /// Accepts compressed messages.
    #[must_use]
    pub fn with_inflater(mut self, inflater: Inflater) -> Self {
        self.inflater = Some(Box::new(inflater));
        self
    }

    /// Hands messages out in [chunks](Event::Chunk) as they arrive, instead of whole; from the next message on. The limit
    /// on a message's size holds for the sum of its chunks.
    pub fn set_streaming(&mut self, on: bool) {
        self.streaming = on;
        if on && matches!(self.phase, Phase::Idle) {
            self.phase = Phase::Header;
        }
        self.settle();
    }

    /// Finds the next event, using bytes from the front of `input`.
    ///
    /// Bytes that are used must not be shown again; what is left must be, with more behind it or not. Without an event
    /// all of `input` was used. What an event borrows is the decoder's or lies in `input`; used bytes of `input` are
    /// changed.
    ///
    /// # Errors
    /// The peer broke the protocol or sent more than the limit. The error is final.
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

    /// The last event is done with: a buffer that only it needed goes back to the pool. Otherwise the next
    /// [`decode`](Self::decode) does this.
    #[inline]
    pub fn recycle(&mut self, pool: &mut Pool) {
        if self.stale {
            self.release(pool);
        }
    }

    /// Whether neither a message nor a frame has begun and not ended.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle | Phase::Header) && self.head_len == 0 && self.message.is_none()
    }

    #[inline(never)]
    fn decode_any<'b>(&'b mut self, input: &'b mut [u8], pool: &mut Pool) -> Result<Decoded<'b>, Error> {
        self.recycle(pool);
        let (used, found) = match self.find(input, pool) {
            Ok(found) => found,
            Err(error) => return Err(self.fail(error, pool)),
        };
        self.settle();
        let event = found.map(|found| self.event(found, input)).transpose()?;
        Ok(Decoded { used, event })
    }

    /// The next event and how many bytes were used up to its end.
    fn find(&mut self, input: &mut [u8], pool: &mut Pool) -> Result<(usize, Option<Found>), Error> {
        let mut at = 0;
        loop {
            match self.phase {
                Phase::Idle | Phase::Header => match self.take_header(&input[at..])? {
                    Some(used) => at += used,
                    None => return Ok((input.len(), None)),
                },
                Phase::Payload => {}
                Phase::Closed => return Ok((input.len(), None)),
                Phase::Failed(ref error) => return Err(**error),
            }
            let (used, found) = match self.message {
                Some(message) if !self.opcode.is_control() => self.take_data(message, input, at, pool)?,
                _ => self.take_control(input, at, pool)?,
            };
            at += used;
            if found.is_some() || at == input.len() {
                return Ok((at, found));
            }
        }
    }

    /// Forgets what was handed out; an empty buffer goes back to the pool.
    fn release(&mut self, pool: &mut Pool) {
        self.stale = false;
        self.assembly.truncate(self.keep);
        if self.assembly.is_empty() {
            pool.give(core::mem::take(&mut self.assembly));
        }
        self.settle();
    }

    /// Opens the short way again where nothing is held.
    fn settle(&mut self) {
        if self.is_idle() && !self.stale && self.assembly.is_empty() {
            self.phase = if self.streaming { Phase::Header } else { Phase::Idle };
        }
    }

    #[cold]
    fn fail(&mut self, error: Error, pool: &mut Pool) -> Error {
        self.phase = Phase::Failed(Box::new(error));
        self.keep = 0;
        self.release(pool);
        error
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").field("role", &self.role).field("held", &self.assembly.len()).finish_non_exhaustive()
    }
}

/// The message at the front of `input`, where it is one whole uncompressed frame below 64 KiB that breaks no rule. All
/// else, right or wrong, is for the long way to judge.
#[inline]
fn whole_message(role: Role, input: &[u8], max_message: usize) -> Option<(Kind, Range<usize>)> {
    let [first, second, rest @ ..] = input else { return None };
    let kind = match first {
        0x81 => Kind::Text,
        0x82 => Kind::Binary,
        _ => return None,
    };
    // The mask bit falls out where it is as it should be, and spoils the length where it is not.
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

/// Unmasks `input[range]` with the key that lies before it.
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
