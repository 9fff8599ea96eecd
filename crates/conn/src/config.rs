//! The parts of a configuration that one connection needs.

use std::time::Duration;

/// Bounds on the time that a peer may take.
///
/// If the loop did not run for a second or more, they wait until the bytes that came meanwhile are read, for two seconds at
/// most.
///
/// ```
/// # mod tautline { pub use tautline_conn::config::Deadlines; }
/// use std::time::Duration;
/// use tautline::Deadlines;
///
/// fn shorten(deadlines: &mut Deadlines) {
///     deadlines.handshake = Duration::from_secs(3);
///     deadlines.idle = None;
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Deadlines {
    /// Time to resolve the host's name, and again to connect to one of its addresses (client).
    ///
    /// The next address is tried when an attempt fails, or 250 ms after it began.
    pub connect: Duration,
    /// Time from the TCP connection to the end of the opening handshake, proxies and TLS included.
    ///
    /// Each further plain HTTP request on a connection gets this time too, within `http`.
    pub handshake: Duration,
    /// Time that the application may take to answer a request later (`Request::later`). The client then gets status 408
    /// (server).
    pub answer: Duration,
    /// Time from the first plain HTTP answer on a connection to its end, unless it becomes a WebSocket (server).
    pub http: Duration,
    /// Time without input after which a ping is sent.
    pub ping: Option<Duration>,
    /// Time without input after which the connection is closed. A pong is input.
    pub idle: Option<Duration>,
    /// Time without a message after which the connection is closed; `None` in all presets. Pings and pongs are no messages.
    ///
    /// A client with `Target::reconnect` connects again: a feed that is silent may be dead.
    pub silence: Option<Duration>,
    /// Time from our close frame to the end of the connection.
    pub close: Duration,
    /// Time after which a peer is disconnected if bytes wait and it takes none of them.
    pub send: Duration,
}

impl Default for Deadlines {
    /// The deadlines of servers that are open to anyone.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            handshake: Duration::from_secs(10),
            answer: Duration::from_secs(10),
            http: Duration::from_secs(60),
            ping: Some(Duration::from_secs(30)),
            idle: Some(Duration::from_secs(75)),
            silence: None,
            close: Duration::from_secs(5),
            send: Duration::from_secs(30),
        }
    }
}

/// The policy for messages to a peer that does not read fast enough.
///
/// While the kernel takes no more bytes, messages wait unencoded, up to a limit in bytes. A message of any size may wait
/// alone. Control frames, fragments of a streamed message and encoded messages are never dropped.
///
/// ```
/// # mod tautline { pub use tautline_conn::config::SlowConsumer; }
/// use tautline::SlowConsumer;
///
/// let policy = SlowConsumer::KeepLatest(64 << 10);
/// assert_eq!(policy.limit(), 65_536);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlowConsumer {
    /// Closes the connection with 1008 if a message would exceed the limit.
    Disconnect(usize),
    /// Drops new messages that would exceed the limit.
    DropNewest(usize),
    /// Drops the oldest messages until the new one fits.
    DropOldest(usize),
    /// Keeps only the latest of messages with the same key, and drops the oldest until the new one fits.
    KeepLatest(usize),
}

impl SlowConsumer {
    /// The limit: bytes that may wait.
    #[must_use]
    pub const fn limit(self) -> usize {
        match self {
            Self::Disconnect(limit) | Self::DropNewest(limit) | Self::DropOldest(limit) | Self::KeepLatest(limit) => {
                limit
            }
        }
    }
}
