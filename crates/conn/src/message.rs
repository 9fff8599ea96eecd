//! Outgoing messages, and the result of sending one.

use crate::config::SlowConsumer;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tautline_ws::{Kind, Message, Prepared};

/// A message to send.
///
/// ```
/// # mod tautline { pub use tautline_conn::message::Outgoing; }
/// use tautline::Outgoing;
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
    /// Under [`KeepLatest`](SlowConsumer::KeepLatest), the message replaces a waiting one with the same key.
    pub key: Option<u64>,
    /// The policy for this message and slow readers, instead of `Config::slow_consumer`.
    pub policy: Option<SlowConsumer>,
    /// The message's frame, if it was made already.
    prepared: Option<&'a Prepared>,
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
    /// # mod tautline { pub use {tautline_conn::message::Outgoing, tautline_ws::{Kind, Prepared}}; }
    /// use tautline::{Kind, Outgoing, Prepared};
    ///
    /// let news = Prepared::new(Kind::Text, b"rates rise");
    /// assert_eq!(Outgoing::prepared(&news).payload, b"rates rise");
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
    /// # mod tautline { pub use {tautline_conn::config::SlowConsumer, tautline_conn::message::Outgoing}; }
    /// use tautline::{Outgoing, SlowConsumer};
    ///
    /// fn price(text: &str) -> Outgoing<'_> {
    ///     Outgoing::text(text).with_key(7).with_policy(SlowConsumer::KeepLatest(64 << 10))
    /// }
    /// ```
    #[must_use]
    pub const fn with_policy(self, policy: SlowConsumer) -> Self {
        Self { policy: Some(policy), ..self }
    }
}

impl<'a> Outgoing<'a> {
    /// The message's frame, if it was made already.
    #[must_use]
    pub fn made(&self) -> Option<&'a Prepared> {
        // Somebody may have changed the payload.
        let is_same = |made: &&Prepared| made.kind() == self.kind && std::ptr::eq(made.payload(), self.payload);
        self.prepared.filter(is_same)
    }
}

impl<'a> From<&'a Prepared> for Outgoing<'a> {
    fn from(message: &'a Prepared) -> Self {
        Self::prepared(message)
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
/// # mod tautline { pub use tautline_conn::message::Delivery; }
/// use tautline::Delivery;
///
/// /// Whether the reader keeps up.
/// fn keeps_up(delivery: Delivery) -> bool {
///     match delivery {
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

/// The bytes of a shard's published messages that any queue or thread still has. Clones share the number.
#[derive(Clone, Debug, Default)]
pub struct Published(Arc<AtomicUsize>);

impl Published {
    /// The number of bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed) as u64
    }
}

/// The bytes of one published message in its shard's account, until the last clone of the message is gone.
#[derive(Debug)]
struct Charge {
    bytes: usize,
    published: Published,
    /// The bytes of a payload that several published messages share. They count once.
    _payload: Option<Arc<Self>>,
}

impl Charge {
    fn new(bytes: usize, published: &Published, payload: Option<Arc<Self>>) -> Self {
        published.0.fetch_add(bytes, Ordering::Relaxed);
        Self { bytes, published: published.clone(), _payload: payload }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.published.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A message encoded once for many connections.
#[derive(Clone, Debug)]
pub struct Encoded {
    _charge: Arc<Charge>,
    /// Its frame.
    pub message: Prepared,
    /// Whether it may be compressed.
    pub compress: bool,
    /// A later message with this key replaces it, under [`KeepLatest`](SlowConsumer::KeepLatest).
    pub key: Option<u64>,
    /// Its own policy for slow readers.
    pub policy: Option<SlowConsumer>,
}

/// Memory of a published message beside its payload.
const OVERHEAD: usize = 320;

impl Encoded {
    /// Encodes a message of the shard that counts its bytes in `published`.
    #[must_use]
    pub fn new(message: Outgoing<'_>, published: &Published) -> Self {
        let len = message.payload.len();
        let (charge, prepared) = match message.made().cloned() {
            Some(made) => {
                let payload = made.common(|| Charge::new(len, published, None));
                (Charge::new(OVERHEAD, published, Some(payload)), made)
            }
            None => (Charge::new(len + OVERHEAD, published, None), Prepared::new(message.kind, message.payload)),
        };
        Self {
            _charge: Arc::new(charge),
            message: prepared,
            compress: message.compress,
            key: message.key,
            policy: message.policy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Encoded, OVERHEAD, Outgoing, Published};
    use tautline_ws::{Kind, Prepared};

    #[test]
    fn the_bytes_of_a_prepared_message_count_once() {
        let (one, other) = (Published::default(), Published::default());
        let page = Prepared::new(Kind::Text, &[b'x'; 10_000]);
        let mut sent: Vec<_> = (0..200).map(|_| Encoded::new(Outgoing::prepared(&page), &one)).collect();
        sent.push(Encoded::new(Outgoing::prepared(&page), &other));
        assert_eq!(one.bytes(), 10_000 + 200 * OVERHEAD as u64);
        assert_eq!(other.bytes(), OVERHEAD as u64);
        drop(page);
        // They count for as long as one of the messages is left.
        sent.drain(..200);
        assert_eq!((one.bytes(), other.bytes()), (10_000, OVERHEAD as u64));
        drop(sent);
        assert_eq!((one.bytes(), other.bytes()), (0, 0));
        let _plain = [Encoded::new(Outgoing::text("abc"), &one), Encoded::new(Outgoing::text("abc"), &one)];
        assert_eq!(one.bytes(), 2 * (3 + OVERHEAD as u64));
    }
}
