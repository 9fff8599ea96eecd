use crate::close::ClosePayload;
use crate::deflate::{Deflater, SharedDeflater};
use crate::{CloseCode, Error, Header, Kind, Opcode, Prepared, Role};
use core::fmt;
use tautline_buf::{Buf, Pool};

/// A piece of a message for [`Encoder::fragment`].
#[derive(Clone, Copy, Debug)]
pub struct Fragment<'a> {
    /// Kind of the message, the same in all of its fragments.
    pub kind: Kind,
    /// The next bytes of the message.
    pub payload: &'a [u8],
    /// The message ends with this fragment.
    pub last: bool,
    /// Whether to compress the message, if compression was negotiated. The first fragment decides for all.
    pub compress: bool,
}

/// Turns messages and control frames into bytes for the peer.
///
/// Every call appends whole frames to `out`. `key` returns the masking key of a frame. It is called for
/// [`Role::Client`] only, and must draw from a cryptographic generator (RFC 6455, section 5.3). The caller must ensure
/// that text is UTF-8.
///
/// After [`Error::ApiMisuse`] `out` and the encoder are unchanged.
///
/// ```
/// # mod tautline { pub use tautline_ws::Kind; pub mod layers { pub use {tautline_buf as buf, tautline_ws as ws}; } }
/// use tautline::layers::buf::{Buf, Pool};
/// use tautline::layers::ws::{Encoder, Role};
/// use tautline::Kind;
///
/// let (mut out, mut pool) = (Buf::new(), Pool::new(1 << 20));
/// let mut encoder = Encoder::new(Role::Client);
/// let key = || [0x37, 0xfa, 0x21, 0x3d]; // in production, the output of a cryptographic generator
/// encoder.message(Kind::Text, b"Hello", false, key, &mut out, &mut pool)?;
/// assert_eq!(out.filled(), b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"); // RFC 6455, section 5.7
/// # Ok::<(), tautline_ws::Error>(())
/// ```
pub struct Encoder {
    deflater: Option<Box<Deflater>>,
    role: Role,
    state: EncoderState,
}

/// The state of an [`Encoder`] that changes with a connection: which frames may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncoderState {
    /// The next frame begins a message.
    Idle,
    /// The next data frame continues this message.
    Fragments {
        /// The message's kind.
        kind: Kind,
        /// The message is compressed.
        compressed: bool,
        /// A frame of the message was sent.
        started: bool,
    },
    /// A close frame was sent: no frame may follow.
    Closed,
}

impl EncoderState {
    /// Encodes the state as a byte: 0 idle, 1 closed; 2 fragments, plus 4 text, 8 compressed, 16 started.
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

    /// Reads a byte that [`encode`](Self::encode) made.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] for any other byte.
    pub const fn decode(byte: u8) -> Result<Self, Error> {
        Ok(match byte {
            0 => Self::Idle,
            1 => Self::Closed,
            _ if byte & !0x1c == 2 => Self::Fragments {
                kind: if byte & 4 == 0 { Kind::Binary } else { Kind::Text },
                compressed: byte & 8 != 0,
                started: byte & 16 != 0,
            },
            _ => return Err(Error::ApiMisuse("the byte is not the state of an encoder")),
        })
    }
}

impl Encoder {
    /// Makes an encoder for the frames that `role` sends.
    #[must_use]
    pub const fn new(role: Role) -> Self {
        Self { deflater: None, role, state: EncoderState::Idle }
    }

    /// The sender of the frames.
    #[inline]
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Adds a compressor, so that messages can be compressed.
    #[must_use]
    pub fn with_deflater(mut self, deflater: Deflater) -> Self {
        self.deflater = Some(Box::new(deflater));
        self
    }

    /// Approximate memory of the compressor, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.deflater.as_ref().map_or(0, |deflater| deflater.memory())
    }

    /// Appends a message in one frame, compressed if `compress` is set, compression was negotiated, and it makes the message smaller.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] inside a fragmented message and after [`close`](Self::close), [`Error::Compressor`] if the
    /// compressor fails.
    #[inline(always)]
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
                let is_smaller = compressed.len() < payload.len();
                if result.is_ok() && is_smaller {
                    put_frame(self.role, Flags { fin: true, rsv1: true }, opcode, compressed.filled(), key, out);
                } else if result.is_ok() {
                    // The peer inflates no uncompressed message, so its window does not get this one (RFC 7692, section 6.2).
                    deflater.forget_last(payload.len());
                    put_frame(self.role, Flags { fin: true, rsv1: false }, opcode, payload, key, out);
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

    /// Appends the next piece of a fragmented message as a frame of its own.
    ///
    /// Control frames may come between two pieces, other messages may not. If the message is compressed, a piece before
    /// the last may yield no frame yet.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] if the kind differs from that of the message in progress, and after [`close`](Self::close);
    /// [`Error::Compressor`] if the compressor fails.
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

    /// Returns the frame to send for a prepared message.
    ///
    /// The frame is compressed by `shared_deflater`, if one is given and compression was negotiated.
    ///
    /// A compressor that keeps its window then starts a new one, since the peer has seen this message and the
    /// compressor has not. [`Deflater::release`] says why this is allowed.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] for a client, inside a fragmented message, and after [`close`](Self::close);
    /// [`Error::Compressor`] if the compressor fails, which leaves the encoder unchanged.
    pub fn prepared<'a>(
        &mut self,
        message: &'a Prepared,
        shared_deflater: Option<&mut SharedDeflater>,
        pool: &mut Pool,
    ) -> Result<&'a [u8], Error> {
        self.check_idle()?;
        if self.role == Role::Client {
            return Err(Error::ApiMisuse(
                "a client masks each frame with a new key, so it cannot send prepared frames",
            ));
        }
        let (Some(shared_deflater), Some(deflater)) = (shared_deflater, &mut self.deflater) else {
            return Ok(message.frame());
        };
        let frame = message.compressed(deflater.window_bits(), shared_deflater, pool)?;
        if !core::ptr::eq(frame, message.frame()) {
            deflater.release();
        }
        Ok(frame)
    }

    /// Appends a ping.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] for a payload of more than 125 bytes and after [`close`](Self::close).
    pub fn ping(&mut self, payload: &[u8], key: impl FnMut() -> [u8; 4], out: &mut Buf) -> Result<(), Error> {
        self.control(Opcode::Ping, payload, key, out)
    }

    /// Appends a pong: the answer to a ping with its payload, or an unsolicited sign of life.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] for a payload of more than 125 bytes and after [`close`](Self::close).
    pub fn pong(&mut self, payload: &[u8], key: impl FnMut() -> [u8; 4], out: &mut Buf) -> Result<(), Error> {
        self.control(Opcode::Pong, payload, key, out)
    }

    /// Appends the close frame, after which nothing can be sent; a second call does nothing.
    ///
    /// The reason is cut to 123 bytes at a character boundary.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] for a code that must not be sent: see [`CloseCode::is_sendable`].
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

    /// The state, for an encoder with the same settings that may take this one's place. Until then this one can go on.
    ///
    /// A compressor's window does not go along. Without it, the next messages compress less well at first.
    ///
    /// If a fragmented message is in progress, the bytes that the compressor still holds of it are appended to `out`,
    /// as one more fragment.
    ///
    /// # Errors
    /// [`Error::Compressor`] if the compressor fails.
    pub fn state(
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
        Ok(self.state)
    }

    /// Continues the state that another encoder [had](Self::state).
    ///
    /// This encoder must be new and have the same settings.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] if the message in progress is compressed and this encoder has no compressor.
    pub fn import(self, state: EncoderState) -> Result<Self, Error> {
        if matches!(state, EncoderState::Fragments { compressed: true, .. }) && self.deflater.is_none() {
            return Err(Error::ApiMisuse("the message in progress is compressed, and this encoder has no compressor"));
        }
        Ok(Self { state, ..self })
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

/// Appends one frame: header and payload in one reservation, masked while it is copied.
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
    header.put_frame(payload, out);
}

#[cfg(test)]
mod tests;
