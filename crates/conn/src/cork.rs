//! Frames that are not sealed yet, and the encoder that writes them.

use crate::keys::Keys;
use crate::pieces::Pieces;
use tautline_buf::{Buf, Pool};
use tautline_ws::deflate::{DeflateConfig, DeflateParams, Deflater, SharedDeflater};
use tautline_ws::{CloseCode, Encoder, EncoderState, Error, Fragment, Header, Kind, Opcode, Prepared, Role};

/// Size from which payloads are sealed where they lie, instead of being copied into the cork.
const LARGE: usize = 16 << 10;
/// Longest control frame: a header and 125 bytes (RFC 6455, section 5.5).
const MOST_CONTROL: usize = Header::MAX_LEN + 125;

/// The means to write frames, which all connections of a thread share.
pub struct Means<'a> {
    /// Unused buffers.
    pub pool: &'a mut Pool,
    /// Mask keys.
    pub keys: &'a mut Keys,
}

/// Frames that leave together, with the next seal.
pub struct Cork {
    encoder: Encoder,
    /// Beside plain frames. Most connections have nothing of it, and an idle one stays small.
    more: Option<Box<More>>,
    buf: Buf,
}

/// The writing of messages, unless they are frames as they are.
enum More {
    /// With permessage-deflate, messages of at least so many bytes are compressed.
    Compresses(usize),
    /// Messages are pieces of a response.
    Pieces(Pieces),
}

/// The header of a message that is sealed where it lies.
pub struct LargeHeader {
    bytes: [u8; Header::MAX_LEN],
    len: usize,
}

impl LargeHeader {
    /// Its bytes.
    #[must_use]
    pub fn filled(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Cork {
    /// An empty cork, without compression.
    #[must_use]
    pub fn new(role: Role) -> Self {
        Self { encoder: Encoder::new(role), more: None, buf: Buf::new() }
    }

    /// Compresses messages of at least [`min_size`](DeflateConfig::min_size) bytes from now on, unless their sender forbids it.
    pub fn set_deflate(&mut self, params: &DeflateParams, config: &DeflateConfig) {
        let role = self.encoder.role();
        let deflater = Deflater::new(params, role, config.level);
        // If the window is too small for the library, there are only stored blocks.
        self.more = deflater.compresses().then(|| Box::new(More::Compresses(config.min_size)));
        self.encoder = Encoder::new(role).with_deflater(deflater);
    }

    /// Writes messages as pieces of a response from now on.
    pub fn set_pieces(&mut self, pieces: Pieces) {
        self.more = Some(Box::new(More::Pieces(pieces)));
    }

    /// Whether messages are pieces of a response.
    #[inline]
    #[must_use]
    pub fn is_push(&self) -> bool {
        matches!(self.more.as_deref(), Some(More::Pieces(_)))
    }

    fn pieces(&mut self) -> Option<&mut Pieces> {
        match self.more.as_deref_mut()? {
            More::Pieces(pieces) => Some(pieces),
            More::Compresses(_) => None,
        }
    }

    /// Whether a message of `len` bytes is compressed, if its sender allows it.
    #[inline]
    #[must_use]
    pub fn compresses(&self, len: usize) -> bool {
        matches!(self.more.as_deref(), Some(More::Compresses(least)) if len >= *least)
    }

    /// The header of a message that is to be sealed behind the cork instead of being copied; `None` for a small one, and for one
    /// that is masked or compressed.
    #[inline]
    #[must_use]
    pub fn large(&self, kind: Kind, payload: &[u8], compress: bool) -> Option<LargeHeader> {
        if payload.len() < LARGE || compress || self.encoder.role() == Role::Client || self.is_push() {
            return None;
        }
        let mut bytes = [0; Header::MAX_LEN];
        let header =
            Header { fin: true, rsv1: false, opcode: Opcode::from(kind), key: None, len: payload.len() as u64 };
        let len = header.encode_to(&mut bytes);
        Some(LargeHeader { bytes, len })
    }

    /// Appends a message.
    ///
    /// # Errors
    /// A streamed message is not ended, or the compressor failed.
    #[inline(always)]
    pub fn message(&mut self, kind: Kind, payload: &[u8], compress: bool, means: Means<'_>) -> Result<(), Error> {
        let Means { pool, keys } = means;
        if self.is_push() {
            self.piece(kind, payload, pool);
            return Ok(());
        }
        lend(&mut self.buf, pool, Header::MAX_LEN + payload.len());
        self.encoder.message(kind, payload, compress, || keys.mask(), &mut self.buf, pool)
    }

    /// Appends a piece of a streamed message.
    ///
    /// # Errors
    /// Its kind differs from that of its message, or the compressor failed.
    pub fn fragment(&mut self, kind: Kind, payload: &[u8], last: bool, means: Means<'_>) -> Result<(), Error> {
        let Means { pool, keys } = means;
        if self.is_push() {
            self.piece(kind, payload, pool);
            return Ok(());
        }
        lend(&mut self.buf, pool, Header::MAX_LEN + payload.len());
        let fragment = Fragment { kind, payload, last, compress: self.compresses(usize::MAX) };
        self.encoder.fragment(fragment, || keys.mask(), &mut self.buf, pool)
    }

    /// Appends a message that is framed once for many, and compressed once for many by `deflater`.
    ///
    /// A large one is not appended but returned, to be sealed behind the cork, if `in_place` is set.
    ///
    /// # Errors
    /// As for [`message`](Self::message), and on a client, which masks each message anew.
    pub fn prepared<'a>(
        &mut self,
        message: &'a Prepared,
        deflater: Option<&mut SharedDeflater>,
        in_place: bool,
        pool: &mut Pool,
    ) -> Result<Option<&'a [u8]>, Error> {
        if self.is_push() {
            self.piece(message.kind(), message.payload(), pool);
            return Ok(None);
        }
        let frame = self.encoder.prepared(message, deflater, pool)?;
        if in_place && frame.len() >= LARGE {
            return Ok(Some(frame));
        }
        lend(&mut self.buf, pool, frame.len()).put(frame);
        Ok(None)
    }

    /// Appends a ping.
    ///
    /// # Errors
    /// Its payload is longer than 125 bytes.
    pub fn ping(&mut self, payload: &[u8], means: Means<'_>) -> Result<(), Error> {
        let Means { pool, keys } = means;
        if let Some(pieces) = self.pieces() {
            let bytes = pieces.keepalive();
            if !bytes.is_empty() {
                lend(&mut self.buf, pool, bytes.len()).put(&bytes);
            }
            return Ok(());
        }
        self.encoder.ping(payload, || keys.mask(), lend(&mut self.buf, pool, MOST_CONTROL))
    }

    /// Appends a pong.
    ///
    /// # Errors
    /// Its payload is longer than 125 bytes.
    pub fn pong(&mut self, payload: &[u8], means: Means<'_>) -> Result<(), Error> {
        let Means { pool, keys } = means;
        if self.is_push() {
            return Ok(());
        }
        self.encoder.pong(payload, || keys.mask(), lend(&mut self.buf, pool, MOST_CONTROL))
    }

    /// Appends a close frame. 1005 stands for a frame without a code. Other codes that must not be sent are left out too.
    pub fn close(&mut self, code: CloseCode, reason: &str, means: Means<'_>) {
        let Means { pool, keys } = means;
        if let Some(pieces) = self.pieces() {
            let bytes = pieces.close(code, reason);
            return lend(&mut self.buf, pool, bytes.len()).put(&bytes);
        }
        let close = code.is_sendable().then_some((code, reason));
        if let Err(error) = self.encoder.close(close, || keys.mask(), lend(&mut self.buf, pool, MOST_CONTROL)) {
            log::error!("a close frame was not sent: {error}");
        }
    }

    /// Appends a message as a piece of the response.
    #[cold]
    fn piece(&mut self, kind: Kind, payload: &[u8], pool: &mut Pool) {
        let Some(pieces) = self.pieces() else { return };
        let bytes = pieces.message(kind, payload);
        if !bytes.is_empty() {
            lend(&mut self.buf, pool, bytes.len()).put(&bytes);
        }
    }

    /// The sender of the frames.
    #[inline]
    #[must_use]
    pub const fn role(&self) -> Role {
        self.encoder.role()
    }

    /// The frames, to append HTTP heads and bodies.
    pub fn raw(&mut self, pool: &mut Pool) -> &mut Buf {
        lend(&mut self.buf, pool, 0)
    }

    /// The frames, to seal them.
    #[inline]
    pub const fn frames(&mut self) -> &mut Buf {
        &mut self.buf
    }

    /// Bytes of the frames.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.buf.len()
    }

    /// Whether there is no frame.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.buf.len() == 0
    }

    /// Whether the frames have memory.
    #[inline]
    #[must_use]
    pub const fn has_memory(&self) -> bool {
        self.buf.has_memory()
    }

    /// Memory in bytes: of the frames, and of the compressor or the writer of pieces.
    #[must_use]
    pub fn memory(&self) -> (usize, usize) {
        let more = match self.more.as_deref() {
            Some(More::Pieces(pieces)) => pieces.memory(),
            Some(More::Compresses(_)) | None => 0,
        };
        (self.buf.capacity(), self.encoder.memory() + more)
    }

    /// Drops the frames.
    pub fn clear(&mut self) {
        self.buf.clear();
    }

    /// Gives the memory back, or as much of it as the frames do not need while they wait for the peer.
    #[inline]
    pub fn tidy(&mut self, pool: &mut Pool) {
        if self.buf.has_memory() {
            self.give_unneeded(pool);
        }
    }

    #[inline(never)]
    fn give_unneeded(&mut self, pool: &mut Pool) {
        if self.buf.is_empty() {
            pool.give_back(core::mem::take(&mut self.buf));
        } else {
            pool.fit(&mut self.buf);
        }
    }

    /// Drops the frames, and gives the memory back.
    pub fn release(&mut self, pool: &mut Pool) {
        pool.give(core::mem::take(&mut self.buf));
    }

    /// The encoder's state. The cork gets the bytes that a compressor holds of a streamed message.
    ///
    /// # Errors
    /// A close frame was sent, or the compressor failed.
    #[cold]
    pub fn save(&mut self, means: Means<'_>) -> Result<EncoderState, Error> {
        let Means { pool, keys } = means;
        self.encoder.state(|| keys.mask(), &mut self.buf, pool)
    }

    /// Goes on with a saved state and these frames, after [`set_deflate`](Self::set_deflate) if messages are compressed.
    ///
    /// # Errors
    /// The state is that of a compressor, and there is none.
    #[cold]
    pub fn restore(&mut self, state: EncoderState, frames: &[u8]) -> Result<(), Error> {
        let role = self.encoder.role();
        self.encoder = core::mem::replace(&mut self.encoder, Encoder::new(role)).import(state)?;
        self.buf.put(frames);
        Ok(())
    }
}

/// Makes room for `n` bytes, with the pool's memory. A cork is sealed or given back soon, so it may be larger than its bytes
/// need.
#[inline]
fn lend<'a>(buf: &'a mut Buf, pool: &mut Pool, n: usize) -> &'a mut Buf {
    if !buf.has_memory() {
        *buf = pool.take();
    }
    pool.reserve(buf, n);
    buf
}
