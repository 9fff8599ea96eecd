use crate::deflate::Inflater;
use crate::mask::{mask, mask_copy, rotate};
use crate::utf8::Utf8;
use crate::{Close, Error, Event, Header, Kind, Message, Opcode, Role};
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
    utf8: Utf8,
    message: Option<Progress>,
}

/// ```text
///            whole frame, handed out in place
///             ┌──┐
///             │  ▼                 header                 close
///            Idle ──► Header ◄──────────────► Payload ──► Closed
///              ▲         │         frame end     │
///              └─────────┘                       ▼
///         nothing held any more                Failed (from anywhere)
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
    /// Behind an error.
    Failed(Error),
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

/// Where something lies.
enum Place {
    Input(Range<usize>),
    Assembly(Range<usize>),
}

/// An event as offsets, so that the state can be changed while it is found.
enum Found {
    Message(Kind, Place),
    Chunk { kind: Kind, place: Place, first: bool, last: bool },
    Control(Opcode, Place),
}

impl Decoder {
    /// Inflates at most this much at a time where chunks are handed out, so that one of them stays near 1 MiB at the most
    /// that DEFLATE can expand.
    const INFLATE_STEP: usize = 1024;

    /// Memory that a frame's declared length alone may claim.
    const TRUST: usize = 16 * 1024;

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
                Phase::Failed(error) => return Err(error),
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

    /// Parses the header that begins or goes on in `input`, and says how much of `input` it has; `None` where it goes on
    /// behind it.
    fn take_header(&mut self, input: &[u8]) -> Result<Option<usize>, Error> {
        if self.head_len == 0
            && let Some((header, used)) = Header::parse(input)?
        {
            self.begin(header)?;
            return Ok(Some(used));
        }
        let mut used = 0;
        loop {
            let len = usize::from(self.head_len);
            let needed = if len < 2 { 2 } else { Header::len_of(self.head[1]) };
            let n = (needed - len).min(input.len() - used);
            self.head[len..len + n].copy_from_slice(&input[used..used + n]);
            used += n;
            let len = len + n;
            // Also refuses what is wrong in the part that is there.
            if let Some((header, _)) = Header::parse(&self.head[..len])? {
                self.head_len = 0;
                self.begin(header)?;
                return Ok(Some(used));
            }
            // At most 14.
            self.head_len = len.to_le_bytes()[0];
            if len < needed {
                return Ok(None);
            }
        }
    }

    /// Checks a header against the connection and the message in progress.
    fn begin(&mut self, header: Header) -> Result<(), Error> {
        //= https://www.rfc-editor.org/rfc/rfc6455#section-5.1
        //# The server MUST close the connection upon receiving a frame that is not masked.
        //= https://www.rfc-editor.org/rfc/rfc6455#section-5.1
        //# A client MUST close a connection if it detects a masked frame.
        self.key = match (self.role, header.key) {
            (Role::Server, Some(key)) => key,
            (Role::Client, None) => [0; 4],
            (Role::Server, None) => return Err(Error::NotMasked),
            (Role::Client, Some(_)) => return Err(Error::Masked),
        };
        match header.opcode {
            Opcode::Text => self.begin_message(Kind::Text, header)?,
            Opcode::Binary => self.begin_message(Kind::Binary, header)?,
            //= https://www.rfc-editor.org/rfc/rfc7692#section-6
            //# An endpoint MUST NOT set the "Per-Message Compressed" bit of control frames and non-first fragments of a
            //# data message.
            _ if header.rsv1 => return Err(Error::ReservedBits),
            Opcode::Continuation if self.message.is_none() => return Err(Error::UnexpectedContinuation),
            _ => {}
        }
        if header.opcode.is_control() {
            self.keep = self.assembly.len();
        } else {
            self.fin = header.fin;
            let compressed = self.message.is_some_and(|message| message.compressed);
            let room = self.max_message.saturating_sub(self.total);
            if !compressed && header.len > room as u64 {
                return Err(Error::MessageTooBig { limit: self.max_message });
            }
        }
        self.opcode = header.opcode;
        self.remaining = header.len;
        self.phase = Phase::Payload;
        Ok(())
    }

    fn begin_message(&mut self, kind: Kind, header: Header) -> Result<(), Error> {
        //= https://www.rfc-editor.org/rfc/rfc6455#section-5.4
        //# The fragments of one message MUST NOT be interleaved between the fragments of another message
        if self.message.is_some() {
            return Err(Error::MessageInterleaved);
        }
        if header.rsv1 && self.inflater.is_none() {
            return Err(Error::ReservedBits);
        }
        self.total = 0;
        self.utf8 = Utf8::new();
        self.message = Some(Progress { kind, compressed: header.rsv1, streaming: self.streaming, first: true });
        Ok(())
    }

    /// The payload of a control frame from `input[at..]` on.
    fn take_control(&mut self, input: &mut [u8], at: usize, pool: &mut Pool) -> Result<(usize, Option<Found>), Error> {
        let (range, ended) = self.next_range(input, at);
        let used = range.len();
        let place = if ended && self.assembly.len() == self.keep {
            self.unmask(&mut input[range.clone()]);
            Place::Input(range)
        } else {
            self.append(&input[range], pool);
            Place::Assembly(self.keep..self.assembly.len())
        };
        if !ended {
            return Ok((used, None));
        }
        if matches!(place, Place::Assembly(_)) {
            self.stale = true;
        }
        self.phase = Phase::Header;
        if self.opcode == Opcode::Close {
            Close::parse(self.slice(&place, input))?;
            self.phase = Phase::Closed;
        }
        Ok((used, Some(Found::Control(self.opcode, place))))
    }

    /// The payload of a data frame from `input[at..]` on.
    fn take_data(
        &mut self,
        message: Progress,
        input: &mut [u8],
        at: usize,
        pool: &mut Pool,
    ) -> Result<(usize, Option<Found>), Error> {
        let (mut range, mut ended) = self.next_range(input, at);
        if message.compressed && message.streaming && range.len() > Self::INFLATE_STEP {
            range.end = range.start + Self::INFLATE_STEP;
            ended = false;
        }
        let used = range.len();
        let last = ended && self.fin;
        let place = if message.compressed {
            self.unmask(&mut input[range.clone()]);
            self.inflate(message, &input[range], last, pool)?
        } else if message.streaming || (last && self.total == 0) {
            self.unmask(&mut input[range.clone()]);
            self.total += used;
            if message.kind == Kind::Text {
                self.utf8.push(&input[range.clone()])?;
            }
            Place::Input(range)
        } else {
            let from = self.assembly.len();
            self.append(&input[range], pool);
            self.total += used;
            if message.kind == Kind::Text {
                self.utf8.push(&self.assembly.filled()[from..])?;
            }
            Place::Assembly(0..self.assembly.len())
        };
        if last && message.kind == Kind::Text {
            self.utf8.finish()?;
        }
        if ended {
            self.phase = Phase::Header;
        }
        Ok((used, self.found_data(message, place, last)))
    }

    /// What to hand out of a message now that the data at `place` has arrived.
    fn found_data(&mut self, message: Progress, place: Place, last: bool) -> Option<Found> {
        let (Place::Input(range) | Place::Assembly(range)) = &place;
        if !last && (!message.streaming || range.is_empty()) {
            return None;
        }
        if matches!(place, Place::Assembly(_)) {
            self.stale = true;
            self.keep = 0;
        }
        self.message = if last { None } else { Some(Progress { first: false, ..message }) };
        Some(if message.streaming {
            Found::Chunk { kind: message.kind, place, first: message.first, last }
        } else {
            Found::Message(message.kind, place)
        })
    }

    /// Inflates a piece of a message behind what is in the assembly.
    fn inflate(&mut self, message: Progress, piece: &[u8], last: bool, pool: &mut Pool) -> Result<Place, Error> {
        let from = self.assembly.len();
        let Some(inflater) = &mut self.inflater else { return Err(Error::ReservedBits) };
        if self.assembly.capacity() == 0 {
            self.assembly = pool.take();
        }
        inflater.inflate(piece, last, self.max_message, &mut self.assembly)?;
        if message.kind == Kind::Text {
            self.utf8.push(&self.assembly.filled()[from..])?;
        }
        Ok(Place::Assembly(0..self.assembly.len()))
    }

    /// The part of the current frame's payload that lies in `input[at..]`, and whether the frame ends with it.
    fn next_range(&mut self, input: &[u8], at: usize) -> (Range<usize>, bool) {
        let there = input.len() - at;
        let n = usize::try_from(self.remaining).map_or(there, |remaining| remaining.min(there));
        (at..at + n, n as u64 == self.remaining)
    }

    /// Unmasks the next bytes of the payload in place.
    fn unmask(&mut self, data: &mut [u8]) {
        if self.role == Role::Server {
            mask(data, self.key);
        }
        self.advance(data.len());
    }

    /// Unmasks the next bytes of the payload behind what is in the assembly.
    fn append(&mut self, data: &[u8], pool: &mut Pool) {
        if data.is_empty() {
            return;
        }
        if self.assembly.capacity() == 0 {
            self.assembly = pool.take();
        }
        // As much as has arrived may be claimed ahead, so that large frames grow their buffer few times.
        let trust = Self::TRUST.max(self.assembly.len());
        let ahead = usize::try_from(self.remaining).map_or(trust, |remaining| remaining.min(trust));
        let free = &mut self.assembly.reserve(data.len().max(ahead))[..data.len()];
        match self.role {
            Role::Server => mask_copy(data, free, self.key),
            Role::Client => free.copy_from_slice(data),
        }
        self.assembly.commit(data.len());
        self.advance(data.len());
    }

    const fn advance(&mut self, n: usize) {
        self.key = rotate(self.key, n);
        self.remaining -= n as u64;
    }

    fn slice<'b>(&'b self, place: &Place, input: &'b [u8]) -> &'b [u8] {
        match place {
            Place::Input(range) => &input[range.clone()],
            Place::Assembly(range) => &self.assembly.filled()[range.clone()],
        }
    }

    #[expect(unsafe_code, reason = "text is validated as it arrives, not a second time")]
    fn event<'b>(&'b self, found: Found, input: &'b [u8]) -> Result<Event<'b>, Error> {
        Ok(match found {
            Found::Message(kind, place) => {
                let data = self.slice(&place, input);
                // SAFETY: `take_data` has shown all bytes of a text to `self.utf8` in order, and its end: those at `place`
                // are all of the message, in the input or appended to the assembly piece by piece.
                Event::Message(unsafe { Message::new_unchecked(kind, data) })
            }
            Found::Chunk { kind, place, first, last } => {
                Event::Chunk { kind, data: self.slice(&place, input), first, last }
            }
            Found::Control(Opcode::Ping, place) => Event::Ping(self.slice(&place, input)),
            Found::Control(Opcode::Pong, place) => Event::Pong(self.slice(&place, input)),
            Found::Control(_, place) => Event::Close(Close::parse(self.slice(&place, input))?),
        })
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
        self.phase = Phase::Failed(error);
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
