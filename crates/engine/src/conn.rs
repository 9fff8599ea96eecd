use crate::link::Rare;
use crate::message::{Delivery, Outgoing, Publication};
use crate::outbound::{Outbound, Way};
use crate::shared::Shared;
use std::fmt;
use tautline_io::{Address, Token};
use tautline_ws::{CloseCode, Kind, Prepared};

/// Names a connection for as long as its server runs: in maps of the application, across shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId {
    /// The shard that owns it.
    pub shard: u32,
    /// Its token within the shard.
    pub token: Token,
}

impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.shard, self.token.index, self.token.generation)
    }
}

/// What of a connection stays the same while it is open.
pub(crate) struct Info {
    pub(crate) peer: Address,
    pub(crate) dial: Option<DialId>,
}

/// Names an outgoing connection across its reconnections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DialId(pub u32);

/// One connection, lent to the handler for one call.
pub struct Conn<'a, T> {
    pub(crate) token: Token,
    pub(crate) out: &'a mut Outbound,
    pub(crate) way: &'a mut dyn Way,
    pub(crate) rare: &'a mut Option<Box<Rare>>,
    pub(crate) info: &'a Info,
    pub(crate) state: &'a mut T,
    pub(crate) paused: &'a mut bool,
    pub(crate) shared: &'a mut Shared,
}

impl<T> Conn<'_, T> {
    /// Its name.
    #[must_use]
    pub const fn id(&self) -> ConnId {
        ConnId { shard: self.shared.shard, token: self.token }
    }

    /// The peer's address.
    #[must_use]
    pub const fn peer(&self) -> &Address {
        &self.info.peer
    }

    /// The subprotocol that both sides speak.
    #[must_use]
    pub fn subprotocol(&self) -> Option<&str> {
        self.rare.as_ref()?.subprotocol.as_deref()
    }

    /// The outgoing connection this belongs to; `None` on a server.
    #[must_use]
    pub const fn dial(&self) -> Option<DialId> {
        self.info.dial
    }

    /// What TLS agreed on. Made anew at each call, so that idle connections need not keep it.
    #[must_use]
    pub fn tls(&self) -> tautline_tls::Facts {
        self.way.facts()
    }

    /// What the application keeps for this connection.
    pub const fn state(&mut self) -> &mut T {
        self.state
    }

    /// Sends a text message.
    pub fn text(&mut self, text: &str) -> Delivery {
        self.send(Outgoing::text(text))
    }

    /// Sends a binary message.
    pub fn binary(&mut self, payload: &[u8]) -> Delivery {
        self.send(Outgoing::binary(payload))
    }

    /// Sends a message. Where the peer is slow, [`SlowConsumer`](crate::SlowConsumer) says what becomes of it.
    pub fn send(&mut self, message: Outgoing<'_>) -> Delivery {
        self.out.send(message, &mut *self.way, self.shared)
    }

    /// Sends a piece of a message whose length is not known yet. `last` ends it; until then other messages to this
    /// connection, published ones too, are [`Delivery::Dropped`]. So is the piece itself where the peer is slow: nothing of
    /// it was taken, and it can be sent again after [`on_drain`](crate::Handler::on_drain). A piece of another kind than the
    /// message was begun with is dropped too.
    pub fn fragment(&mut self, kind: Kind, payload: &[u8], last: bool) -> Delivery {
        self.out.fragment((kind, payload, last), &mut *self.way, self.shared)
    }

    /// Sends a ping of at most 125 bytes.
    ///
    /// # Errors
    /// Where `payload` is longer.
    pub fn ping(&mut self, payload: &[u8]) -> Result<(), tautline_ws::Error> {
        self.out.ping(payload, self.shared)
    }

    /// Closes behind everything sent so far. What the peer still sends is not delivered any more. A code that must not be
    /// on the wire (1005, 1006, 1015 and such) closes without a code.
    pub fn close(&mut self, code: CloseCode, reason: &str) {
        self.out.close(code, reason);
    }

    /// Bytes that wait to be sent, in all stages.
    #[must_use]
    pub const fn buffered(&self) -> usize {
        self.out.buffered()
    }

    /// Stops (`true`) or resumes reading from the peer, who is slowed down by TCP. What shares a TLS record with the current
    /// message is still delivered. A paused connection is pinged, but neither heard nor idle.
    pub const fn pause(&mut self, pause: bool) {
        *self.paused = pause;
    }

    /// From now on this connection gets what is published to `topic`. False where it has
    /// [`max_subscriptions`](crate::Limits::max_subscriptions) already.
    pub fn subscribe(&mut self, topic: &str) -> bool {
        let subscriptions = self.rare.as_ref().map_or(&[][..], |rare| &rare.subscriptions);
        if subscriptions.len() >= self.shared.config.limits.max_subscriptions {
            return subscriptions.iter().any(|t| &**t == topic);
        }
        if self.shared.topics.subscribe(topic, self.token) {
            self.rare.get_or_insert_default().subscriptions.push(topic.into());
        }
        true
    }

    /// Undoes [`subscribe`](Self::subscribe).
    pub fn unsubscribe(&mut self, topic: &str) {
        if self.shared.topics.unsubscribe(topic, self.token)
            && let Some(rare) = self.rare.as_mut()
        {
            rare.subscriptions.retain(|t| &**t != topic);
        }
    }

    /// Sends `message` to every subscriber of `topic` on every shard, this connection included where it is one. Framed
    /// once, and compressed once for each size of window that subscribers allow; delivered when the current call of the
    /// handler returns.
    pub fn publish(&mut self, topic: &str, message: Outgoing<'_>) {
        self.shared.publish(topic, message);
    }
}

impl Shared {
    pub(crate) fn publish(&mut self, topic: &str, message: Outgoing<'_>) {
        let publication = Publication::new(topic, message);
        for other in &self.others {
            // A full queue is another shard that does not keep up; its subscribers miss this message.
            if other.publish_encoded(publication.clone()).is_err() {
                self.counters.messages_dropped += 1;
            }
        }
        self.publications.push(publication);
    }
}

impl Publication {
    pub(crate) fn new(topic: &str, message: Outgoing<'_>) -> Self {
        Self {
            topic: topic.into(),
            message: Prepared::new(message.kind, message.payload),
            compress: message.compress,
            key: message.key,
        }
    }
}
