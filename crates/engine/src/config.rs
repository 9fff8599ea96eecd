use std::time::Duration;
use tautline_ws::handshake::{HeadLimits, Policy};

/// How one shard treats its connections. Start from a preset and change fields.
///
/// | preset | for | what differs |
/// |---|---|---|
/// | [`low_latency`](Self::low_latency) | trading feeds, games | short deadlines, little queueing |
/// | [`many_connections`](Self::many_connections) | 100,000 mostly idle clients | rare pings, small queues |
/// | [`untrusted_internet`](Self::untrusted_internet) | servers open to anyone; the default | small messages, strict deadlines |
#[derive(Clone, Debug)]
pub struct Config {
    /// Bounds on what a peer can make us hold.
    pub limits: Limits,
    /// How long a peer may take.
    pub deadlines: Deadlines,
    /// What happens to messages that a peer does not read in time.
    pub slow_consumer: SlowConsumer,
    /// What the opening handshake accepts (server).
    pub upgrade: Policy,
    /// What leaves the loop (server).
    pub offload: Offload,
    /// Deliver large messages in pieces, as they arrive, to [`Handler::on_chunk`](crate::Handler::on_chunk).
    pub streaming: bool,
}

/// Bounds on memory and work per connection and per shard.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Longest message accepted, after inflation, in bytes. A longer one is refused with 1009.
    pub max_message: usize,
    /// Longest HTTP head accepted. A longer one is refused with 431.
    pub head: HeadLimits,
    /// Connections per shard; beyond it, connections wait in the kernel's backlog.
    pub max_connections: usize,
    /// Connections per shard that are not open yet; beyond it, connections wait in the kernel's backlog.
    pub max_handshakes: usize,
    /// Topics that one connection may subscribe to.
    pub max_subscriptions: usize,
    /// While answers to a client wait and more than this many bytes wait to be sent to it, nothing more is read from it.
    /// What others make us send does not hold it back, and servers are never held back.
    pub pause_receive_above: usize,
    /// Bytes of unused buffers a shard keeps.
    pub pool: usize,
}

/// Full handshakes with an expensive signature (RSA) go to threads beside the loops, so that a storm of them does not
/// starve connections that are established. Resumed ones, and those signed with ECDSA, stay where they are: handing them
/// over would cost more than it saves.
#[derive(Clone, Debug)]
pub struct Offload {
    /// Threads for all shards of a server together: 0 does every handshake in its loop, `None` takes one for each two CPUs.
    pub threads: Option<usize>,
    /// Signatures that take at least so long leave the loop. What a key takes is measured when it is loaded, at the start
    /// and at a reload, once for all keys of an algorithm and a length.
    pub min_signature: Duration,
    /// Handshakes that may wait. Further connections are reset at once.
    pub max_waiting: usize,
    /// Longest wait. Connections that would wait longer, going by what handshakes took lately, are reset at once.
    pub max_wait: Duration,
    /// The threads run only while their processors have nothing else to do (`SCHED_IDLE`, sched(7)), so that established
    /// connections never wait for them. Where they are not let run for so long while handshakes wait, since loops or others
    /// never sleep, threads of a low priority (a nice value of 15) take over. `None` leaves all to such, for processors
    /// that are busy for good: established connections wait for the end of a handshake now and then.
    pub max_stall: Option<Duration>,
    /// Help with the records of large messages; `None` seals all of them in the loop. Engines that cannot share a message
    /// ([`Capabilities`](tautline_tls::Capabilities)) are refused with it.
    pub records: Option<Records>,
}

/// Large messages are sealed and sent by two threads at once: the loop, and one of a small pool that has time. Worth it where
/// processors idle beside a busy loop, and asked for less and less often where nobody comes; smaller messages are as they were.
#[derive(Clone, Debug)]
pub struct Records {
    /// Bytes from which on a message is shared, or what is sent together. 1 MiB unless told, which is where `taut bench offload`
    /// found it to pay on calm machines; smaller ones are sent no sooner, and all cost more processor time in all.
    pub min_message: usize,
    /// Threads that help all loops of a server; `None` takes one for each processor but one, at most
    /// [`MOST_THREADS`](Self::MOST_THREADS). After a message they look for the next for 200 us before they sleep.
    pub threads: Option<usize>,
}

impl Records {
    /// Threads of a pool that nobody has given a number.
    pub const MOST_THREADS: usize = 3;
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

/// How long a peer may take for what it owes us.
#[derive(Clone, Debug)]
pub struct Deadlines {
    /// To look a host's name up; and then from the first attempt to the TCP connection, all of its addresses included (the
    /// next one is tried after 250 ms); a client's.
    pub connect: Duration,
    /// From the TCP connection to the end of the opening handshake, proxies and TLS included; also for each further
    /// plain HTTP request on a connection.
    pub handshake: Duration,
    /// A ping is sent after this much silence.
    pub ping: Option<Duration>,
    /// The connection is closed after this much silence (a pong ends silence).
    pub idle: Option<Duration>,
    /// From our close frame to the end of the connection.
    pub close: Duration,
    /// A peer that takes nothing for so long while bytes wait is disconnected.
    pub send: Duration,
}

/// What happens to a message for a peer that does not read fast enough.
///
/// Messages wait unencoded while the kernel takes no more bytes; the policy bounds how much may wait. A message that
/// nothing waits before is always taken, whatever its size. Control frames, fragments of a streamed message and what was
/// already encoded are never dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowConsumer {
    /// Up to so many bytes wait; then the connection is closed with 1008.
    Disconnect(usize),
    /// Up to so many bytes wait; then new messages are dropped.
    DropNewest(usize),
    /// Up to so many bytes wait; then the oldest messages are dropped.
    DropOldest(usize),
    /// Of messages with the same key only the latest waits. Up to so many bytes wait; then the oldest are dropped.
    KeepLatest(usize),
}

impl SlowConsumer {
    /// Bytes that may wait.
    #[must_use]
    pub const fn limit(self) -> usize {
        match self {
            Self::Disconnect(limit) | Self::DropNewest(limit) | Self::DropOldest(limit) | Self::KeepLatest(limit) => {
                limit
            }
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::untrusted_internet()
    }
}

impl Config {
    /// For servers that anyone may reach.
    #[must_use]
    pub fn untrusted_internet() -> Self {
        Self {
            limits: Limits {
                max_message: 1 << 20,
                head: HeadLimits::default(),
                max_connections: 100_000,
                max_handshakes: 2_000,
                max_subscriptions: 128,
                pause_receive_above: 256 << 10,
                pool: 4 << 20,
            },
            deadlines: Deadlines {
                connect: Duration::from_secs(10),
                handshake: Duration::from_secs(10),
                ping: Some(Duration::from_secs(30)),
                idle: Some(Duration::from_secs(75)),
                close: Duration::from_secs(5),
                send: Duration::from_secs(30),
            },
            slow_consumer: SlowConsumer::Disconnect(1 << 20),
            upgrade: Policy::default(),
            offload: Offload::default(),
            streaming: false,
        }
    }

    /// For few connections whose every microsecond counts: stalls are noticed in seconds, little waits.
    #[must_use]
    pub fn low_latency() -> Self {
        let mut config = Self::untrusted_internet();
        config.limits.max_message = 16 << 20;
        config.limits.max_connections = 1_000;
        config.limits.pool = 16 << 20;
        config.deadlines.ping = Some(Duration::from_secs(5));
        config.deadlines.idle = Some(Duration::from_secs(15));
        config.deadlines.send = Duration::from_secs(5);
        config.slow_consumer = SlowConsumer::KeepLatest(256 << 10);
        config
    }

    /// For a great many connections, most of them silent: rare pings, small queues.
    #[must_use]
    pub fn many_connections() -> Self {
        let mut config = Self::untrusted_internet();
        config.limits.max_message = 256 << 10;
        config.limits.max_connections = 1_000_000;
        config.limits.pause_receive_above = 32 << 10;
        config.deadlines.ping = Some(Duration::from_secs(240));
        config.deadlines.idle = Some(Duration::from_secs(540));
        config.slow_consumer = SlowConsumer::Disconnect(128 << 10);
        config
    }
}
