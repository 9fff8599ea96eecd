//! Panics of the application, and of buffers without memory: each ends its own connection, and the loop goes on.
//!
//! One catch lies around each event of a connection, so that a message costs nothing. The connection is outside of it, and
//! survives to be closed. Nothing of it is used again but its end: a close frame, a status before the WebSocket is open, or a
//! reset if the panic came amid a large message.

use crate::config::OnPanic;
use crate::handler::Handler;
use crate::ids::ConnId;
use crate::link::phase::Phase;
use crate::link::state::Link;
use crate::turn::core::Core;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use tautline_conn::closed::Cause;
use tautline_io::{Address, Driver, Token};
use tautline_tls::Engine;

/// The payload of a panic.
type Payload = Box<dyn Any + Send>;

impl<E: Engine, H: Handler> Core<E, H> {
    /// Handles an event of a connection, if the connection exists, and sends the resulting output.
    #[inline]
    pub(crate) fn visit(
        &mut self,
        driver: &mut dyn Driver,
        token: Token,
        event: impl FnOnce(&mut Self, &mut dyn Driver, &mut Link<E::Session, H::State>),
    ) {
        if let Some(link) = self.take(token) {
            self.visit_link(driver, link, event);
        }
    }

    /// Handles an event of a connection, sends the resulting output, and puts the connection into its slot or releases it.
    #[inline]
    pub(crate) fn visit_link(
        &mut self,
        driver: &mut dyn Driver,
        mut link: Box<Link<E::Session, H::State>>,
        event: impl FnOnce(&mut Self, &mut dyn Driver, &mut Link<E::Session, H::State>),
    ) {
        self.shared.visit.begin();
        let handled = catch_unwind(AssertUnwindSafe(|| {
            event(self, driver, &mut link);
            self.settle(driver, &mut link);
        }));
        if let Err(panic) = handled {
            self.close_panicked(driver, &mut link, panic);
        }
        if let Phase::Gone { reset } = link.phase {
            self.release(driver, link, reset);
        } else {
            self.charge(&mut link);
            self.put_link(link);
        }
    }

    /// Handles an event of a connection like [`visit`](Self::visit), but sends its output with the turn's other output.
    pub(crate) fn visit_corked(
        &mut self,
        driver: &mut dyn Driver,
        token: Token,
        event: impl FnOnce(&mut Self, &mut dyn Driver, &mut Link<E::Session, H::State>),
    ) {
        let Some(mut link) = self.take(token) else { return };
        match catch_unwind(AssertUnwindSafe(|| event(self, driver, &mut link))) {
            Ok(()) => {
                self.count_traffic(&link);
                self.shared.mark_dirty(&mut link);
                self.put_link(link);
            }
            // The panic goes on where visits expect one.
            Err(panic) => self.visit_link(driver, link, |_, _, _| resume_unwind(panic)),
        }
    }

    /// Closes a connection whose event panicked: with 1011, or with status 500 before it is open. A message or a body of which a
    /// part has left is cut off by a reset.
    #[cold]
    fn close_panicked(&mut self, driver: &mut dyn Driver, link: &mut Link<E::Session, H::State>, panic: Payload) {
        let id = ConnId { shard: self.shared.shard, token: link.token };
        self.on_panic(Some(&link.info.peer), format_args!("connection {id}"), panic);
        let is_cut = std::mem::take(&mut self.shared.amid_pieces);
        let closed = catch_unwind(AssertUnwindSafe(|| {
            if is_cut {
                // The peer would take a close frame, or a status, for more of the message.
                return self.end(link, Phase::Gone { reset: true }, Cause::Panicked);
            }
            self.fail(link, Cause::Panicked);
            self.settle(driver, link);
        }));
        if let Err(again) = closed {
            self.on_panic(Some(&link.info.peer), format_args!("the end of connection {id}"), again);
            // A phase that was left before the panic is counted already.
            let before = link.phase.end(Phase::Gone { reset: true });
            if before.is_handshaking() {
                self.end_handshake(link, &before);
            }
            self.shared.counters.open.sub(u64::from(before.is_open()));
        }
    }

    /// Calls the application where no connection is at stake but `of`. `None` if it panicked.
    pub(crate) fn guard<R>(&mut self, of: fmt::Arguments<'_>, act: impl FnOnce(&mut Self) -> R) -> Option<R> {
        match catch_unwind(AssertUnwindSafe(|| act(self))) {
            Ok(result) => Some(result),
            Err(panic) => {
                self.on_panic(None, of, panic);
                None
            }
        }
    }

    /// Counts and logs a panic, and goes on, unless the policy asks for more.
    fn on_panic(&mut self, peer: Option<&Address>, of: fmt::Arguments<'_>, panic: Payload) {
        if self.is_ending {
            resume_unwind(panic);
        }
        self.shared.counters.panics.add(1);
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("(no text)");
        let policy = self.shared.config.on_panic;
        let then = match policy {
            OnPanic::CloseConnection => "the loop goes on",
            OnPanic::EndLoop => "the loop ends",
            OnPanic::Abort => "the process aborts",
        };
        let line = format_args!("{of}: a panic, mostly of the application: {text:?}; {then}");
        match peer {
            // A peer that knows how can make it panic again and again.
            Some(peer) => self.shared.log_peer(log::Level::Error, peer, line),
            None => log::error!("{line}"),
        }
        match policy {
            OnPanic::CloseConnection => drop_payload(panic),
            OnPanic::EndLoop => {
                self.is_ending = true;
                resume_unwind(panic)
            }
            OnPanic::Abort => {
                // A logger may have a queue, with the line above in it.
                log::logger().flush();
                std::process::abort()
            }
        }
    }
}

/// Drops a payload. One of a type of the application's own could panic again, and is leaked.
fn drop_payload(panic: Payload) {
    if !panic.is::<String>() && !panic.is::<&str>() {
        std::mem::forget(panic);
    }
}
