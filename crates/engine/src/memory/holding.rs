//! The memory that a connection holds beside its own state.

use crate::link::phase::{Pages, Phase};
use crate::link::state::{HandshakeCost, Link};
use crate::memory::account::{Held, Kept};
use tautline_buf::Pool;

/// Memory of a TLS library during a handshake, as measured with rustls.
const HANDSHAKE: usize = 3 << 10;

impl<S, T> Link<S, T> {
    /// Whether it may hold memory beside its own state, or did.
    ///
    /// Handshakes and connections with compression are looked at after each event, since their memory is within other types.
    #[inline]
    pub(crate) const fn may_hold(&self) -> bool {
        self.charged
            | self.carry.has_memory()
            | self.out.has_memory()
            | self.wire.has_memory()
            | self.decoder.has_message()
    }

    /// The memory that it keeps until it gives it up.
    pub(crate) fn kept(&self) -> Kept {
        self.cold.as_ref().map_or_else(Kept::default, |cold| cold.kept())
    }

    pub(crate) fn held(&self) -> Held {
        let (message, inflater) = self.decoder.memory();
        let (cork, queued, shared, deflater) = self.out.memory();
        let carry = self.carry.capacity();
        let head = match &self.phase {
            Phase::Request(head) => head.memory(),
            Phase::Answer(answer) => answer.bytes.capacity(),
            // The pool has a buffer for the client's messages and one for ours.
            Phase::Offloaded(Some(_)) => HANDSHAKE + 2 * Pool::MIN_CAPACITY,
            Phase::Offloaded(None) => HANDSHAKE,
            // A server's library has nothing before the client's first message is whole.
            Phase::Tls if self.info.dial.is_some() || self.cost == HandshakeCost::Answered => HANDSHAKE,
            _ => 0,
        };
        let is_handshaking = self.phase.is_handshaking();
        let carrier = if let Phase::Raw(raw) = &self.phase { raw.carrier.map_or(0, Pages::bytes) } else { 0 };
        Held {
            heads: head + if is_handshaking { carry } else { 0 },
            partial: message + carrier + if is_handshaking { 0 } else { carry },
            sending: cork + self.wire.memory(),
            queued,
            deflate: inflater + deflater,
            shared,
            requests: match &self.phase {
                Phase::Waiting(wait) => wait.memory() + wait.with.rest.capacity(),
                Phase::Streaming(streaming) => streaming.memory(),
                _ => 0,
            },
        }
    }
}
