use crate::config::Config;
use crate::message::Publication;
use crate::offload::RecordPool;
use crate::remote::Remote;
use crate::timer::Tick;
use crate::topic::Topics;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::sync::Arc;
use tautline_io::Token;
use tautline_window::{Buf, Pool};
use tautline_ws::deflate::Press;

/// What all connections of one shard share. Never shared between threads.
pub(crate) struct Shared {
    pub(crate) config: Arc<Config>,
    pub(crate) shard: u32,
    pub(crate) pool: Pool,
    /// Where engines that cannot open in place put the plaintext of one record.
    pub(crate) scratch: Buf,
    pub(crate) keys: Keys,
    /// Compresses what is published.
    pub(crate) press: Press,
    pub(crate) counters: Counters,
    /// Threads that help to seal large messages.
    pub(crate) records: Option<RecordPool>,
    pub(crate) topics: Topics,
    /// Published by handlers in this turn, to be delivered when they are done.
    pub(crate) publications: Vec<Publication>,
    /// Connections with output that was not made in their own turn.
    pub(crate) dirty: Vec<Token>,
    /// The other shards of this server.
    pub(crate) others: Vec<Remote>,
    pub(crate) now: Tick,
}

impl Shared {
    /// What the shard did so far.
    pub(crate) const fn counters(&self) -> Counters {
        Counters { publications_compressed: self.press.runs(), ..self.counters }
    }
}

/// What a shard did since it began. All counts only grow, but for the `open` ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections of any state now.
    pub connections: u64,
    /// Connections now that are still before the end of their opening handshake.
    pub handshaking: u64,
    /// WebSocket connections open now.
    pub open: u64,
    /// WebSocket connections opened.
    pub opened: u64,
    /// Of those, the ones whose TLS session was resumed.
    pub resumed: u64,
    /// Opening handshakes that failed, in TLS, HTTP or by deadline.
    pub handshakes_failed: u64,
    /// Steps of handshakes done beside the loop: one for each, two where the client is asked for another ClientHello.
    pub handshakes_offloaded: u64,
    /// Of those, the ones that threads of a higher priority took over, because those of the pool were not let run.
    pub handshakes_stalled: u64,
    /// Of those that failed, the ones refused because too many waited.
    pub handshakes_refused: u64,
    /// Times that other threads were asked to help with the records of a large message, or of several together.
    pub seals_offloaded: u64,
    /// Of those, the ones that they came to.
    pub seals_helped: u64,
    /// Of those, the ones that had to wait for them, because they were not let run.
    pub seals_late: u64,
    /// Messages received.
    pub messages_in: u64,
    /// Messages that handlers sent, dropped ones included.
    pub messages_out: u64,
    /// Messages that the slow-consumer policy dropped.
    pub messages_dropped: u64,
    /// Compressions of published messages: one for each size of window, however many subscribers have it.
    pub publications_compressed: u64,
    /// Bytes received from the wire.
    pub bytes_in: u64,
    /// Bytes given to the driver.
    pub bytes_out: u64,
}

impl Counters {
    /// Adds what another shard did.
    pub const fn merge(&mut self, other: &Self) {
        // Named one by one, so that none is forgotten.
        let Self {
            accepted,
            connections,
            handshaking,
            open,
            opened,
            resumed,
            handshakes_failed,
            handshakes_offloaded,
            handshakes_stalled,
            handshakes_refused,
            seals_offloaded,
            seals_helped,
            seals_late,
            messages_in,
            messages_out,
            messages_dropped,
            publications_compressed,
            bytes_in,
            bytes_out,
        } = self;
        *accepted += other.accepted;
        *connections += other.connections;
        *handshaking += other.handshaking;
        *open += other.open;
        *opened += other.opened;
        *resumed += other.resumed;
        *handshakes_failed += other.handshakes_failed;
        *handshakes_offloaded += other.handshakes_offloaded;
        *handshakes_stalled += other.handshakes_stalled;
        *handshakes_refused += other.handshakes_refused;
        *seals_offloaded += other.seals_offloaded;
        *seals_helped += other.seals_helped;
        *seals_late += other.seals_late;
        *messages_in += other.messages_in;
        *messages_out += other.messages_out;
        *messages_dropped += other.messages_dropped;
        *publications_compressed += other.publications_compressed;
        *bytes_in += other.bytes_in;
        *bytes_out += other.bytes_out;
    }
}

/// Mask keys and nonces: ChaCha12 seeded from the system, because a key that the peer can predict defeats masking
/// (RFC 6455, section 10.3).
pub(crate) struct Keys(ChaCha12Rng);

impl Keys {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self(ChaCha12Rng::from_seed(seed))
    }

    pub(crate) fn next(&mut self) -> [u8; 4] {
        self.0.next_u32().to_ne_bytes()
    }

    pub(crate) fn nonce(&mut self) -> [u8; 16] {
        let mut nonce = [0; 16];
        self.0.fill_bytes(&mut nonce);
        nonce
    }

    /// A number from 0 to `bound`, for jitter.
    pub(crate) fn up_to(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % (bound + 1)
    }
}
