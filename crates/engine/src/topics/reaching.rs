//! Calls from other threads into a loop: with its handler and a connection, and for its outgoing connections.

use crate::conn::Conn;
use crate::context::ShardContext;
use crate::dial::target::Target;
use crate::handler::Handler;
use crate::ids::{ConnId, DialId};
use crate::link::state::Link;
use crate::threads::command::Command;
use crate::threads::handle::ConnHandle;
use crate::threads::remote::{ShardHandle, ShardHandleError};
use crate::turn::panics::Application;
use crate::turn::reactor::Reactor;
use crate::turn::shared::Shared;
use std::any::{Any, TypeId};
use std::sync::Arc;
use tautline_io::{Driver, Token};
use tautline_tls::Engine;
use tautline_ws::CloseCode;

/// A call for a connection, in a box for any handler.
pub(crate) type Act<H> = Box<dyn FnOnce(&mut H, &mut Conn<'_, <H as Handler>::State>) + Send>;
/// A call for a shard, in a box for any handler.
type ShardAct<H> = Box<dyn FnOnce(&mut H, &mut ShardContext<'_>) + Send>;

impl ConnHandle {
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
        shard.command(Command::Act { to: self.id().token, act: Box::new(act), bytes })
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

    /// Has [`RawEvent::Notified`](crate::RawEvent) follow for a [raw](crate::Raw) connection of this shard, in its next turn.
    /// Nothing happens if it has ended, or is another shard's.
    ///
    /// It is taken also if too many commands wait. The caller bounds its calls: one for a connection until that has been notified.
    ///
    /// # Errors
    /// [`Stopped`](ShardHandleError::Stopped) if the shard does not run any more.
    pub fn notify(&self, conn: ConnId) -> Result<(), ShardHandleError> {
        self.force(Command::Notify(conn))
    }

    fn check_handler<H: Handler>(&self) -> Result<(), ShardHandleError> {
        if self.is_for(TypeId::of::<H>()) { Ok(()) } else { Err(ShardHandleError::OtherHandler) }
    }
}

impl ShardHandle {
    /// Begins to connect to `target`, in the shard's next turn. The identifier is valid at once.
    ///
    /// [`on_open`](crate::Handler::on_open) or [`on_connect_failed`](crate::Handler::on_connect_failed) follows, and
    /// [`on_dial_end`](crate::Handler::on_dial_end) when the shard gives the target up for ever. All targets of a shard are
    /// `wss://`, or all are `ws://`: the shard has one TLS engine, and reports others as failed. An engine that is
    /// [mixed](tautline_tls::mixed) takes both.
    ///
    /// ```
    /// # mod tautline { pub use tautline_engine::{ConnectError, DialId, Reconnect, ShardHandle, Target}; }
    /// use tautline::{ConnectError, DialId, Reconnect, ShardHandle, Target};
    ///
    /// /// Follows one more instrument.
    /// fn follow(shard: &ShardHandle, instrument: &str) -> Result<DialId, Box<dyn std::error::Error>> {
    ///     let target = Target::new(&format!("wss://example.com/{instrument}"))?;
    ///     Ok(shard.connect(target.with_reconnect(Reconnect::default()))?)
    /// }
    /// ```
    ///
    /// # Errors
    /// If the shard does not take the command.
    pub fn connect(&self, target: impl Into<Arc<Target>>) -> Result<DialId, ShardHandleError> {
        let dial = self.dials().begin();
        let begun = self.command(Command::Connect { dial, target: target.into() });
        if begun.is_err() {
            self.dials().end(dial);
        }
        begun.map(|()| dial)
    }

    /// Gives up an outgoing connection for ever: closes it with `code`, or ends its attempts. It does not reconnect.
    ///
    /// [`on_close`](crate::Handler::on_close) or [`on_connect_failed`](crate::Handler::on_connect_failed) follows, and then
    /// [`on_dial_end`](crate::Handler::on_dial_end).
    ///
    /// # Errors
    /// [`Ended`](ShardHandleError::Ended) if it has ended already. If the shard does not take the command.
    pub fn disconnect(&self, dial: DialId, code: CloseCode, reason: &str) -> Result<(), ShardHandleError> {
        if !self.is_running() {
            return Err(ShardHandleError::Stopped);
        }
        if !self.dials().is_live(dial) {
            return Err(ShardHandleError::Ended);
        }
        self.command(Command::Disconnect { dial, code, reason: reason.to_owned() })
    }
}

impl<T> Conn<'_, T> {
    /// A handle to this connection, for other threads. The first call allocates it.
    #[must_use]
    pub fn handle(&mut self) -> ConnHandle {
        let id = self.id();
        // A connection that has ended must not remember a handle that nobody marks as ended.
        let ended = !self.transport.phase.is_open();
        let new = || ConnHandle::new(self.outlet.shared.remote.clone(), id, ended);
        if ended {
            return new();
        }
        self.cold.get_or_insert_default().more().handle.get_or_insert_with(new).clone()
    }
}

impl<E: Engine, H: Handler> Reactor<E, H> {
    /// Acts on an open connection for another thread. Its output leaves with the turn's other output.
    pub(crate) fn on_conn(
        &mut self,
        driver: &mut dyn Driver,
        token: Token,
        act: impl FnOnce(&mut H, &mut Conn<'_, H::State>),
    ) {
        self.visit_corked(driver, token, |core, driver, link: &mut Link<E::Session, H::State>| {
            if link.phase.is_open() {
                link.lend(Some(driver), &mut core.shared, &mut core.links, |conn| {
                    act(&mut core.application.handler, conn)
                });
            }
        });
    }
}

impl<H: Handler> Application<H> {
    /// Calls a closure of another thread.
    pub(crate) fn act(&mut self, shared: &mut Shared, act: Box<dyn Any + Send>) {
        // The handle has compared the types of the handlers.
        if let Ok(act) = act.downcast::<ShardAct<H>>() {
            self.guard_shard(shared, format_args!("a call from another thread"), *act);
        }
    }
}
