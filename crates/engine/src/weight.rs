use crate::ids::ConnId;
use tautline_io::Address;

/// A connection that holds memory beside its own state, in bytes by use. [`ShardHandle::heaviest`](crate::ShardHandle::heaviest)
/// lists them.
///
/// ```
/// use std::time::Duration;
/// use tautline_engine::{ShardHandle, ShardHandleError};
///
/// fn report(shard: &ShardHandle) -> Result<(), ShardHandleError> {
///     for heavy in shard.heaviest(10, Duration::from_secs(1))? {
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
    /// `handshake`, `http`, `open` or `closing`.
    pub state: &'static str,
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
}

impl Weight {
    /// The sum in bytes.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.heads + self.partial + self.sending + self.queued + self.published + self.deflate
    }
}
