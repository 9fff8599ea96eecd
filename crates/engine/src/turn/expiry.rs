//! Deadlines of connections, dials and the shard, when a turn finds them passed.

use crate::handler::Handler;
use crate::turn::core::Core;
use crate::turn::reactor::{Reactor, Slot};
use tautline_io::{Driver, Token};
use tautline_tls::Engine;

impl<E: Engine, H: Handler> Reactor<E, H> {
    /// Handles every deadline of a peer that has passed.
    pub(crate) fn expire_links(&mut self, driver: &mut dyn Driver) {
        let mut due = std::mem::take(&mut self.due);
        self.core.wheel.advance(self.core.shared.now, &mut due);
        for token in due.drain(..) {
            self.expire_link(driver, token);
        }
        self.due = due;
    }

    /// Handles what else is due.
    pub(crate) fn expire(&mut self, driver: &mut dyn Driver) {
        let now = self.core.shared.now;
        if self.core.shared.peer_log.due().is_some_and(|at| at <= now) {
            self.core.shared.peer_log.report();
        }
        self.expire_dials(driver);
        if self.core.drain_end.is_some_and(|end| end <= now) && self.core.shared.counters.connections.get() > 0 {
            self.abort_all(driver);
        }
    }

    pub(crate) fn expire_link(&mut self, driver: &mut dyn Driver, token: Token) {
        let Some(Slot::Link(link)) = self.slots.get(token.index as usize) else { return };
        // An entry is stale if the link has a later one.
        if link.token == token && link.clock.scheduled <= self.core.shared.now {
            self.visit(driver, token, Core::miss_deadline);
        }
    }
}
