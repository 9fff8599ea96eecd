//! Handles to single connections, for other threads.

use crate::ids::ConnId;
use crate::threads::command::Command;
use crate::threads::remote::{ShardHandle, ShardHandleError};
use crate::topics::publications::Publication;
use crate::topics::receipt::Receipt;
use crate::topics::recipients::Recipients;
use crate::topics::topic::Scope;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tautline_conn::message::Outgoing;
use tautline_ws::CloseCode;

/// A handle to one connection, for other threads. It is as large as a pointer, and cheap to clone.
///
/// All of its methods return at once, and take effect in the shard's next turn, in the order of the calls.
/// They return [`Ended`](ShardHandleError::Ended) once the connection has ended.
///
/// ```
/// # mod tautline { pub use {tautline_engine::{Conn, Handler, Outgoing}, tautline_ws::Message}; }
/// use std::time::Duration;
/// use tautline::{Conn, Handler, Message, Outgoing};
///
/// struct Slow {
///     answered: u64,
/// }
///
/// impl Handler for Slow {
///     type State = ();
///     fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
///         let (handle, question) = (conn.handle(), message.data().to_vec());
///         std::thread::spawn(move || {
///             std::thread::sleep(Duration::from_millis(50)); // a database
///             let answered = handle.with_conn(move |slow: &mut Slow, conn| {
///                 slow.answered += 1;
///                 conn.send(Outgoing::binary(&question));
///             });
///             if let Err(error) = answered {
///                 println!("nobody is interested any more: {error}");
///             }
///         });
///     }
/// }
/// ```
#[derive(Clone)]
pub struct ConnHandle(Arc<Inner>);

struct Inner {
    shard: ShardHandle,
    id: ConnId,
    ended: AtomicBool,
}

impl ConnHandle {
    pub(crate) fn new(shard: ShardHandle, id: ConnId, ended: bool) -> Self {
        Self(Arc::new(Inner { shard, id, ended: ended.into() }))
    }

    /// The connection's identifier.
    #[must_use]
    pub fn id(&self) -> ConnId {
        self.0.id
    }

    /// Whether the connection is open. It may end at any moment.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.0.ended.load(Ordering::Acquire) && self.0.shard.is_running()
    }

    /// The handle to the connection's shard.
    #[must_use]
    pub fn shard(&self) -> &ShardHandle {
        &self.0.shard
    }

    /// Sends `message`.
    ///
    /// # Errors
    /// If the connection has ended, or its shard does not take the command.
    pub fn send(&self, message: Outgoing<'_>) -> Result<(), ShardHandleError> {
        self.live()?.send(self.0.id, message)
    }

    /// Sends `message` to every subscriber of `topic` on every shard, like [`Conn::publish`](crate::Conn::publish).
    ///
    /// # Errors
    /// If the connection has ended, or its shard does not take the command.
    pub fn publish(&self, topic: &str, message: Outgoing<'_>) -> Result<(), ShardHandleError> {
        let shard = self.live()?;
        shard.command(Command::PublishToAll(Publication::to_topic(topic, message, shard.published())))
    }

    /// Publishes like [`publish`](Self::publish), but not to this connection.
    ///
    /// # Errors
    /// If the connection has ended, or its shard does not take the command.
    pub fn publish_to_others(&self, topic: &str, message: Outgoing<'_>) -> Result<(), ShardHandleError> {
        let shard = self.live()?;
        let publication = Publication::to_topic(topic, message, shard.published());
        shard.command(Command::PublishToAll(Publication { except: Some(self.0.id.token), ..publication }))
    }

    /// Sends `message`, and calls `done` with the counts of its deliveries, like [`Conn::publish_counted`](crate::Conn::publish_counted).
    ///
    /// # Errors
    /// If the connection has ended, or its shard does not take the command. A command that is not taken calls `done` at once,
    /// with one shard that [missed](Receipt::missed) the message.
    pub fn publish_counted<'r>(
        &self,
        to: impl Into<Recipients<'r>>,
        message: Outgoing<'_>,
        done: impl FnOnce(Receipt) + Send + 'static,
    ) -> Result<(), ShardHandleError> {
        let shard = self.live()?;
        let publication = Publication::new(to.into(), message, shard.published()).counted(done);
        let receipts = publication.receipts.clone();
        shard.command(Command::PublishToAll(publication)).inspect_err(|_| {
            if let Some(receipts) = receipts {
                receipts.miss();
            }
        })
    }

    /// Subscribes the connection to `topic`, unless it has too many subscriptions, like [`Conn::subscribe`](crate::Conn::subscribe).
    ///
    /// # Errors
    /// If the connection has ended, or its shard does not take the command.
    pub fn subscribe(&self, topic: &str) -> Result<(), ShardHandleError> {
        self.set_subscription(Scope::Exact, topic, true)
    }

    /// Subscribes the connection to all topics that begin with `prefix`, like [`Conn::subscribe_prefix`](crate::Conn::subscribe_prefix).
    ///
    /// # Errors
    /// If the connection has ended, or its shard does not take the command.
    pub fn subscribe_prefix(&self, prefix: &str) -> Result<(), ShardHandleError> {
        self.set_subscription(Scope::Prefix, prefix, true)
    }

    /// Ends the subscription to `topic`, if there is one.
    ///
    /// # Errors
    /// If the connection has ended, or its shard does not take the command.
    pub fn unsubscribe(&self, topic: &str) -> Result<(), ShardHandleError> {
        self.set_subscription(Scope::Exact, topic, false)
    }

    /// Ends the subscription to `prefix`, if there is one.
    ///
    /// # Errors
    /// If the connection has ended, or its shard does not take the command.
    pub fn unsubscribe_prefix(&self, prefix: &str) -> Result<(), ShardHandleError> {
        self.set_subscription(Scope::Prefix, prefix, false)
    }

    fn set_subscription(&self, scope: Scope, name: &str, on: bool) -> Result<(), ShardHandleError> {
        self.live()?.command(Command::Subscribe { to: self.0.id.token, scope, name: name.to_owned(), on })
    }

    /// Closes the connection, like [`Conn::close`](crate::Conn::close).
    ///
    /// # Errors
    /// If the connection has ended, or its shard does not take the command.
    pub fn close(&self, code: CloseCode, reason: &str) -> Result<(), ShardHandleError> {
        self.live()?.close(self.0.id, code, reason)
    }

    /// Closes a client's connection and connects again, like [`Conn::reconnect`](crate::Conn::reconnect).
    ///
    /// # Errors
    /// If the connection has ended, or its shard does not take the command.
    pub fn reconnect(&self) -> Result<(), ShardHandleError> {
        self.live()?.command(Command::Reconnect(self.0.id.token))
    }

    /// The handle to the shard, if the connection has not ended.
    pub(crate) fn live(&self) -> Result<&ShardHandle, ShardHandleError> {
        if self.0.ended.load(Ordering::Acquire) { Err(ShardHandleError::Ended) } else { Ok(&self.0.shard) }
    }

    /// The connection has ended.
    pub(crate) fn end(&self) {
        self.0.ended.store(true, Ordering::Release);
    }
}

impl fmt::Debug for ConnHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnHandle({})", self.0.id)
    }
}
