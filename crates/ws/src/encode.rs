use crate::close::ClosePayload;
use crate::deflate::{Deflater, Press};
use crate::mask::mask_copy;
use crate::{CloseCode, Error, Header, Kind, Opcode, Prepared, Role};
use core::fmt;
use tautline_window::{Buf, Pool};

/// A piece of a message for [`Encoder::fragment`].
#[derive(Clone, Copy, Debug)]
pub struct Fragment<'a> {
    /// Kind of the whole message, the same in all of its fragments.
    pub kind: Kind,
    /// The next bytes.
    pub payload: &'a [u8],
    /// The message ends with them.
    pub last: bool,
    /// Compress the message, where that was negotiated; what the first fragment says counts for all.
    pub compress: bool,
}

/// Turns messages and control frames into the bytes that go to the peer.
///
/// Everything is appended to `out`, whole frames at a time. `key` is asked for a frame's masking key where the role is
/// [`Role::Client`] and never otherwise: draw it from a cryptographic generator (RFC 6455, section 5.3). That text is
/// UTF-8 is for the caller to see to. An error that says [`Error::ApiMisuse`] leaves `out` and the encoder as they were.
///
/// ```
/// use tautline_window::{Buf, Pool};
/// use tautline_ws::{Encoder, Kind, Role};
///
/// let (mut out, mut pool) = (Buf::new(), Pool::new(1 << 20));
/// let mut encoder = Encoder::new(Role::Client);
/// let key = || [0x37, 0xfa, 0x21, 0x3d]; // a generator's output in earnest
/// encoder.message(Kind::Text, b"Hello", false, key, &mut out, &mut pool)?;
/// assert_eq!(out.filled(), b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"); // RFC 6455, section 5.7
/// # Ok::<(), tautline_ws::Error>(())
/// ```
pub struct Encoder {
    deflater: Option<Box<Deflater>>,
    role: Role,
    state: EncoderState,
}

/// What an [`Encoder`] may send next: all that it has of a connection beyond what it was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncoderState {
    /// Any frame that begins a message.
    Idle,
    /// Fragments of this message.
    Fragments {
        /// Text or binary.
        kind: Kind,
        /// It is compressed.
        compressed: bool,
        /// A frame of it was sent.
        started: bool,
    },
    /// Nothing: a close frame was sent.
    Closed,
}

impl EncoderState {
    /// It as a byte: 0, 1, or for fragments 2, and then text 4, compressed 8, started 16.
    #[must_use]
    pub fn encode(self) -> u8 {
        match self {
            Self::Idle => 0,
            Self::Closed => 1,
            Self::Fragments { kind, compressed, started } => {
                2 | u8::from(kind == Kind::Text) << 2 | u8::from(compressed) << 3 | u8::from(started) << 4
            }
        }
    }

    /// Reads what [`encode`](Self::encode) made.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] for anything else.
    pub const fn decode(byte: u8) -> Result<Self, Error> {
        Ok(match byte {
            0 => Self::Idle,
            1 => Self::Closed,
            _ if byte & !0x1c == 2 => Self::Fragments {
                kind: if byte & 4 == 0 { Kind::Binary } else { Kind::Text },
                compressed: byte & 8 != 0,
                started: byte & 16 != 0,
            },
            _ => return Err(Error::ApiMisuse("this is no state of an encoder")),
        })
    }
}

impl Encoder {
    /// An encoder for what `role` sends.
    #[must_use]
    pub const fn new(role: Role) -> Self {
        Self { deflater: None, role, state: EncoderState::Idle }
    }

    /// Can compress messages.
    #[must_use]
    pub fn with_deflater(mut self, deflater: Deflater) -> Self {
        self.deflater = Some(Box::new(deflater));
        self
    }

    /// Appends a message in one frame, compressed where `compress` asks for it and it was negotiated.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] inside a fragmented message and after [`close`](Self::close); [`Error::Compressor`].
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "the hot call: a context struct would be built for each message")]
    pub fn message(
        &mut self,
        kind: Kind,
        payload: &[u8],
        compress: bool,
        mut key: impl FnMut() -> [u8; 4],
        out: &mut Buf,
        pool: &mut Pool,
    ) -> Result<(), Error> {
        self.check_idle()?;
        let opcode = Opcode::from(kind);
        match &mut self.deflater {
            Some(deflater) if compress => {
                let mut compressed = pool.take();
                let result = deflater.deflate(payload, true, &mut compressed);
                if result.is_ok() {
                    put_frame(self.role, Flags { fin: true, rsv1: true }, opcode, compressed.filled(), key, out);
                }
                pool.give(compressed);
                result
            }
            _ => {
                put_frame(self.role, Flags { fin: true, rsv1: false }, opcode, payload, &mut key, out);
                Ok(())
            }
        }
    }

    /// Appends the next piece of a message that is sent in pieces, as a frame of its own. Pings, pongs and a close frame
    /// may come between two pieces, other messages may not.
    ///
    /// Of a compressed message pieces before the last may yield nothing yet.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] where the kind differs from that of the message in progress and after
    /// [`close`](Self::close); [`Error::Compressor`].
    pub fn fragment(
        &mut self,
        fragment: Fragment<'_>,
        key: impl FnMut() -> [u8; 4],
        out: &mut Buf,
        pool: &mut Pool,
    ) -> Result<(), Error> {
        let Fragment { kind, payload, last, compress } = fragment;
        let (compressed, started) = match self.state {
            EncoderState::Idle => (compress && self.deflater.is_some(), false),
            EncoderState::Fragments { kind: begun, compressed, started } if begun == kind => (compressed, started),
            EncoderState::Fragments { .. } => return Err(Error::ApiMisuse("all fragments of a message have one kind")),
            EncoderState::Closed => return Err(AFTER_CLOSE),
        };
        let opcode = if started { Opcode::Continuation } else { kind.into() };
        let flags = Flags { fin: last, rsv1: compressed && !started };
        let sent = match &mut self.deflater {
            Some(deflater) if compressed => {
                let mut piece = pool.take();
                let result = deflater.deflate(payload, last, &mut piece);
                let send = result.is_ok() && (last || !piece.is_empty());
                if send {
                    put_frame(self.role, flags, opcode, piece.filled(), key, out);
                }
                pool.give(piece);
                result?;
                send
            }
            _ => {
                put_frame(self.role, flags, opcode, payload, key, out);
                true
            }
        };
        self.state = if last {
            EncoderState::Idle
        } else {
            EncoderState::Fragments { kind, compressed, started: started || sent }
        };
        Ok(())
    }

    /// The frame to send for a message that was framed before: compressed by `press`, where that is given and compression
    /// was negotiated.
    ///
    /// A compressor that keeps its window begins a new one behind it, because it has not seen this message and the peer
    /// has; see [`Deflater::release`] for why it may.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] for a client, inside a fragmented message and after [`close`](Self::close);
    /// [`Error::Compressor`], which leaves the encoder as it was.
    pub fn prepared<'a>(
        &mut self,
        message: &'a Prepared,
        press: Option<&mut Press>,
        pool: &mut Pool,
    ) -> Result<&'a [u8], Error> {
        self.check_idle()?;
        if self.role == Role::Client {
            return Err(Error::ApiMisuse("a client masks each frame anew, so it cannot send prepared ones"));
        }
        let (Some(press), Some(deflater)) = (press, &mut self.deflater) else { return Ok(message.frame()) };
        let frame = message.compressed(deflater.window_bits(), press, pool)?;
        if !core::ptr::eq(frame, message.frame()) {
            deflater.release();
        }
        Ok(frame)
    }

    /// Appends a ping.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] for more than 125 bytes and after [`close`](Self::close).
    pub fn ping(&mut self, payload: &[u8], key: impl FnMut() -> [u8; 4], out: &mut Buf) -> Result<(), Error> {
        self.control(Opcode::Ping, payload, key, out)
    }

    /// Appends a pong: the answer to a ping with its payload, or a sign of life.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] for more than 125 bytes and after [`close`](Self::close).
    pub fn pong(&mut self, payload: &[u8], key: impl FnMut() -> [u8; 4], out: &mut Buf) -> Result<(), Error> {
        self.control(Opcode::Pong, payload, key, out)
    }

    /// Appends the close frame, after which nothing can be sent; a second call does nothing. The reason is cut to 123
    /// bytes at a character's boundary.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] for a code that must not be on the wire: see [`CloseCode::is_sendable`].
    pub fn close(
        &mut self,
        close: Option<(CloseCode, &str)>,
        key: impl FnMut() -> [u8; 4],
        out: &mut Buf,
    ) -> Result<(), Error> {
        if self.state == EncoderState::Closed {
            return Ok(());
        }
        match close {
            None => self.control(Opcode::Close, &[], key, out)?,
            Some((code, reason)) if code.is_sendable() => {
                self.control(Opcode::Close, ClosePayload::new(code, reason).as_slice(), key, out)?;
            }
            Some(_) => return Err(Error::ApiMisuse("this close code must not be sent; send one that is_sendable")),
        }
        self.state = EncoderState::Closed;
        Ok(())
    }

    /// Whether a close frame was sent.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.state, EncoderState::Closed)
    }

    /// All there is to this end of the connection, for an encoder made as this one was to go on with; this one sends nothing
    /// any more.
    ///
    /// A compressor's window does not move: without it, what follows merely compresses less well at first. What the compressor has and
    /// did not yield of a message in fragments is appended to `out`, as one more of them.
    ///
    /// # Errors
    /// [`Error::Compressor`].
    pub fn export(
        &mut self,
        key: impl FnMut() -> [u8; 4],
        out: &mut Buf,
        pool: &mut Pool,
    ) -> Result<EncoderState, Error> {
        if let EncoderState::Fragments { kind, compressed: true, started } = self.state
            && let Some(deflater) = &mut self.deflater
        {
            let mut piece = pool.take();
            let flushed = deflater.flush(&mut piece);
            if !piece.is_empty() {
                let opcode = if started { Opcode::Continuation } else { kind.into() };
                put_frame(self.role, Flags { fin: false, rsv1: !started }, opcode, piece.filled(), key, out);
                self.state = EncoderState::Fragments { kind, compressed: true, started: true };
            }
            pool.give(piece);
            flushed?;
        }
        Ok(core::mem::replace(&mut self.state, EncoderState::Closed))
    }

    /// Goes on where another encoder [stopped](Self::export); this one is new, and made as that one was.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] where a message is compressed and this encoder cannot.
    pub fn import(self, state: EncoderState) -> Result<Self, Error> {
        if matches!(state, EncoderState::Fragments { compressed: true, .. }) && self.deflater.is_none() {
            return Err(Error::ApiMisuse("the message in progress is compressed, and this encoder has no compressor"));
        }
        Ok(Self { state, ..self })
    }

    /// The compressor, to look at its memory or to let it go.
    pub fn deflater_mut(&mut self) -> Option<&mut Deflater> {
        self.deflater.as_deref_mut()
    }

    #[inline]
    const fn check_idle(&self) -> Result<(), Error> {
        match self.state {
            EncoderState::Idle => Ok(()),
            EncoderState::Fragments { .. } => {
                Err(Error::ApiMisuse("finish the fragmented message before the next one"))
            }
            EncoderState::Closed => Err(AFTER_CLOSE),
        }
    }

    fn control(
        &self,
        opcode: Opcode,
        payload: &[u8],
        key: impl FnMut() -> [u8; 4],
        out: &mut Buf,
    ) -> Result<(), Error> {
        if self.state == EncoderState::Closed {
            return Err(AFTER_CLOSE);
        }
        //= https://www.rfc-editor.org/rfc/rfc6455#section-5.5
        //# All control frames MUST have a payload length of 125 bytes or less and MUST NOT be fragmented.
        if payload.len() > 125 {
            return Err(Error::ApiMisuse("a ping or pong holds at most 125 bytes"));
        }
        put_frame(self.role, Flags { fin: true, rsv1: false }, opcode, payload, key, out);
        Ok(())
    }
}

//= https://www.rfc-editor.org/rfc/rfc6455#section-5.5.1
//# The application MUST NOT send any more data frames after sending a Close frame.
const AFTER_CLOSE: Error = Error::ApiMisuse("nothing may be sent after the close frame");

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").field("role", &self.role).field("state", &self.state).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy)]
struct Flags {
    fin: bool,
    rsv1: bool,
}

/// Appends one frame: header and payload in one reservation, masked on the way.
#[inline]
fn put_frame(
    role: Role,
    flags: Flags,
    opcode: Opcode,
    payload: &[u8],
    mut key: impl FnMut() -> [u8; 4],
    out: &mut Buf,
) {
    let key = match role {
        Role::Server => None,
        Role::Client => Some(key()),
    };
    let header = Header { fin: flags.fin, rsv1: flags.rsv1, opcode, key, len: payload.len() as u64 };
    put(&header, payload, out);
}

/// Appends `header` and `payload`, masked where the header has a key.
#[inline]
pub(crate) fn put(header: &Header, payload: &[u8], out: &mut Buf) {
    let mut head = [0; Header::MAX_LEN];
    let start = header.encode_to(&mut head);
    let free = out.reserve(Header::MAX_LEN + payload.len());
    // A copy of fixed size is two moves; the payload overwrites what of it is no header.
    free[..Header::MAX_LEN].copy_from_slice(&head);
    let body = &mut free[start..start + payload.len()];
    match header.key {
        Some(key) => mask_copy(payload, body, key),
        None => body.copy_from_slice(payload),
    }
    out.commit(start + payload.len());
}

#[cfg(test)]
mod tests;
