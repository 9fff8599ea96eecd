//! Topics as applications see them: subscriptions of a connection, and messages to many.
//!
//! A prefix is cheap, since a message is looked up once for each length of a prefix in use. A pattern with wildcards inside
//! would need a search through all patterns for each message, so there are none.

use crate::conn::Conn;
use crate::context::ShardContext;
use crate::ids::ConnId;
use crate::link::info::Cold;
use crate::link::state::Link;
use crate::threads::remote::ShardHandleError;
use crate::topics::closings::Closing;
use crate::topics::counted::TopicCounts;
use crate::topics::publications::Publication;
use crate::topics::reach::{Reach, Withheld};
use crate::topics::receipt::Receipt;
use crate::topics::recipients::{Destination, Recipients};
use crate::topics::topic::Scope;
use crate::turn::shared::Shared;
use crate::turn::visit::BYTES;
use std::sync::Arc;
use tautline_conn::message::Outgoing;
use tautline_io::Token;
use tautline_ws::CloseCode;

impl<T> Conn<'_, T> {
    /// Subscribes this connection to messages published to `topic`.
    ///
    /// False if it has [`max_subscriptions`](crate::Limits::max_subscriptions) others already, or if [memory](crate::Limits::memory)
    /// is exceeded and no connection holds much of it.
    pub fn subscribe(&mut self, topic: &str) -> bool {
        self.subscribe_to(Scope::Exact, topic)
    }

    /// Subscribes this connection to all topics whose names begin with `prefix`.
    ///
    /// A message reaches a connection once, also if several of its subscriptions match. False like [`subscribe`](Self::subscribe).
    ///
    /// ```
    /// # fn open(conn: &mut tautline_engine::Conn<'_, ()>) {
    /// conn.subscribe_prefix("prices."); // "prices.EURUSD", but not "prices"
    /// # }
    /// ```
    pub fn subscribe_prefix(&mut self, prefix: &str) -> bool {
        self.subscribe_to(Scope::Prefix, prefix)
    }

    /// Subscribes like [`subscribe`](Self::subscribe), and has the topic on this shard counted in `counts`, in the stead of earlier
    /// ones: its subscribers, and the deliveries of its messages.
    pub fn subscribe_counted(&mut self, topic: &str, counts: &Arc<TopicCounts>) -> bool {
        let is_subscribed = self.subscribe(topic);
        if is_subscribed {
            self.outlet.shared.topics.count_in(topic, counts);
        }
        is_subscribed
    }

    fn subscribe_to(&mut self, scope: Scope, name: &str) -> bool {
        let refusal = if self.subscriptions() >= self.outlet.shared.config.limits.max_subscriptions {
            Some("limits.max_subscriptions")
        } else if self.outlet.shared.account.refuses_more {
            Some(self.outlet.shared.config.limits.name_of_memory())
        } else {
            None
        };
        if let Some(limit) = refusal {
            let names = self.cold.as_ref().and_then(|cold| cold.names(scope));
            return names.is_some_and(|names| names.contains(name)) || self.refuse_subscription(limit);
        }
        if let Some(name) = self.outlet.shared.subscribe(scope, name, self.outlet.token) {
            self.keep(|cold| cold.names_mut(scope).get_or_insert_default().push(name));
        }
        true
    }

    /// The name of a topic that this connection is subscribed to, in the allocation that all subscribers of the shard share.
    ///
    /// Applications that keep names of topics for each connection save memory with it.
    #[must_use]
    pub fn subscribed(&self, topic: &str) -> Option<Arc<str>> {
        self.outlet.shared.topics.name_of(topic, self.outlet.token)
    }

    /// Counts and logs a subscription that is one too many.
    #[cold]
    fn refuse_subscription(&mut self, limit: &str) -> bool {
        self.outlet.shared.counters.subscriptions_refused.add(1);
        let line = format_args!("a subscription was refused ({limit})");
        self.outlet.shared.log_peer(log::Level::Info, &self.info.peer, line);
        false
    }

    fn subscriptions(&self) -> usize {
        let Some(cold) = &self.cold else { return 0 };
        let len = |scope| cold.names(scope).map_or(0, |names| names.list().len());
        len(Scope::Exact) + len(Scope::Prefix)
    }

    /// Ends the subscription to `topic`, if there is one.
    pub fn unsubscribe(&mut self, topic: &str) {
        self.unsubscribe_from(Scope::Exact, topic);
    }

    /// Ends the subscription to `prefix`, if there is one.
    pub fn unsubscribe_prefix(&mut self, prefix: &str) {
        self.unsubscribe_from(Scope::Prefix, prefix);
    }

    fn unsubscribe_from(&mut self, scope: Scope, name: &str) {
        if self.outlet.shared.unsubscribe(scope, name, self.outlet.token) {
            self.keep(|cold| {
                let names = cold.names_mut(scope);
                if names.as_mut().is_none_or(|names| names.remove(name)) {
                    *names = None;
                }
            });
        }
    }

    /// Changes what the connection keeps, and counts its memory.
    pub(crate) fn keep<R>(&mut self, act: impl FnOnce(&mut Cold) -> R) -> R {
        let cold = self.cold.get_or_insert_default();
        let before = cold.kept();
        let result = act(cold);
        self.outlet.shared.account.keep(self.outlet.token, &before, &cold.kept());
        result
    }

    /// Sends `message` to every subscriber of `topic` on every shard, also to this connection if it is one.
    ///
    /// The message is framed once, and compressed once per window size that subscribers negotiated. It leaves after the
    /// handler's call has returned: to many subscribers in batches, one each turn. A connection gets messages in the order in
    /// which they were published. Subscribers count from the begin of the delivery; those that leave before their batch get
    /// nothing.
    ///
    /// With a [`Bridge`](crate::Bridge) it also goes to the subscribers on other hosts, unless the result says why not. The
    /// message's key and policy, and the wish not to compress it, hold for this host.
    pub fn publish(&mut self, topic: &str, message: Outgoing<'_>) -> Reach {
        self.outlet.shared.publish(Publication::to_topic(topic, message, &self.outlet.shared.published))
    }

    /// Sends `message` to every open connection on every shard of this host, also to this one.
    ///
    /// It leaves as [published](Self::publish) messages do, and no connection needs a subscription, which takes memory.
    /// Connections that open during the delivery may get it or not.
    pub fn broadcast(&mut self, message: Outgoing<'_>) {
        self.outlet.shared.publish(Publication::new(Recipients::All, message, &self.outlet.shared.published));
    }

    /// Publishes like [`publish`](Self::publish), but not to this connection.
    pub fn publish_to_others(&mut self, topic: &str, message: Outgoing<'_>) -> Reach {
        let except = Some(self.outlet.token);
        let shared = &mut *self.outlet.shared;
        shared.publish(Publication { except, ..Publication::to_topic(topic, message, &shared.published) })
    }

    /// Sends `message` to the subscribers of a topic, to a list of connections, or to all, like [`publish`](Self::publish).
    /// Calls `done` with the counts once every shard has delivered it.
    ///
    /// The last shard calls it, on its own thread, with nothing lent. To act here then, send yourself a command with
    /// [`handle`](Self::handle).
    pub fn publish_counted<'r>(
        &mut self,
        to: impl Into<Recipients<'r>>,
        message: Outgoing<'_>,
        done: impl FnOnce(Receipt) + Send + 'static,
    ) {
        self.outlet.shared.publish(Publication::new(to.into(), message, &self.outlet.shared.published).counted(done));
    }

    /// Sends `message` to these connections, on whichever shards they are. It is framed once, and delivered like a published
    /// one. Connections that have ended are left out.
    ///
    /// To a single connection of this shard, a message of at most 64 KiB is sent without an allocation, unless published messages
    /// wait: it does not overtake them.
    pub fn send_to(&mut self, conns: &[ConnId], message: Outgoing<'_>) {
        self.outlet.shared.send_to(conns, message);
    }

    /// The subscriptions on this shard that match `topic`. A connection with several of them counts for each.
    ///
    /// `ServerHandle::subscribers` of the crate `tautline` asks all shards.
    #[must_use]
    pub fn subscribers(&self, topic: &str) -> usize {
        self.outlet.shared.topics.count(topic)
    }
}

impl ShardContext<'_> {
    /// Has the topics of this shard that are [counted](Conn::subscribe_counted) counted in others from now on, or not any more.
    pub fn count_anew(&mut self, of: impl FnMut(&str) -> Option<Arc<TopicCounts>>) {
        self.shared.topics.count_anew(of);
    }
}

impl Shared {
    /// Adds a subscriber. Returns the topic's shared name; `None` if it already was one.
    pub(crate) fn subscribe(&mut self, scope: Scope, name: &str, token: Token) -> Option<Arc<str>> {
        let new = self.topics.subscribe(scope, name, token);
        if new.is_some()
            && let Some(bridge) = &self.bridge
            && self.topics.subscribers(scope, name) == 1
        {
            bridge.follow(scope, name);
        }
        new
    }

    /// Removes a subscriber. False if it was none.
    pub(crate) fn unsubscribe(&mut self, scope: Scope, name: &str, token: Token) -> bool {
        let was_one = self.topics.unsubscribe(scope, name, token);
        if was_one
            && let Some(bridge) = &self.bridge
            && self.topics.subscribers(scope, name) == 0
        {
            bridge.unfollow(scope, name);
        }
        was_one
    }

    /// Ends all subscriptions of a connection.
    pub(crate) fn unsubscribe_all<S, T>(&mut self, link: &mut Link<S, T>) {
        let Some(cold) = &mut link.cold else { return };
        let before = cold.kept();
        for scope in [Scope::Exact, Scope::Prefix] {
            let names = if cold.names(scope).is_some() { cold.names_mut(scope).take() } else { None };
            for name in names.iter().flat_map(|names| names.list()) {
                self.unsubscribe(scope, name, link.token);
            }
        }
        self.account.keep(link.token, &before, &cold.kept());
    }

    /// Sends a message to these connections.
    pub(crate) fn send_to(&mut self, conns: &[ConnId], message: Outgoing<'_>) {
        if let &[conn] = conns
            && conn.shard == self.shard
            && self.publications.is_empty()
            && self.letters.takes(message.payload.len())
        {
            self.letters.push(conn.token, message);
        } else {
            self.publish(Publication::new(Recipients::Conns(conns), message, &self.published));
        }
    }

    /// Closes a connection of this shard or another after the messages that were sent to it before.
    pub(crate) fn close(&mut self, conn: ConnId, code: CloseCode, reason: &str) -> Result<(), ShardHandleError> {
        if conn.shard == self.shard {
            let after = self.publications.pushed();
            self.closings.push(Closing { conn: conn.token, code, reason: reason.into(), after });
            return Ok(());
        }
        let other = self.others.iter().find(|other| other.number() == conn.shard);
        other.map_or(Err(ShardHandleError::Ended), |other| other.close(conn, code, reason))
    }

    /// Gives a message to every shard that may have receivers, and to other hosts.
    pub(crate) fn publish(&mut self, mut publication: Publication) -> Reach {
        let reach = match (&self.bridge, &publication.to) {
            (Some(bridge), Destination::Topic(topic)) => bridge.pass(topic, &publication.message.message),
            _ => Reach::ThisHost(Withheld::NoBroker),
        };
        if let Some(receipts) = &publication.receipts {
            receipts.set_reach(reach);
        }
        for other in &self.others {
            let Some(copy) = publication.on(other.number()) else { continue };
            // A full command queue: that shard does not keep up, and its connections miss this message.
            if other.publish_encoded(copy).is_err() {
                self.counters.messages_dropped.add(1);
                publication.miss();
            }
        }
        if let Some(to) = publication.to.on(self.shard) {
            publication.to = to;
            self.publications.push(publication);
            if self.publications.is_full() {
                // The connection that publishes rests until they are delivered.
                self.visit.spend(BYTES);
            }
        }
        reach
    }
}
