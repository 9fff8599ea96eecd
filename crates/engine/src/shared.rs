use crate::broker::Bridge;
use crate::config::Config;
use crate::counters::LiveCounters;
use crate::message::Published;
use crate::offload::RecordPool;
use crate::peer_log::PeerLog;
use crate::probe::MessageTimes;
use crate::publications::Publications;
use crate::remote::ShardHandle;
use crate::timer::Tick;
use crate::timers::Timers;
use crate::topic::Topics;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::fmt;
use std::sync::Arc;
use tautline_buf::{Buf, Pool};
use tautline_io::{Address, Token};
use tautline_ws::deflate::SharedDeflater;

/// State that all connections of one shard share. It is never shared between threads.
pub(crate) struct Shared {
    pub(crate) config: Arc<Config>,
    pub(crate) shard: u32,
    pub(crate) pool: Pool,
    /// The plaintext of one record, for engines that cannot open records in place. Boxed, since each event takes it out.
    pub(crate) scratch: Option<Box<Buf>>,
    pub(crate) keys: Keys,
    /// Compresses published messages.
    pub(crate) shared_deflater: SharedDeflater,
    pub(crate) counters: Arc<LiveCounters>,
    /// The account of messages that are published here.
    pub(crate) published: Published,
    /// Threads that help to seal large messages.
    pub(crate) records: Option<RecordPool>,
    /// The log of what peers cause.
    pub(crate) peer_log: PeerLog,
    pub(crate) topics: Topics,
    pub(crate) timers: Timers,
    /// Messages that were published and are not delivered yet. They follow after the driver's events.
    pub(crate) publications: Publications,
    /// Connections to be flushed, whose output was not made by their own event.
    pub(crate) dirty: Vec<Token>,
    /// The handle of this shard.
    pub(crate) remote: ShardHandle,
    /// The other shards of this server.
    pub(crate) others: Vec<ShardHandle>,
    /// The way to other hosts.
    pub(crate) bridge: Option<Bridge>,
    pub(crate) now: Tick,
    /// The times of the message that the handler is called with.
    pub(crate) times: Option<MessageTimes>,
    /// A part of what is being sealed in pieces may have left. A panic that finds it set cuts it off.
    pub(crate) amid_pieces: bool,
}

impl Shared {
    /// Logs a line about a peer, unless there are too many.
    #[cold]
    pub(crate) fn log_peer(&mut self, level: log::Level, peer: &Address, line: fmt::Arguments<'_>) {
        self.peer_log.log(level, self.now, peer, line);
    }
}

/// Generator of mask keys and nonces: ChaCha12, seeded by the system.
///
/// A mask key that the application can predict defeats masking (RFC 6455, section 10.3).
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

    /// A random number from 0 to `bound`, both included, for jitter.
    pub(crate) fn up_to(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % (bound + 1)
    }
}
