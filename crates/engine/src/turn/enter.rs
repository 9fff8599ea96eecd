//! Panics of the application, and of buffers without memory: each ends its own connection, and the loop goes on.
//!
//! One catch lies around each event of a connection, so that a message costs nothing. The connection is outside of it, and
//! survives to be closed. Nothing of it is used again but its end: a close frame, a status before the WebSocket is open, or a
//! reset if the panic came amid a large message.

use crate::handler::Handler;
use crate::ids::ConnId;
use crate::link::phase::Phase;
use crate::link::state::Link;
use crate::turn::core::Core;
use crate::turn::panics::Payload;
use crate::turn::reactor::Reactor;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use tautline_conn::closed::Cause;
use tautline_io::{Driver, Token};
use tautline_tls::Engine;

impl<E: Engine, H: Handler> Reactor<E, H> {
    /// Handles an event of a connection, if the connection exists, and sends the resulting output.
    #[inline]
    pub(crate) fn visit(
        &mut self,
        driver: &mut dyn Driver,
        token: Token,
        event: impl FnOnce(&mut Core<E, H>, &mut dyn Driver, &mut Link<E::Session, H::State>),
    ) {
        if let Some(link) = self.core.links.take(token) {
            self.visit_link(driver, link, event);
        }
    }

    /// Handles an event of a connection, sends the resulting output, and puts the connection into its slot or releases it.
    #[inline]
    pub(crate) fn visit_link(
        &mut self,
        driver: &mut dyn Driver,
        mut link: Box<Link<E::Session, H::State>>,
        event: impl FnOnce(&mut Core<E, H>, &mut dyn Driver, &mut Link<E::Session, H::State>),
    ) {
        self.core.shared.visit.begin();
        let handled = catch_unwind(AssertUnwindSafe(|| {
            event(&mut self.core, driver, &mut link);
            self.core.settle(driver, &mut link);
        }));
        if let Err(panic) = handled {
            self.core.close_panicked(driver, &mut link, panic);
        }
        if let Phase::Gone { reset } = link.phase {
            self.core.release(driver, link, reset);
        } else {
            self.core.shared.charge(&mut link, &mut self.core.access);
            self.core.links.put(link);
        }
    }

    /// Handles an event of a connection like [`visit`](Self::visit), but sends its output with the turn's other output.
    pub(crate) fn visit_corked(
        &mut self,
        driver: &mut dyn Driver,
        token: Token,
        event: impl FnOnce(&mut Core<E, H>, &mut dyn Driver, &mut Link<E::Session, H::State>),
    ) {
        let Some(mut link) = self.core.links.take(token) else { return };
        match catch_unwind(AssertUnwindSafe(|| event(&mut self.core, driver, &mut link))) {
            Ok(()) => {
                self.core.access.count_traffic(&link, &self.core.shared);
                self.core.shared.mark_dirty(&mut link);
                self.core.links.put(link);
            }
            // The panic goes on where visits expect one.
            Err(panic) => self.visit_link(driver, link, |_, _, _| resume_unwind(panic)),
        }
    }
}

impl<E: Engine, H: Handler> Core<E, H> {
    /// Closes a connection whose event panicked: with 1011, or with status 500 before it is open. A message or a body of which a
    /// part has left is cut off by a reset.
    #[cold]
    fn close_panicked(&mut self, driver: &mut dyn Driver, link: &mut Link<E::Session, H::State>, panic: Payload) {
        let id = ConnId { shard: self.shared.shard, token: link.token };
        self.application.on_panic(&mut self.shared, Some(&link.info.peer), format_args!("connection {id}"), panic);
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
            self.application.on_panic(
                &mut self.shared,
                Some(&link.info.peer),
                format_args!("the end of connection {id}"),
                again,
            );
            // A phase that was left before the panic is counted already.
            let before = link.phase.end(Phase::Gone { reset: true });
            if before.is_handshaking() {
                self.admission.end_handshake(link, &before, &self.shared);
            }
            self.shared.counters.open.sub(u64::from(before.is_open()));
            self.shared.counters.carrying.sub(u64::from(before.carries()));
        }
    }
}
