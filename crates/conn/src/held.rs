//! The way out of a connection whose caller writes its bytes: they are kept until then.

use crate::config::SlowConsumer;
use crate::cork::Means;
use crate::message::Outgoing;
use crate::outbound::Outbound;
use crate::phase::Phase;
use crate::queue::Pushed;
use crate::supplies::Supplies;
use crate::wire::{Kept, Outlet, Transport, Wire};
use core::fmt;
use tautline_buf::{Buf, Pool};
use tautline_tls::Session;
use tautline_ws::deflate::SharedDeflater;
use tautline_ws::{CloseCode, Role};

/// Bytes that may wait before pongs are left out, if messages may not wait for longer. Not every ping needs an answer.
const MAX_BEFORE_PONG: usize = 64 << 10;

/// The sending half of a connection without I/O: messages, and the sealed bytes for the caller to write.
pub struct Output<S, W, R> {
    /// The TLS session.
    pub session: S,
    /// The state of the connection.
    pub phase: Phase<W, R>,
    /// Messages that are not sealed. None is encoded that came since the caller was blocked, so that the policy can drop it.
    pub out: Outbound,
    /// Records that the caller does not have yet.
    pub wire: Wire,
    held: Held,
}

/// The outlet's part of a connection.
struct Held {
    /// Bytes for the caller to write.
    bytes: Buf,
    /// The policy for messages to a peer that does not read fast enough.
    policy: SlowConsumer,
    /// Messages that a policy has dropped.
    dropped: u64,
    /// Whether the caller can write no bytes for now.
    is_blocked: bool,
}

/// The outlet: it keeps bytes until the caller has written them.
struct HeldOutlet<'a> {
    held: &'a mut Held,
    supplies: &'a mut Supplies,
}

/// The reason why a message was not taken.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unsent {
    /// The connection is not open, or it is closing.
    Closed,
    /// More bytes than [`SlowConsumer::limit`] wait for the peer.
    Full,
    /// The peer takes no bytes, and the policy for slow consumers has dropped the message.
    Dropped,
    /// The message cannot be sent in any connection: the text says why.
    Invalid(&'static str),
}

impl<S, W, R> Output<S, W, R> {
    /// Nothing was sent.
    #[must_use]
    pub fn new(session: S, role: Role, phase: Phase<W, R>, policy: SlowConsumer) -> Self {
        let held = Held { bytes: Buf::new(), policy, dropped: 0, is_blocked: false };
        Self { session, phase, out: Outbound::new(role), wire: Wire::new(), held }
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

    /// Messages that a policy has dropped so far.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.held.dropped
    }

    /// The caller can write no bytes for now.
    pub const fn block(&mut self) {
        self.held.is_blocked = true;
    }

    /// Drops everything.
    pub fn abort(&mut self) {
        self.out.clear();
        self.wire.clear();
        self.held.bytes = Buf::new();
    }

    /// Moves bytes that wait for the peer into memory that fits them.
    pub fn fit(&mut self, pool: &mut Pool) {
        pool.fit(&mut self.held.bytes);
        self.wire.tidy(pool);
        self.out.tidy(pool);
    }

    /// Whether a message with this policy waits unencoded. It overtakes none that wait.
    fn waits(&self, policy: Option<SlowConsumer>) -> bool {
        let drops = !matches!(policy.unwrap_or(self.held.policy), SlowConsumer::Disconnect(_));
        self.held.is_blocked && drops || self.out.has_queued()
    }
}

impl<S: Session, W, R> Output<S, W, R> {
    /// Takes a message. It leaves with the next bytes that the caller writes.
    ///
    /// If more bytes wait than the policy's limit, the message is [refused](Unsent::Full) until the caller has written some. While
    /// the caller is blocked, messages with a policy that drops some wait unencoded instead, and the policy means what it means
    /// in a loop.
    ///
    /// # Errors
    /// [`Unsent`], if the message was not taken.
    #[inline]
    pub fn send(&mut self, message: Outgoing<'_>, supplies: &mut Supplies) -> Result<(), Unsent> {
        if !self.is_open() {
            return Err(Unsent::Closed);
        }
        let waits = self.waits(message.policy);
        if !waits && self.len() >= message.policy.unwrap_or(self.held.policy).limit() {
            return Err(Unsent::Full);
        }
        let (out, mut transport, mut outlet) = self.parts(supplies);
        if !waits {
            let taken = match message.made() {
                Some(made) => out.take_made(made, message.compress, &mut transport, &mut outlet),
                None => out.take(message, &mut transport, &mut outlet),
            };
            return taken.map_err(Unsent::from);
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
    pub fn ping(&mut self, payload: &[u8], supplies: &mut Supplies) -> Result<(), Unsent> {
        if !self.is_open() {
            return Err(Unsent::Closed);
        }
        if self.out.encoded(&self.wire) >= self.held.policy.limit() {
            return Err(Unsent::Full);
        }
        self.out.cork().ping(payload, supplies.means()).map_err(Unsent::from)
    }

    /// Answers a ping, unless too many bytes wait.
    ///
    /// # Errors
    /// Its payload is longer than 125 bytes.
    pub fn pong(&mut self, payload: &[u8], supplies: &mut Supplies) -> Result<(), tautline_ws::Error> {
        if !self.is_open() || self.out.encoded(&self.wire) > MAX_BEFORE_PONG.max(self.held.policy.limit()) {
            return Ok(());
        }
        self.out.cork().pong(payload, supplies.means())
    }

    /// Queues a close frame behind all messages, unless the connection closes already or is not open.
    pub fn close(&mut self, code: CloseCode, reason: &str) {
        self.out.close(&mut self.phase, code, reason);
        self.phase.close_sent();
    }

    /// Ends our direction behind everything that waits, or drops that.
    pub fn end(&mut self, end: Phase<W, R>, supplies: &mut Supplies) {
        self.phase = end;
        if self.phase.is_gone() {
            self.abort();
        } else {
            self.flush(supplies);
        }
    }

    /// The bytes for the caller to write.
    #[inline]
    pub fn bytes(&mut self, supplies: &mut Supplies) -> &[u8] {
        if !self.wire.is_in_flight() {
            self.flush(supplies);
        }
        self.held.bytes.filled()
    }

    /// Seals what waits, if the caller has written all earlier bytes, so that it shares records. Ends our direction behind it, if
    /// that is due.
    #[inline(never)]
    pub fn flush(&mut self, supplies: &mut Supplies) {
        let (out, mut transport, mut outlet) = self.parts(supplies);
        out.flush(&mut transport, &mut outlet);
    }

    /// The caller has written the first `n` of the [bytes](Self::bytes).
    #[inline]
    pub fn written(&mut self, n: usize, supplies: &mut Supplies) {
        let Self { wire, held, .. } = self;
        held.is_blocked &= n == 0;
        let n = n.min(held.bytes.len());
        held.bytes.take(n);
        wire.took(n);
        if held.bytes.is_empty() {
            supplies.pool.give(core::mem::take(&mut held.bytes));
            if self.phase.is_ending() {
                self.flush(supplies);
            }
        }
    }

    #[inline]
    fn parts<'a>(&'a mut self, supplies: &'a mut Supplies) -> (&'a mut Outbound, Transport<'a, W, R>, HeldOutlet<'a>) {
        let Self { session, phase, out, wire, held } = self;
        (out, Transport { phase, wire, session, in_kernel: false }, HeldOutlet { held, supplies })
    }
}

impl Outlet for HeldOutlet<'_> {
    #[inline]
    fn means(&mut self) -> Means<'_> {
        self.supplies.means()
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
        let (pool, deflater) = self.supplies.for_many();
        (pool, Some(deflater))
    }

    fn count_dropped(&mut self, _: Option<SlowConsumer>, number: u64) {
        self.held.dropped += number;
    }
}

impl<S, W, R> fmt::Debug for Output<S, W, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("is_open", &self.is_open()).field("waiting", &self.len()).finish_non_exhaustive()
    }
}

impl From<tautline_ws::Error> for Unsent {
    fn from(error: tautline_ws::Error) -> Self {
        match error {
            tautline_ws::Error::ApiMisuse(why) => Self::Invalid(why),
            _ => Self::Invalid("the compressor failed"),
        }
    }
}

impl fmt::Display for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the connection is not open",
            Self::Full => "too many bytes wait for the peer",
            Self::Dropped => "the peer is slow, and its policy drops messages that exceed the limit",
            Self::Invalid(why) => why,
        })
    }
}

impl fmt::Debug for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for Unsent {}
