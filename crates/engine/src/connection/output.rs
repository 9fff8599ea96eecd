use super::context::Context;
use super::event::Unsent;
use crate::message::Outgoing;
use tautline_buf::{Buf, Pool};
use tautline_tls::{Error, Session};
use tautline_ws::deflate::Deflater;
use tautline_ws::{CloseCode, Encoder, Header, Opcode, Role};

/// Size from which payloads are sealed where they lie, instead of being copied into the cork.
const LARGE: usize = 16 << 10;
/// Bytes that may wait before pongs are left out, if messages may not wait for longer. Not every ping needs an answer.
const MAX_BEFORE_PONG: usize = 64 << 10;

/// The sending half of a [`Connection`](super::Connection): messages, and the sealed bytes for the caller to write.
pub struct Output<S> {
    pub(super) session: S,
    /// Whether plaintext is what goes to the peer.
    pub(super) is_plain: bool,
    role: Role,
    encoder: Encoder,
    /// Least payload bytes to compress; `usize::MAX` without permessage-deflate.
    min_deflate: usize,
    /// Frames that are not sealed.
    cork: Buf,
    /// Bytes for the peer.
    wire: Buf,
    gate: Gate,
    /// Bytes that may wait before messages are refused.
    limit: usize,
    /// The error of a failed seal, until it is reported.
    failed: Option<Box<Error>>,
}

/// Whether messages are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    /// The opening handshake is not complete.
    Before,
    Open,
    /// A close frame was sent, or the connection has failed.
    Closed,
}

impl<S: Session> Output<S> {
    pub(super) fn new(session: S, role: Role, limit: usize) -> Self {
        Self {
            is_plain: session.is_plain(),
            session,
            role,
            encoder: Encoder::new(role),
            min_deflate: usize::MAX,
            cork: Buf::new(),
            wire: Buf::new(),
            gate: Gate::Before,
            limit,
            failed: None,
        }
    }

    /// Takes a message. It leaves with the next bytes that the caller writes.
    ///
    /// # Errors
    /// [`Unsent`], if the message was not taken.
    pub fn send(&mut self, message: Outgoing<'_>, context: &mut Context) -> Result<(), Unsent> {
        if self.gate != Gate::Open {
            return Err(Unsent::Closed);
        }
        if self.is_full() {
            return Err(Unsent::Full);
        }
        let Outgoing { kind, payload, compress, .. } = message;
        let compress = compress && payload.len() >= self.min_deflate;
        let Context { pool, keys, .. } = context;
        if payload.len() >= LARGE && !compress && self.role == Role::Server {
            self.send_large(Opcode::from(kind), payload, pool);
            return Ok(());
        }
        if !self.cork.has_memory() {
            self.cork = pool.take();
        }
        self.encoder.message(kind, payload, compress, || keys.next(), &mut self.cork, pool).map_err(unsent)
    }

    /// Takes a ping.
    ///
    /// # Errors
    /// [`Unsent`], if it was not taken: its payload may have at most 125 bytes.
    pub fn ping(&mut self, payload: &[u8], context: &mut Context) -> Result<(), Unsent> {
        if self.gate != Gate::Open {
            return Err(Unsent::Closed);
        }
        if self.is_full() {
            return Err(Unsent::Full);
        }
        let Context { pool, keys, .. } = context;
        self.encoder.ping(payload, || keys.next(), cork(&mut self.cork, pool)).map_err(unsent)
    }

    /// Bytes that wait for the caller to write them.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.cork.len() + self.wire.len()
    }

    /// Whether no byte waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether messages are refused until some bytes are written. A message of any size may wait alone.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    /// Whether messages are taken at all.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.gate, Gate::Open)
    }

    pub(super) fn pong(&mut self, payload: &[u8], context: &mut Context) -> Result<(), tautline_ws::Error> {
        if self.gate != Gate::Open || self.len() > MAX_BEFORE_PONG.max(self.limit) {
            return Ok(());
        }
        let Context { pool, keys, .. } = context;
        self.encoder.pong(payload, || keys.next(), cork(&mut self.cork, pool))
    }

    /// Takes our close frame; no message follows it.
    pub(super) fn close(&mut self, close: Option<(CloseCode, &str)>, context: &mut Context) {
        let Context { pool, keys, .. } = context;
        let close = close.filter(|(code, _)| code.is_sendable());
        if let Err(error) = self.encoder.close(close, || keys.next(), cork(&mut self.cork, pool)) {
            log::debug!("no close frame was sent: {error}");
        }
        self.gate = Gate::Closed;
    }

    /// Takes messages from now on.
    pub(super) fn open(&mut self) {
        self.gate = Gate::Open;
    }

    /// Compresses messages of at least `min_size` bytes from now on.
    pub(super) fn set_deflater(&mut self, deflater: Deflater, min_size: usize) {
        // If the window is too small for the library, there are only stored blocks.
        self.min_deflate = if deflater.compresses() { min_size } else { usize::MAX };
        self.encoder = Encoder::new(self.role).with_deflater(deflater);
    }

    /// Unsealed bytes, to append HTTP heads.
    pub(super) fn raw(&mut self, pool: &mut Pool) -> &mut Buf {
        cork(&mut self.cork, pool)
    }

    /// Drops what is not sealed, and takes nothing more.
    pub(super) fn clear(&mut self) {
        self.cork = Buf::new();
        self.gate = Gate::Closed;
    }

    /// Drops everything.
    pub(super) fn abort(&mut self) {
        self.clear();
        self.wire = Buf::new();
    }

    /// Appends close_notify behind everything.
    pub(super) fn finish(&mut self, pool: &mut Pool) {
        self.seal(pool);
        self.gate = Gate::Closed;
        self.session.close(&mut self.wire);
    }

    /// The buffer of bytes for the peer, for the session, and the session.
    pub(super) const fn parts(&mut self) -> (&mut S, &mut Buf) {
        (&mut self.session, &mut self.wire)
    }

    /// The bytes to write. Frames are sealed once all earlier bytes are written, so that they share records.
    pub(super) fn bytes(&mut self, pool: &mut Pool) -> &[u8] {
        if self.wire.is_empty() {
            self.seal(pool);
        }
        self.wire.filled()
    }

    pub(super) fn written(&mut self, n: usize, pool: &mut Pool) {
        self.wire.take(n.min(self.wire.len()));
        if self.wire.is_empty() {
            pool.give(core::mem::take(&mut self.wire));
        }
    }

    /// Moves bytes that wait for the peer into memory that fits them.
    pub(super) fn fit(&mut self, pool: &mut Pool) {
        pool.fit(&mut self.wire);
        pool.fit(&mut self.cork);
    }

    /// Whether a seal has failed, and its error was not taken.
    pub(super) const fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Takes the error of a failed seal.
    pub(super) fn take_failure(&mut self) -> Option<Error> {
        self.failed.take().map(|error| *error)
    }

    fn send_large(&mut self, opcode: Opcode, payload: &[u8], pool: &mut Pool) {
        self.seal(pool);
        let header = Header { fin: true, rsv1: false, opcode, key: None, len: payload.len() as u64 };
        let mut bytes = [0; Header::MAX_LEN];
        let len = header.encode_to(&mut bytes);
        self.seal_chunks(&[&bytes[..len], payload], pool);
    }

    fn seal(&mut self, pool: &mut Pool) {
        if self.cork.is_empty() {
            return;
        }
        if self.is_plain && self.wire.is_empty() {
            core::mem::swap(&mut self.cork, &mut self.wire);
            return;
        }
        let taken = core::mem::take(&mut self.cork);
        self.seal_chunks(&[taken.filled()], pool);
        pool.give_back(taken);
    }

    fn seal_chunks(&mut self, plain: &[&[u8]], pool: &mut Pool) {
        if self.failed.is_some() {
            return;
        }
        let len: usize = plain.iter().map(|chunk| chunk.len()).sum();
        // 64 bytes for each record, and for the first one.
        pool.reserve(&mut self.wire, len + len / 256 + 64);
        if let Err(error) = self.session.seal(plain, &mut self.wire) {
            self.failed = Some(Box::new(error));
        }
    }
}

/// The cork, with memory. Its memory is any that is at hand, since it is sealed or [fitted](Output::fit) soon.
fn cork<'a>(cork: &'a mut Buf, pool: &mut Pool) -> &'a mut Buf {
    if !cork.has_memory() {
        *cork = pool.take();
    }
    cork
}

const fn unsent(error: tautline_ws::Error) -> Unsent {
    match error {
        tautline_ws::Error::ApiMisuse(why) => Unsent::Invalid(why),
        _ => Unsent::Invalid("the compressor failed"),
    }
}

impl<S> std::fmt::Debug for Output<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waiting = self.cork.len() + self.wire.len();
        f.debug_struct("Output").field("gate", &self.gate).field("waiting", &waiting).finish_non_exhaustive()
    }
}
