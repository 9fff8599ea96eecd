use crate::http::access::AccessLog;
use crate::memory::budget::MemoryBudget;
use std::sync::Arc;
use std::time::Duration;
use tautline_conn::config::{Deadlines, SlowConsumer};
use tautline_conn::front::Front;
use tautline_conn::gate::Gate;
use tautline_ws::handshake::{HeadLimits, Policy};

/// The configuration of a shard. Start from a preset and change fields.
///
/// | preset | for | differences |
/// |---|---|---|
/// | [`low_latency`](Self::low_latency) | trading feeds, games | short deadlines, small queues, large messages |
/// | [`many_connections`](Self::many_connections) | 100,000 mostly idle clients | rare pings, small queues and messages |
/// | [`untrusted_internet`](Self::untrusted_internet) | servers open to anyone | none: this is the default |
///
/// ```
/// # mod tautline { pub use tautline_engine::{Config, SlowConsumer}; }
/// use std::time::Duration;
/// use tautline::{Config, SlowConsumer};
///
/// let mut config = Config::low_latency();
/// config.limits.max_message = 64 << 10;
/// config.deadlines.ping = Some(Duration::from_secs(2));
/// config.slow_consumer = SlowConsumer::DropOldest(256 << 10);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Bounds on memory and work.
    pub limits: Limits,
    /// Bounds on the time that a peer may take.
    pub deadlines: Deadlines,
    /// The policy for messages that a peer does not read in time.
    pub slow_consumer: SlowConsumer,
    /// Terms of the opening handshake: subprotocols, compression, origins (server).
    pub upgrade: Policy,
    /// The proxies before a server that tell where a client comes from.
    pub front: Front,
    /// Decides which clients may have one more connection (server).
    pub gate: Option<Arc<dyn Gate>>,
    /// Work on other threads (server).
    pub offload: Offload,
    /// The policy for a panic of the application.
    pub on_panic: OnPanic,
    /// Time from which a turn of a loop is counted ([`Counters::turns_slow`](crate::Counters)) and logged as slow.
    ///
    /// A handler that blocks or computes for long delays all connections of its loop. The line names the time that the turn
    /// took, and a connection that had input in it. `None` watches no turns.
    pub slow_turn: Option<Duration>,
    /// Whether messages are delivered in pieces, as they arrive, to [`Handler::on_chunk`](crate::Handler::on_chunk).
    pub streaming: bool,
    /// Whether each request is offered to [`Handler::on_raw_request`](crate::Handler::on_raw_request) before its body is read.
    pub raw: bool,
    /// Whether the driver carries connections in those that negotiate the protocol `h2`. It has to be one that does.
    pub http2: bool,
    /// Takes an entry for each answered HTTP request and each ended WebSocket (server). With it a connection takes some hundred
    /// bytes more. [Connections without a shard](crate::connection) make no entries.
    pub access_log: Option<AccessLog>,
}

/// Bounds on memory and work per connection, per shard, and for all shards of a server.
///
/// ```
/// # mod tautline { pub use tautline_engine::Config; }
/// use tautline::Config;
///
/// let mut config = Config::default();
/// config.limits.max_message = 64 << 10;
/// config.limits.max_connections = 10_000;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Longest message accepted, in bytes after inflation. A longer one closes the connection with 1009.
    ///
    /// As it comes, a compressed message may be twice as long, and 4 KiB more. A message may have as many empty fragments as bytes.
    pub max_message: usize,
    /// Longest HTTP head accepted. A longer one is answered with 431.
    pub head: HeadLimits,
    /// Connections of all shards of a server, and streams of HTTP/2. Further connections wait in the kernel's backlog, and further
    /// streams are refused.
    pub max_connections: usize,
    /// Descriptors that connections leave to others in the process, such as files and the admin listener; at most a quarter of
    /// `RLIMIT_NOFILE`.
    ///
    /// `tautline::Server` lowers `max_connections` to what is left. If there is no descriptor for a new connection all the same, the
    /// oldest connection without a WebSocket gives way, as at `max_handshakes` but at once.
    pub spare_descriptors: usize,
    /// Connections of a server whose opening handshake waits for the client; at most half of `max_connections`.
    ///
    /// Above it the oldest gives way to the newest, with a reset: the oldest of the host that has the most, in the network
    /// (IPv4 /24, IPv6 /56) that has the most. A source thus pushes out only itself, as long as another has fewer. A handshake
    /// has one second before it gives way, unless half of `max_connections` are handshakes. So a storm of honest clients from
    /// one address gets through.
    pub max_handshakes: usize,
    /// Connections of a server that were answered plain HTTP and may ask again; at most a quarter of `max_connections`.
    ///
    /// Above it connections give way like those of `max_handshakes`. They do not count there.
    pub max_http: usize,
    /// Requests of a shard that wait for the application's answer ([`Request::later`](crate::Request::later)). Further ones are
    /// answered with status 503.
    pub max_unanswered: usize,
    /// Bytes of the body of a plain HTTP request. A request with a longer one is answered with status 413, without asking the
    /// application.
    pub max_body: usize,
    /// Memory of all shards of a server, in bytes; `usize::MAX` for no limit.
    ///
    /// `tautline::Server` lowers it to three quarters of the memory that the machine or the process's control group has.
    ///
    /// From 7/8 of it on, new connections are reset. Above it the heaviest connections are closed: with 1008 if most of their
    /// memory waits for the peer to read, or else with 1013. [`Counters`](crate::Counters) have the memory by use. The kernel's
    /// buffers, the program itself, and what the application does not [count](crate::Conn::set_memory) are not in it.
    pub memory: usize,
    /// The budget that takes the place of [`memory`](Self::memory), and that other configurations of this process may share.
    pub shared_memory: Option<MemoryBudget>,
    /// Topics that one connection may subscribe to. [`Conn::subscribe`](crate::Conn::subscribe) refuses further ones. A topic
    /// that nobody else has takes about 150 bytes beside its name.
    pub max_subscriptions: usize,
    /// Bytes waiting for a client above which nothing more is read from it (server).
    ///
    /// Reading pauses only while answers to the client's own input are among them. Published messages alone do not pause it.
    pub pause_receive_above: usize,
    /// Bytes of unused buffers that a shard keeps.
    pub pool: usize,
}

/// Full handshakes on threads beside the loops, if their signature is expensive (RSA).
///
/// A storm of such handshakes then does not starve established connections. Resumed handshakes and those signed with ECDSA
/// stay in the loop, since moving them would cost more time than it saves.
///
/// ```
/// # mod tautline { pub use tautline_engine::{Config, Records}; }
/// use std::time::Duration;
/// use tautline::{Config, Records};
///
/// let mut config = Config::default();
/// config.offload.threads = Some(2);
/// config.offload.max_wait = Duration::from_secs(1);
/// config.offload.records = Some(Records::default());
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Offload {
    /// Threads for all shards of a server together: 0 keeps every handshake in its loop, `None` starts one per two CPUs.
    pub threads: Option<usize>,
    /// Signature time from which a handshake leaves the loop.
    ///
    /// The time is measured when a key is loaded, at the start or at a reload, once per algorithm and key length.
    pub min_signature: Duration,
    /// Handshakes that may wait. Further connections are reset at once.
    pub max_waiting: usize,
    /// Longest wait. A connection that would wait longer at the pool's recent pace is reset at once.
    pub max_wait: Duration,
    /// Time without CPU after which threads of a higher priority take over.
    ///
    /// The pool's threads run only while their CPUs are otherwise idle (`SCHED_IDLE`, sched(7)), so established connections
    /// never wait for them. On CPUs whose other threads never sleep they hardly run. If handshakes wait and none has begun for
    /// this time, watcher threads with a nice value of 15 do them. `None` starts no watchers, and the pool's threads have
    /// that nice value, for CPUs that are always busy. An established connection then waits for the end of a handshake now and then.
    pub max_stall: Option<Duration>,
    /// Help with the records of large messages; `None` seals all of them in the loop.
    ///
    /// It is refused for engines that cannot share a message ([`Capabilities`](tautline_tls::Capabilities)).
    pub records: Option<Records>,
}

/// Large messages that two threads seal and send: the loop, and a helper thread of a small pool.
///
/// This pays while CPUs idle beside a busy loop. If helpers do not come in time, they are asked less and less often. Smaller
/// messages are not affected.
///
/// ```
/// # mod tautline { pub use tautline_engine::{Config, Records}; }
/// use tautline::{Config, Records};
///
/// let mut config = Config::default();
/// config.offload.records = Some(Records::default().with_min_message(4 << 20).with_threads(1));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Records {
    /// Bytes from which a message, or messages sent together, are shared between threads; 1 MiB by default.
    ///
    /// On calm machines `taut bench offload` found a gain from 1 MiB on. Smaller messages are sent no sooner. Sharing costs
    /// more CPU time in total at any size.
    pub min_message: usize,
    /// Threads that help all loops of a server.
    ///
    /// `None` starts one per CPU but one, at most [`MOST_THREADS`](Self::MOST_THREADS). After a message they look for the next
    /// one for 200 us before they sleep.
    pub threads: Option<usize>,
}

impl Records {
    /// Most threads of a pool whose number of threads is not set.
    pub const MOST_THREADS: usize = 3;

    /// Sets the bytes from which a message is shared.
    #[must_use]
    pub const fn with_min_message(mut self, bytes: usize) -> Self {
        self.min_message = bytes;
        self
    }

    /// Sets the number of threads for all loops of a server.
    #[must_use]
    pub const fn with_threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }
}

impl Default for Records {
    fn default() -> Self {
        Self { min_message: 1 << 20, threads: None }
    }
}

impl Default for Offload {
    fn default() -> Self {
        Self {
            threads: None,
            min_signature: Duration::from_micros(200),
            max_waiting: 4096,
            max_wait: Duration::from_secs(3),
            max_stall: Some(Duration::from_millis(10)),
            records: None,
        }
    }
}

/// The policy for a panic of the application, in a [`Handler`](crate::Handler) or in the state of a connection.
///
/// Each panic is counted ([`Counters::panics`](crate::Counters)) and logged with the connection. The handler belongs to the
/// loop and is used further: a call that panicked may have left its own fields half changed, like the content of a poisoned
/// [`Mutex`](std::sync::Mutex). A handler that cannot go on then takes [`EndLoop`](Self::EndLoop).
///
/// | panic in | effect |
/// |---|---|
/// | an event of a connection, also by its timer or by a message from elsewhere | this policy, for the connection |
/// | `on_close`, the drop of a state | this policy; the connection has ended already |
/// | `State::default()` of a new connection | this policy; the connection is reset |
/// | `on_connect_failed` | this policy; the next attempt is scheduled |
/// | work on a pool's thread, such as a verifier of certificates | the connection fails its handshake |
/// | the closure of [`Shard::with_conn`](crate::Shard::with_conn) | it passes to the caller, who has the loop |
/// | the closure that makes a handler, a [`Probe`](crate::probe::Probe), a logger | the loop ends, and reports it |
///
/// ```
/// # mod tautline { pub use tautline_engine::{Config, OnPanic}; }
/// use tautline::{Config, OnPanic};
///
/// let mut config = Config::default();
/// config.on_panic = OnPanic::EndLoop;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnPanic {
    /// Closes the connection with 1011, or answers its HTTP request with 500. The loop and all others go on.
    ///
    /// Messages that were sent before the panic leave first. If the panic came amid a message of which a part has left, the
    /// connection is reset. `on_close` follows with [`Cause::Panicked`](crate::Cause).
    #[default]
    CloseConnection,
    /// Ends the loop at once, with a reset of its connections. The handler is not called again.
    EndLoop,
    /// Aborts the process.
    Abort,
}

impl Limits {
    /// The name of the budget that holds.
    pub(crate) const fn name_of_memory(&self) -> &'static str {
        if self.shared_memory.is_some() { "limits.shared_memory" } else { "limits.memory" }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::untrusted_internet()
    }
}

impl Config {
    /// Preset for servers that are open to anyone; the default.
    #[must_use]
    pub fn untrusted_internet() -> Self {
        Self {
            limits: Limits {
                max_message: 1 << 20,
                head: HeadLimits::default(),
                max_connections: 100_000,
                spare_descriptors: 32,
                max_handshakes: 2_000,
                max_http: 500,
                max_unanswered: 1_000,
                max_body: 64 << 10,
                memory: gibibytes(2),
                shared_memory: None,
                max_subscriptions: 128,
                pause_receive_above: 256 << 10,
                pool: 4 << 20,
            },
            deadlines: Deadlines::default(),
            slow_consumer: SlowConsumer::Disconnect(1 << 20),
            upgrade: Policy::default(),
            front: Front::default(),
            gate: None,
            offload: Offload::default(),
            on_panic: OnPanic::default(),
            slow_turn: Some(Duration::from_millis(500)),
            streaming: false,
            raw: false,
            http2: false,
            access_log: None,
        }
    }

    /// Preset for few connections that need low latency: stalls are noticed within seconds, and queues are small.
    #[must_use]
    pub fn low_latency() -> Self {
        let mut config = Self::untrusted_internet();
        config.limits.max_message = 16 << 20;
        config.limits.max_connections = 1_000;
        config.limits.max_handshakes = 500;
        config.limits.max_http = 250;
        config.limits.memory = gibibytes(4);
        config.limits.pool = 16 << 20;
        config.deadlines.ping = Some(Duration::from_secs(5));
        config.deadlines.idle = Some(Duration::from_secs(15));
        config.deadlines.send = Duration::from_secs(5);
        config.slow_consumer = SlowConsumer::KeepLatest(256 << 10);
        config.slow_turn = Some(Duration::from_millis(50));
        config
    }

    /// Preset for up to a million connections, most of them idle: rare pings, small queues.
    #[must_use]
    pub fn many_connections() -> Self {
        let mut config = Self::untrusted_internet();
        config.limits.max_message = 256 << 10;
        config.limits.max_connections = 1_000_000;
        config.limits.max_unanswered = 10_000;
        config.limits.memory = gibibytes(8);
        config.limits.pause_receive_above = 32 << 10;
        config.deadlines.ping = Some(Duration::from_secs(240));
        config.deadlines.idle = Some(Duration::from_secs(540));
        config.slow_consumer = SlowConsumer::Disconnect(128 << 10);
        config
    }
}

/// So many bytes, or as many as a pointer can count.
const fn gibibytes(n: usize) -> usize {
    n.saturating_mul(1 << 30)
}
