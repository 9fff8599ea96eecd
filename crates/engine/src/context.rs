use crate::conn::Conn;
use crate::ids::ConnId;
use crate::memory::application::ApplicationMemory;
use crate::threads::remote::{ShardHandle, ShardHandleError};
use crate::topics::publications::Publication;
use crate::topics::reach::Reach;
use crate::topics::receipt::Receipt;
use crate::topics::recipients::{ConnList, Recipients};
use crate::turn::shared::Shared;
use tautline_conn::message::Outgoing;
use tautline_ws::CloseCode;

/// A shard, lent to its handler where no connection is concerned.
///
/// ```
/// # mod tautline { pub use {tautline_engine::{Conn, Handler, Outgoing, ShardContext}, tautline_ws::Message}; }
/// use std::time::Duration;
/// use tautline::{Conn, Handler, Message, Outgoing, ShardContext};
///
/// /// Tells all subscribers the time, once a second.
/// struct Clock;
///
/// impl Handler for Clock {
///     type State = ();
///     fn on_start(&mut self, shard: &mut ShardContext<'_>) {
///         if shard.number() == 0 {
///             shard.set_timer(Duration::from_secs(1), 0);
///         }
///     }
///     fn on_message(&mut self, _: &mut Conn<'_, ()>, _: Message<'_>) {}
///     fn on_shard_timer(&mut self, shard: &mut ShardContext<'_>, id: u64) {
///         shard.publish("clock", Outgoing::text("tick"));
///         shard.set_timer(Duration::from_secs(1), id);
///     }
/// }
/// ```
pub struct ShardContext<'a> {
    pub(crate) shared: &'a mut Shared,
}

impl ShardContext<'_> {
    /// The shard's number among the shards of its server, from 0.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.shared.shard
    }

    /// A handle to this shard, for other threads.
    #[must_use]
    pub fn handle(&self) -> ShardHandle {
        self.shared.remote.clone()
    }

    /// The application's own memory that counts in this shard's part of the [budget](crate::Limits::memory).
    #[must_use]
    pub fn memory(&self) -> ApplicationMemory {
        self.shared.remote.application().clone()
    }

    /// Tells the account what the application has for a connection of this shard, like [`Conn::set_memory`]. It is noted at the
    /// end of the turn, unless the connection has ended.
    pub fn set_memory_of(&mut self, conn: ConnId, own: usize, part: usize) {
        if conn.shard == self.shared.shard {
            self.shared.account.note(conn.token, (own, part));
        }
    }

    /// Whether the [budget](crate::Limits::memory) is exceeded although no connection is heavy enough to be closed. Requests of
    /// peers that take memory should be refused then, as [`Conn::subscribe`] refuses them.
    #[must_use]
    pub const fn is_memory_short(&self) -> bool {
        self.shared.account.refuses_more
    }

    /// Whether so many published messages wait that no further ones should be published before some were delivered. A handler with
    /// more to publish sets a [timer](Self::set_timer) of no time, and goes on in the next turn.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.shared.publications.is_full()
    }

    /// The budget of memory that the shard shares with others, in bytes. `usize::MAX` is no limit.
    #[must_use]
    pub fn memory_budget(&self) -> usize {
        self.shared.budget.bytes()
    }

    /// Sends `message` to every subscriber of `topic` on every shard, like [`Conn::publish`].
    pub fn publish(&mut self, topic: &str, message: Outgoing<'_>) -> Reach {
        self.shared.publish(Publication::to_topic(topic, message, &self.shared.published))
    }

    /// Sends `message`, and calls `done` with the counts of its deliveries, like [`Conn::publish_counted`].
    pub fn publish_counted<'r>(
        &mut self,
        to: impl Into<Recipients<'r>>,
        message: Outgoing<'_>,
        done: impl FnOnce(Receipt) + Send + 'static,
    ) {
        self.shared.publish(Publication::new(to.into(), message, &self.shared.published).counted(done));
    }

    /// Sends `message` to these connections, like [`Conn::send_to`].
    ///
    /// ```
    /// # mod tautline {
    /// #     pub use tautline_engine::{Closed, Conn, ConnId, Handler, Opening, Outgoing};
    /// #     pub use tautline_ws::{CloseCode, Message};
    /// # }
    /// use std::collections::HashMap;
    /// use tautline::{CloseCode, Conn, ConnId, Handler, Message, Opening, Outgoing};
    ///
    /// /// Players of games for two. Ids stay in the map until `on_close`, so all of them are those of open connections.
    /// #[derive(Default)]
    /// struct Games {
    ///     others: HashMap<ConnId, ConnId>,
    ///     waits: Option<ConnId>,
    /// }
    ///
    /// impl Handler for Games {
    ///     type State = ();
    ///     fn on_open(&mut self, conn: &mut Conn<'_, ()>, _: &Opening<'_>) {
    ///         match self.waits.take() {
    ///             Some(other) => self.others.extend([(conn.id(), other), (other, conn.id())]),
    ///             None => self.waits = Some(conn.id()),
    ///         }
    ///     }
    ///     fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
    ///         let Some(&other) = self.others.get(&conn.id()) else { return };
    ///         conn.shard().send_to(&[other], Outgoing::from(&message));
    ///         if message.text() == Some("checkmate") {
    ///             _ = conn.shard().close(other, CloseCode::NORMAL, "you have lost");
    ///         }
    ///     }
    ///     fn on_close(&mut self, conn: &mut Conn<'_, ()>, _: &tautline::Closed) {
    ///         self.waits.take_if(|waits| *waits == conn.id());
    ///         if let Some(other) = self.others.remove(&conn.id()) {
    ///             self.others.remove(&other);
    ///         }
    ///     }
    /// }
    /// ```
    pub fn send_to(&mut self, conns: &[ConnId], message: Outgoing<'_>) {
        self.shared.send_to(conns, message);
    }

    /// Closes a connection of this server by its id, after the messages that were sent and published to it before. Nothing happens
    /// if it has ended.
    ///
    /// Without a reason nothing is allocated for a connection of this shard.
    ///
    /// # Errors
    /// Never for a connection of this shard. That of another may not take the command.
    pub fn close(&mut self, conn: ConnId, code: CloseCode, reason: &str) -> Result<(), ShardHandleError> {
        self.shared.close(conn, code, reason)
    }

    /// Sends `message` to a connection of this shard, and times its way to the network card like
    /// [`Conn::send_timed`](crate::Conn::send_timed). It leaves after the events of this turn.
    pub fn send_timed(&mut self, conn: ConnId, message: Outgoing<'_>, id: u64) {
        let timed = self.shared.decide(conn, id);
        let publication = Publication::new(Recipients::Conns(&[conn]), message, &self.shared.published);
        self.shared.publish(Publication { timed, ..publication });
    }

    /// Sends `message` to the connections of a list, of which all are on this shard.
    pub fn send_to_list(&mut self, conns: &ConnList, message: Outgoing<'_>) {
        self.shared.publish(Publication::new(Recipients::List(conns), message, &self.shared.published));
    }

    /// The subscriptions on this shard that match `topic`. A connection with several of them counts for each.
    #[must_use]
    pub fn subscribers(&self, topic: &str) -> usize {
        self.shared.topics.count(topic)
    }
}

impl<T> Conn<'_, T> {
    /// The connection's shard: its timers, topics and handle.
    pub const fn shard(&mut self) -> ShardContext<'_> {
        ShardContext { shared: self.outlet.shared }
    }
}

impl std::fmt::Debug for ShardContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ShardContext({})", self.shared.shard)
    }
}
