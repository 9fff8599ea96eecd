use super::context::Context;
use super::event::Unsent;
use core::convert::Infallible;
use tautline_buf::{Buf, Pool};
use tautline_conn::config::SlowConsumer;
use tautline_conn::cork::Means;
use tautline_conn::message::Outgoing;
use tautline_conn::outbound::Outbound;
use tautline_conn::queue::Pushed;
use tautline_conn::wire::{Kept, Outlet, Transport, Wire};
use tautline_tls::Session;
use tautline_ws::Role;
use tautline_ws::deflate::SharedDeflater;
use tautline_ws::handshake::BodyReader;

/// Bytes that may wait before pongs are left out, if messages may not wait for longer. Not every ping needs an answer.
const MAX_BEFORE_PONG: usize = 64 << 10;

/// The sending half of a [`Connection`](super::Connection): messages, and the sealed bytes for the caller to write.
pub struct Output<S> {
    pub(super) session: S,
    pub(super) phase: Phase,
    /// Messages that are not sealed. None is encoded that came since the caller was blocked, so that the policy can drop it.
    pub(super) out: Outbound,
    pub(super) wire: Wire,
    pub(super) held: Held,
}

/// The state of a connection without I/O. A request keeps its body while it waits, and no response is made while it is sent.
pub(super) type Phase = tautline_conn::phase::Phase<Option<BodyReader>, Infallible>;

/// The outlet's part of a connection.
pub(super) struct Held {
    /// Bytes for the caller to write.
    bytes: Buf,
    /// The policy for messages to a peer that does not read fast enough.
    policy: SlowConsumer,
    /// Messages that a policy has dropped.
    pub(super) dropped: u64,
    /// Whether the caller can write no bytes for now.
    pub(super) is_blocked: bool,
}

/// The outlet: it holds bytes until the caller has written them.
struct HeldOutlet<'a> {
    held: &'a mut Held,
    context: &'a mut Context,
}

impl Outlet for HeldOutlet<'_> {
    #[inline]
    fn means(&mut self) -> Means<'_> {
        self.context.means()
    }

    #[inline]
    fn policy(&self) -> SlowConsumer {
        self.held.policy
    }

    #[inline]
    fn send(&mut self, sealed: Buf, _: bool) -> Option<Kept> {
        self.held.bytes = sealed;
        Some(Kept::default())
    }

    fn shared_deflater(&mut self) -> (&mut Pool, Option<&mut SharedDeflater>) {
        let (pool, deflater) = self.context.for_many();
        (pool, Some(deflater))
    }

    fn count_dropped(&mut self, _: Option<SlowConsumer>, number: u64) {
        self.held.dropped += number;
    }
}

impl<S: Session> Output<S> {
    pub(super) fn new(session: S, role: Role, phase: Phase, policy: SlowConsumer) -> Self {
        let held = Held { bytes: Buf::new(), policy, dropped: 0, is_blocked: false };
        Self { session, phase, out: Outbound::new(role), wire: Wire::new(), held }
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
        let waits = self.waits(message.policy);
        if !waits && self.len() >= message.policy.unwrap_or(self.held.policy).limit() {
            return Err(Unsent::Full);
        }
        let (out, mut transport, mut outlet) = self.parts(context);
        if !waits {
            let taken = match message.made() {
                Some(made) => out.take_made(made, message.compress, &mut transport, &mut outlet),
                None => out.take(message, &mut transport, &mut outlet),
            };
            return taken.map_err(unsent);
        }
        match out.wait(message, &mut outlet) {
            Pushed::Waits | Pushed::Replaces => Ok(()),
            Pushed::Dropped => Err(Unsent::Dropped),
            // The caller can wait.
            Pushed::Overrun => Err(Unsent::Full),
        }
    }

    /// Takes a ping.
    ///
    /// # Errors
    /// [`Unsent`], if it was not taken: its payload may have at most 125 bytes.
    pub fn ping(&mut self, payload: &[u8], context: &mut Context) -> Result<(), Unsent> {
        if !self.is_open() {
            return Err(Unsent::Closed);
        }
        if self.out.encoded(&self.wire) >= self.held.policy.limit() {
            return Err(Unsent::Full);
        }
        self.out.cork().ping(payload, context.means()).map_err(unsent)
    }

    pub(super) fn pong(&mut self, payload: &[u8], context: &mut Context) -> Result<(), tautline_ws::Error> {
        if !self.is_open() || self.out.encoded(&self.wire) > MAX_BEFORE_PONG.max(self.held.policy.limit()) {
            return Ok(());
        }
        self.out.cork().pong(payload, context.means())
    }

    /// Whether a message with this policy waits unencoded. It overtakes none that wait.
    fn waits(&self, policy: Option<SlowConsumer>) -> bool {
        let drops = !matches!(policy.unwrap_or(self.held.policy), SlowConsumer::Disconnect(_));
        self.held.is_blocked && drops || self.out.has_queued()
    }

    /// Bytes that wait for the caller to write them, and those of messages that wait unencoded, each with a fixed cost.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.out.buffered(&self.wire)
    }

    /// Whether no byte waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.out.is_empty() && self.wire.is_flushed()
    }

    /// Whether messages are refused until some bytes are written. A message of any size may wait alone.
    #[must_use]
    pub fn is_full(&self) -> bool {
        !self.waits(None) && self.len() >= self.held.policy.limit()
    }

    /// Whether messages are taken at all.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.phase.takes_messages()
    }

    /// Seals what waits, if the caller has written all earlier bytes, so that it shares records. Ends our direction behind it, if
    /// that is due.
    #[inline(never)]
    pub(super) fn flush(&mut self, context: &mut Context) {
        let (out, mut transport, mut outlet) = self.parts(context);
        out.flush(&mut transport, &mut outlet);
    }

    /// The bytes to write.
    #[inline]
    pub(super) fn bytes(&mut self, context: &mut Context) -> &[u8] {
        if !self.wire.is_in_flight() {
            self.flush(context);
        }
        self.held.bytes.filled()
    }

    #[inline]
    pub(super) fn written(&mut self, n: usize, context: &mut Context) {
        let Self { wire, held, .. } = self;
        held.is_blocked &= n == 0;
        let n = n.min(held.bytes.len());
        held.bytes.take(n);
        wire.took(n);
        if held.bytes.is_empty() {
            context.pool.give(core::mem::take(&mut held.bytes));
            if self.phase.is_ending() {
                self.flush(context);
            }
        }
    }

    /// Drops everything.
    pub(super) fn abort(&mut self) {
        self.out.clear();
        self.wire.clear();
        self.held.bytes = Buf::new();
    }

    /// Moves bytes that wait for the peer into memory that fits them.
    pub(super) fn fit(&mut self, pool: &mut Pool) {
        pool.fit(&mut self.held.bytes);
        self.wire.tidy(pool);
        self.out.tidy(pool);
    }

    #[inline]
    fn parts<'a>(
        &'a mut self,
        context: &'a mut Context,
    ) -> (&'a mut Outbound, Transport<'a, Option<BodyReader>, Infallible>, HeldOutlet<'a>) {
        let Self { session, phase, out, wire, held } = self;
        (out, Transport { phase, wire, session, in_kernel: false }, HeldOutlet { held, context })
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
        f.debug_struct("Output")
            .field("is_open", &self.phase.takes_messages())
            .field("waiting", &self.out.buffered(&self.wire))
            .finish_non_exhaustive()
    }
}
