use crate::http::access::Traffic;
use crate::ids::ConnId;
use std::time::Duration;
use tautline_io::Address;

/// The connections of a shard that [`ShardHandle::connections`](crate::ShardHandle::connections) lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Listing {
    /// At most this many: those that hold the most memory first, and then those that hold none beside their own state.
    Heaviest(usize),
    /// A page of all connections in the order of their identifiers.
    InOrder {
        /// The last connection of the page before; `None` for the first page.
        after: Option<ConnId>,
        /// Most connections of the page.
        most: usize,
    },
    /// This one, unless it has ended.
    One(ConnId),
}

/// A connection, and the memory that it holds beside its own state, in bytes by use.
///
/// ```
/// # mod tautline { pub use tautline_engine::{Listing, ShardHandle, ShardHandleError}; }
/// use std::time::Duration;
/// use tautline::{Listing, ShardHandle, ShardHandleError};
///
/// fn report(shard: &ShardHandle) -> Result<(), ShardHandleError> {
///     for heavy in shard.connections(Listing::Heaviest(10), Duration::from_secs(1))? {
///         println!("{} of {} holds {} bytes, {} in its queue", heavy.conn, heavy.peer, heavy.total(), heavy.queued);
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Weight {
    /// The connection.
    pub conn: ConnId,
    /// The peer's address.
    pub peer: Address,
    /// The peer of the socket, if it is a proxy that named the client.
    pub direct: Option<Address>,
    /// `handshake`, `http`, `open`, `carrier`, `raw` or `closing`.
    pub state: &'static str,
    /// The connection that carries it, if it is a stream of HTTP/2.
    pub carrier: Option<ConnId>,
    /// The streams that it carries, if it is a connection with HTTP/2.
    pub streams: Option<Vec<ConnId>>,
    /// The path of its request without the query. This and the next three need [`Config::access_log`](crate::Config::access_log).
    pub path: Option<Box<str>>,
    /// The value of the header `User-Agent` of its request.
    pub user_agent: Option<Box<str>>,
    /// The time since its request.
    pub since_request: Option<Duration>,
    /// Its messages and bytes.
    pub traffic: Option<Traffic>,
    /// Its handshake, and an HTTP head that is not whole.
    pub heads: usize,
    /// A record or message that is not whole.
    pub partial: usize,
    /// Bytes on their way to the peer.
    pub sending: usize,
    /// Messages in its queue that no other queue has.
    pub queued: usize,
    /// Published messages in its queue, which other queues may have too.
    pub published: usize,
    /// State of compression.
    pub deflate: usize,
    /// An HTTP request that waits for the application's answer, or gets it piece by piece.
    pub requests: usize,
    /// Its subscriptions and timers, and the application's state for it.
    ///
    /// A topic that others are subscribed to counts as if it were alone. Connections with nothing else are listed from 8 KiB on.
    pub kept: usize,
}

impl Weight {
    /// The sum in bytes.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.heads
            + self.partial
            + self.sending
            + self.queued
            + self.published
            + self.deflate
            + self.requests
            + self.kept
    }
}
