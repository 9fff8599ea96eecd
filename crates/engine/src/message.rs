//! Outgoing messages, and the result of sending one.

use crate::config::SlowConsumer;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tautline_ws::{Kind, Message, Prepared};

/// A message to send.
///
/// ```
/// use tautline_engine::Outgoing;
///
/// // Under `SlowConsumer::KeepLatest` only the latest price with this key waits for a slow reader.
/// let price = Outgoing::text("EURUSD 1.0842").with_key(7);
/// let picture = Outgoing::binary(&[0x89, b'P', b'N', b'G']).uncompressed();
/// assert!(price.compress && !picture.compress);
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Outgoing<'a> {
    /// Text or binary.
    pub kind: Kind,
    /// The message's bytes; UTF-8 if `kind` is text.
    pub payload: &'a [u8],
    /// Whether to compress the message if permessage-deflate was negotiated.
    pub compress: bool,
    /// Under [`KeepLatest`](crate::SlowConsumer::KeepLatest), the message replaces a waiting one with the same key.
    pub key: Option<u64>,
    /// The policy for this message and slow readers, instead of [`Config::slow_consumer`](crate::Config).
    pub policy: Option<SlowConsumer>,
    /// The message's frame, if it was made already.
    pub(crate) prepared: Option<&'a Prepared>,
}

impl<'a> Outgoing<'a> {
    /// A text message.
    #[must_use]
    pub const fn text(text: &'a str) -> Self {
        Self { kind: Kind::Text, payload: text.as_bytes(), compress: true, key: None, policy: None, prepared: None }
    }

    /// A binary message.
    #[must_use]
    pub const fn binary(payload: &'a [u8]) -> Self {
        Self { kind: Kind::Binary, payload, compress: true, key: None, policy: None, prepared: None }
    }

    /// A message that is framed already. Shards to which it is published do not frame and compress it again, each for itself.
    ///
    /// ```
    /// use tautline_engine::{ConnList, Outgoing, ShardContext};
    /// use tautline_ws::Prepared;
    ///
    /// fn send(shard: &mut ShardContext<'_>, members: &ConnList, news: &Prepared) {
    ///     shard.send_to_list(members, Outgoing::prepared(news));
    /// }
    /// ```
    #[must_use]
    pub fn prepared(message: &'a Prepared) -> Self {
        Self { kind: message.kind(), prepared: Some(message), ..Self::binary(message.payload()) }
    }

    /// Returns this message, marked to be sent uncompressed.
    #[must_use]
    pub const fn uncompressed(self) -> Self {
        Self { compress: false, ..self }
    }

    /// Returns this message with a key, so that it can replace a waiting message with the same key.
    #[must_use]
    pub const fn with_key(self, key: u64) -> Self {
        Self { key: Some(key), ..self }
    }

    /// Returns this message with a policy of its own for slow readers, for example that of its topic.
    ///
    /// The limit of the policy counts all bytes that wait for a connection. Messages that wait under another policy which does
    /// not drop older ones stay: a price does not push out an order.
    ///
    /// ```
    /// use tautline_engine::{Conn, Outgoing, SlowConsumer};
    ///
    /// fn price(conn: &mut Conn<'_, ()>, text: &str) {
    ///     let price = Outgoing::text(text).with_key(7).with_policy(SlowConsumer::KeepLatest(64 << 10));
    ///     conn.publish("prices", price);
    /// }
    /// ```
    #[must_use]
    pub const fn with_policy(self, policy: SlowConsumer) -> Self {
        Self { policy: Some(policy), ..self }
    }
}

impl Outgoing<'_> {
    /// The message's frame.
    fn prepare(&self) -> Prepared {
        // Somebody may have changed the payload.
        let is_same = |made: &&Prepared| made.kind() == self.kind && std::ptr::eq(made.payload(), self.payload);
        self.prepared.filter(is_same).cloned().unwrap_or_else(|| Prepared::new(self.kind, self.payload))
    }
}

impl<'a> From<&Message<'a>> for Outgoing<'a> {
    /// Takes kind and payload of a received message, to echo or relay it.
    fn from(message: &Message<'a>) -> Self {
        Self { kind: message.kind(), payload: message.data(), compress: true, key: None, policy: None, prepared: None }
    }
}

/// The result of sending a message.
///
/// ```
/// use tautline_engine::{Conn, Delivery};
///
/// /// Whether the reader keeps up.
/// fn feed(conn: &mut Conn<'_, ()>, price: &str) -> bool {
///     match conn.text(price) {
///         Delivery::Sent => true,
///         Delivery::Queued(bytes) => bytes < 64 << 10,
///         _ => false,
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivery {
    /// The message leaves in this turn.
    Sent,
    /// The message waits in the queue. The number is all bytes of the connection that wait.
    Queued(usize),
    /// The message was dropped, by the slow-consumer policy or because a streamed message must end first.
    Dropped,
    /// The message was discarded: the connection is closing or closed.
    Closed,
}

/// The hosts that a published message goes to.
///
/// ```
/// use tautline_engine::{Conn, Outgoing, Reach, Withheld};
///
/// fn publish(conn: &mut Conn<'_, ()>, news: &str) {
///     if let Reach::ThisHost(Withheld::Away | Withheld::Full) = conn.publish("news", Outgoing::text(news)) {
///         conn.text("other hosts miss this");
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Every host with subscribers: the broker takes it.
    AllHosts,
    /// This host only.
    ThisHost(Withheld),
}

/// The reason why a message stays on its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Withheld {
    /// There is no broker, or the message is not for a topic.
    #[default]
    NoBroker,
    /// The broker is away. It will be connected again.
    Away,
    /// Too many messages wait for the broker.
    Full,
}

/// The bytes of a shard's published messages that any queue or thread still has. Clones share the number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Published(Arc<AtomicUsize>);

impl Published {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed) as u64
    }
}

/// The bytes of one published message in its shard's account, until the last clone of the message is gone.
#[derive(Debug)]
struct Charge {
    bytes: usize,
    published: Published,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.published.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A message encoded once for many connections.
#[derive(Clone, Debug)]
pub(crate) struct Encoded {
    _charge: Arc<Charge>,
    pub(crate) message: Prepared,
    pub(crate) compress: bool,
    pub(crate) key: Option<u64>,
    pub(crate) policy: Option<SlowConsumer>,
}

/// Memory of a published message beside its payload.
const OVERHEAD: usize = 512;

impl Encoded {
    pub(crate) fn new(message: Outgoing<'_>, published: &Published) -> Self {
        let bytes = message.payload.len() + OVERHEAD;
        published.0.fetch_add(bytes, Ordering::Relaxed);
        Self {
            _charge: Arc::new(Charge { bytes, published: published.clone() }),
            message: message.prepare(),
            compress: message.compress,
            key: message.key,
            policy: message.policy,
        }
    }
}
