use super::context::Context;
use super::event::Unsent;
use crate::link::wire::BATCH;
use core::convert::Infallible;
use tautline_buf::{Buf, Pool};
use tautline_conn::config::SlowConsumer;
use tautline_conn::cork::Cork;
use tautline_conn::message::Outgoing;
use tautline_conn::queue::{Item, Pushed, Queue};
use tautline_tls::{Error, Session};
use tautline_ws::handshake::BodyReader;
use tautline_ws::{CloseCode, Kind, Role};

/// Bytes that may wait before pongs are left out, if messages may not wait for longer. Not every ping needs an answer.
const MAX_BEFORE_PONG: usize = 64 << 10;

/// The sending half of a [`Connection`](super::Connection): messages, and the sealed bytes for the caller to write.
pub struct Output<S> {
    pub(super) session: S,
    pub(super) phase: Phase,
    /// Whether plaintext is what goes to the peer.
    pub(super) is_plain: bool,
    pub(super) cork: Cork,
    /// Bytes for the peer.
    pub(super) wire: Buf,
    /// Messages that are not encoded, so that the policy can still drop them: those since the caller was blocked.
    queue: Queue,
    /// The policy for messages to a peer that does not read fast enough.
    policy: SlowConsumer,
    /// Messages that a policy has dropped.
    dropped: u64,
    /// Whether the caller can write no bytes for now.
    is_blocked: bool,
    /// The error of a failed seal, until it is reported.
    failed: Option<Box<Error>>,
}

/// The state of a connection without I/O. A request keeps its body while it waits, and no response is made while it is sent.
pub(super) type Phase = tautline_conn::phase::Phase<Option<BodyReader>, Infallible>;

impl<S: Session> Output<S> {
    pub(super) fn new(session: S, role: Role, phase: Phase, policy: SlowConsumer) -> Self {
        Self {
            is_plain: session.is_plain(),
            session,
            phase,
            cork: Cork::new(role),
            wire: Buf::new(),
            queue: Queue::default(),
            policy,
            dropped: 0,
            is_blocked: false,
            failed: None,
        }
    }

    /// Takes a message. It leaves with the next bytes that the caller writes.
    ///
    /// If more bytes wait than the policy's limit, the message is [refused](Unsent::Full) until the caller has written some. While
    /// the caller is [blocked](super::Connection::blocked), messages with a policy that drops some wait unencoded instead, and the
    /// policy means what it means in a [`Shard`](crate::Shard).
    ///
    /// # Errors
    /// [`Unsent`], if the message was not taken.
    #[inline]
    pub fn send(&mut self, message: Outgoing<'_>, context: &mut Context) -> Result<(), Unsent> {
        if !self.is_open() {
            return Err(Unsent::Closed);
        }
        if self.waits(message.policy) {
            return self.enqueue(message);
        }
        if self.len() >= message.policy.unwrap_or(self.policy).limit() {
            return Err(Unsent::Full);
        }
        let Outgoing { kind, payload, compress, .. } = message;
        let compress = compress && self.cork.compresses(payload.len());
        if let Some(header) = self.cork.large(kind, payload, compress) {
            self.seal_behind_cork(&[header.filled(), payload], &mut context.pool);
            return Ok(());
        }
        self.encode(kind, payload, compress, context).map_err(unsent)
    }

    /// Encodes a message. One function for those that are sent and those that have waited, so that the encoder is part of it.
    fn encode(
        &mut self,
        kind: Kind,
        payload: &[u8],
        compress: bool,
        context: &mut Context,
    ) -> Result<(), tautline_ws::Error> {
        self.cork.message(kind, payload, compress, context.means())
    }

    /// Takes a ping.
    ///
    /// # Errors
    /// [`Unsent`], if it was not taken: its payload may have at most 125 bytes.
    pub fn ping(&mut self, payload: &[u8], context: &mut Context) -> Result<(), Unsent> {
        if !self.is_open() {
            return Err(Unsent::Closed);
        }
        if self.encoded() >= self.policy.limit() {
            return Err(Unsent::Full);
        }
        self.cork.ping(payload, context.means()).map_err(unsent)
    }

    /// Whether a message with this policy waits unencoded.
    const fn waits(&self, policy: Option<SlowConsumer>) -> bool {
        let policy = match policy {
            Some(policy) => policy,
            None => self.policy,
        };
        // A message overtakes none that wait.
        self.queue.has_memory() || self.is_blocked && !matches!(policy, SlowConsumer::Disconnect(_))
    }

    /// Lets a message wait unencoded.
    #[cold]
    fn enqueue(&mut self, message: Outgoing<'_>) -> Result<(), Unsent> {
        let Outgoing { kind, payload, compress, key, policy, .. } = message;
        let item = Item::Message { kind, payload: payload.into(), compress, key };
        match self.queue.push(item, policy.unwrap_or(self.policy), &mut self.dropped) {
            Pushed::Waits | Pushed::Replaces => Ok(()),
            Pushed::Dropped => Err(Unsent::Dropped),
            // The caller can wait.
            Pushed::Overrun => Err(Unsent::Full),
        }
    }

    /// Encodes messages that wait, as long as fewer than `most` bytes are not sealed.
    fn fill(&mut self, most: usize, context: &mut Context) {
        while self.cork.len() < most
            && let Some(item) = self.queue.pop()
        {
            let Item::Message { kind, payload, compress, .. } = item else { continue };
            let compress = compress && self.cork.compresses(payload.len());
            if let Err(error) = self.encode(kind, &payload, compress, context) {
                log::error!("a message was not sent: {error}");
            }
        }
    }

    /// Bytes that wait for the caller to write them, and those of messages that wait unencoded, each with a fixed cost.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.encoded() + self.queue.bytes()
    }

    const fn encoded(&self) -> usize {
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
        !self.waits(None) && self.len() >= self.policy.limit()
    }

    /// Messages that a policy has dropped so far.
    pub(super) const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The caller can write no bytes for now.
    pub(super) const fn blocked(&mut self) {
        self.is_blocked = true;
    }

    /// Whether messages are taken at all.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.phase.takes_messages()
    }

    pub(super) fn pong(&mut self, payload: &[u8], context: &mut Context) -> Result<(), tautline_ws::Error> {
        if !self.is_open() || self.encoded() > MAX_BEFORE_PONG.max(self.policy.limit()) {
            return Ok(());
        }
        self.cork.pong(payload, context.means())
    }

    /// Takes our close frame behind all messages; none follows it.
    pub(super) fn close(&mut self, code: CloseCode, reason: &str, context: &mut Context) {
        self.fill(usize::MAX, context);
        self.close_now(code, reason, context);
    }

    /// Takes our close frame in place of messages that wait unencoded.
    pub(super) fn close_now(&mut self, code: CloseCode, reason: &str, context: &mut Context) {
        self.queue.clear();
        if !self.is_open() {
            return;
        }
        self.cork.close(code, reason, context.means());
        self.phase = Phase::CloseSent;
    }

    /// Unsealed bytes, to append HTTP heads.
    pub(super) fn raw(&mut self, pool: &mut Pool) -> &mut Buf {
        self.cork.raw(pool)
    }

    /// Drops what is not sealed.
    pub(super) fn clear(&mut self) {
        self.cork.clear();
        self.queue.clear();
    }

    /// Drops everything.
    pub(super) fn abort(&mut self) {
        self.clear();
        self.wire = Buf::new();
    }

    /// Appends close_notify behind everything.
    pub(super) fn finish(&mut self, context: &mut Context) {
        self.fill(usize::MAX, context);
        self.seal(&mut context.pool);
        self.session.close(&mut self.wire);
    }

    /// The buffer of bytes for the peer, for the session, and the session.
    pub(super) const fn parts(&mut self) -> (&mut S, &mut Buf) {
        (&mut self.session, &mut self.wire)
    }

    /// The bytes to write. Frames are sealed once all earlier bytes are written, so that they share records.
    pub(super) fn bytes(&mut self, context: &mut Context) -> &[u8] {
        if self.wire.is_empty() {
            if self.queue.has_memory() {
                self.fill(BATCH, context);
            }
            self.seal(&mut context.pool);
        }
        self.wire.filled()
    }

    pub(super) fn written(&mut self, n: usize, pool: &mut Pool) {
        self.is_blocked &= n == 0;
        self.wire.take(n.min(self.wire.len()));
        if self.wire.is_empty() {
            pool.give(core::mem::take(&mut self.wire));
        }
    }

    /// Moves bytes that wait for the peer into memory that fits them.
    pub(super) fn fit(&mut self, pool: &mut Pool) {
        pool.fit(&mut self.wire);
        self.cork.tidy(pool);
    }

    /// Whether a seal has failed, and its error was not taken.
    pub(super) const fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Takes the error of a failed seal.
    pub(super) fn take_failure(&mut self) -> Option<Error> {
        self.failed.take().map(|error| *error)
    }

    fn seal(&mut self, pool: &mut Pool) {
        if self.cork.is_empty() {
            return;
        }
        if self.is_plain && self.wire.is_empty() {
            core::mem::swap(self.cork.frames(), &mut self.wire);
            return;
        }
        self.seal_behind_cork(&[&[], &[]], pool);
    }

    /// Seals the cork, and two chunks behind it.
    fn seal_behind_cork(&mut self, [one, two]: &[&[u8]; 2], pool: &mut Pool) {
        let cork = core::mem::take(self.cork.frames());
        self.seal_chunks(&[cork.filled(), one, two], pool);
        pool.give_back(cork);
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

const fn unsent(error: tautline_ws::Error) -> Unsent {
    match error {
        tautline_ws::Error::ApiMisuse(why) => Unsent::Invalid(why),
        _ => Unsent::Invalid("the compressor failed"),
    }
}

impl<S> std::fmt::Debug for Output<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waiting = self.cork.len() + self.wire.len();
        f.debug_struct("Output")
            .field("is_open", &self.phase.takes_messages())
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}
