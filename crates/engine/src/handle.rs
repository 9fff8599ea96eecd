//! Handles to single connections, for other threads.

use crate::conn::Conn;
use crate::context::ShardContext;
use crate::core::Core;
use crate::handler::Handler;
use crate::ids::ConnId;
use crate::link::Link;
use crate::message::Outgoing;
use crate::publications::Publication;
use crate::remote::{Command, ShardHandle, ShardHandleError};
use crate::topic::Scope;
use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tautline_io::{Driver, Token};
use tautline_tls::{Engine, Session};
use tautline_ws::CloseCode;

/// A handle to one connection, for other threads. It is as large as a pointer, and cheap to clone.
///
/// All of its methods return at once. What they ask for happens in the shard's next turn, in the order in which it was asked.
/// They return [`Ended`](ShardHandleError::Ended) once the connection has ended.
///
/// ```
/// use std::time::Duration;
/// use tautline_engine::{Conn, Handler, Outgoing};
/// use tautline_ws::Message;
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

/// A call for a connection, in a box for any handler.
pub(crate) type Act<H> = Box<dyn FnOnce(&mut H, &mut Conn<'_, <H as Handler>::State>) + Send>;
/// A call for a shard, in a box for any handler.
pub(crate) type ShardAct<H> = Box<dyn FnOnce(&mut H, &mut ShardContext<'_>) + Send>;

impl ConnHandle {
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

    /// Sends `message` to every subscriber of `topic` on every shard, like [`Conn::publish`].
    ///
    /// # Errors
    /// If the connection has ended, or its shard does not take the command.
    pub fn publish(&self, topic: &str, message: Outgoing<'_>) -> Result<(), ShardHandleError> {
        self.live()?.command(Command::PublishToAll(Publication::to_topic(topic, message)))
    }

    /// Publishes like [`publish`](Self::publish), but not to this connection.
    ///
    /// # Errors
    /// If the connection has ended, or its shard does not take the command.
    pub fn publish_to_others(&self, topic: &str, message: Outgoing<'_>) -> Result<(), ShardHandleError> {
        let except = Some(self.0.id.token);
        self.live()?.command(Command::PublishToAll(Publication { except, ..Publication::to_topic(topic, message) }))
    }

    /// Subscribes the connection to `topic`, unless it has too many subscriptions, like [`Conn::subscribe`].
    ///
    /// # Errors
    /// If the connection has ended, or its shard does not take the command.
    pub fn subscribe(&self, topic: &str) -> Result<(), ShardHandleError> {
        self.set_subscription(Scope::Exact, topic, true)
    }

    /// Subscribes the connection to all topics that begin with `prefix`, like [`Conn::subscribe_prefix`].
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

    /// Closes the connection, like [`Conn::close`].
    ///
    /// # Errors
    /// If the connection has ended, or its shard does not take the command.
    pub fn close(&self, code: CloseCode, reason: &str) -> Result<(), ShardHandleError> {
        self.live()?.close(self.0.id, code, reason)
    }

    /// Closes a client's connection and connects again, like [`Conn::reconnect`].
    ///
    /// # Errors
    /// If the connection has ended, or its shard does not take the command.
    pub fn reconnect(&self) -> Result<(), ShardHandleError> {
        self.live()?.command(Command::Reconnect(self.0.id.token))
    }

    /// Calls `act` with the shard's handler and the connection, on the shard's thread.
    ///
    /// `H` is the type of the handler; name it in the closure's arguments. Many calls cost one wake-up of the shard, and the
    /// output of all of them leaves together. `act` is dropped without a call if the connection ends before.
    ///
    /// # Errors
    /// [`OtherHandler`](ShardHandleError::OtherHandler) if the shard's handler is no `H`. If the connection has ended, or its
    /// shard does not take the command.
    pub fn with_conn<H: Handler>(
        &self,
        act: impl FnOnce(&mut H, &mut Conn<'_, H::State>) + Send + 'static,
    ) -> Result<(), ShardHandleError> {
        let shard = self.live()?;
        shard.check_handler::<H>()?;
        let bytes = size_of_val(&act);
        let act: Act<H> = Box::new(act);
        shard.command(Command::Act { to: self.0.id.token, act: Box::new(act), bytes })
    }

    /// The handle to the shard, if the connection has not ended.
    fn live(&self) -> Result<&ShardHandle, ShardHandleError> {
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

impl ShardHandle {
    /// Calls `act` with the shard's handler, on the shard's thread, in its next turn.
    ///
    /// `H` is the type of the handler; name it in the closure's arguments.
    ///
    /// # Errors
    /// [`OtherHandler`](ShardHandleError::OtherHandler) if the shard's handler is no `H`. If the shard does not take the command.
    pub fn with_handler<H: Handler>(
        &self,
        act: impl FnOnce(&mut H, &mut ShardContext<'_>) + Send + 'static,
    ) -> Result<(), ShardHandleError> {
        self.check_handler::<H>()?;
        let bytes = size_of_val(&act);
        let act: ShardAct<H> = Box::new(act);
        self.command(Command::ShardAct { act: Box::new(act), bytes })
    }

    fn check_handler<H: Handler>(&self) -> Result<(), ShardHandleError> {
        if self.is_for(TypeId::of::<H>()) { Ok(()) } else { Err(ShardHandleError::OtherHandler) }
    }
}

impl<T> Conn<'_, T> {
    /// A handle to this connection, for other threads. The first call allocates it.
    #[must_use]
    pub fn handle(&mut self) -> ConnHandle {
        let id = self.id();
        // A connection that has ended must not remember a handle that nobody marks as ended.
        let ended = !self.transport.phase.is_open();
        let new = || ConnHandle(Arc::new(Inner { shard: self.shared.remote.clone(), id, ended: ended.into() }));
        if ended {
            return new();
        }
        self.cold.get_or_insert_default().more().handle.get_or_insert_with(new).clone()
    }
}

impl<E: Engine, H: Handler> Core<E, H> {
    /// Acts on an open connection for another thread. Its output leaves with the turn's other output.
    pub(crate) fn on_conn(
        &mut self,
        driver: &mut dyn Driver,
        token: Token,
        act: impl FnOnce(&mut H, &mut Conn<'_, H::State>),
    ) {
        self.visit_corked(driver, token, |core, driver, link: &mut Link<E::Session, H::State>| {
            if link.phase.is_open() {
                link.lend(Some(driver), &mut core.shared, |conn| act(&mut core.handler, conn));
            }
        });
    }

    /// Calls a closure of another thread with a connection.
    pub(crate) fn act(&mut self, driver: &mut dyn Driver, token: Token, act: Box<dyn Any + Send>)
    where
        E::Session: Session,
    {
        // The handle has compared the types of the handlers.
        if let Ok(act) = act.downcast::<Act<H>>() {
            self.on_conn(driver, token, *act);
        }
    }

    /// Calls a closure of another thread.
    pub(crate) fn shard_act(&mut self, act: Box<dyn Any + Send>) {
        if let Ok(act) = act.downcast::<ShardAct<H>>() {
            self.guard(format_args!("a call from another thread"), |core| {
                act(&mut core.handler, &mut ShardContext { shared: &mut core.shared });
            });
        }
    }
}
