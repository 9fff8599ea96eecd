//! Drains: a shard closes its connections, a bounded number in each turn.

use crate::close::draining::Draining;
use crate::handler::Handler;
use crate::link::phase::Phase;
use crate::turn::core::Core;
use crate::turn::reactor::Reactor;
use std::time::Duration;
use tautline_conn::closed::{Cause, ConnectError};
use tautline_conn::tick::millis;
use tautline_io::Driver;
use tautline_tls::Engine;

/// Connections that a drain closes in one turn: some milliseconds of work.
const DRAINED_AT_ONCE: usize = 512;

impl<E: Engine, H: Handler> Reactor<E, H> {
    /// Stops accepting, and begins to close or end every connection.
    pub(crate) fn begin_drain(&mut self, driver: &mut dyn Driver, draining: Draining, deadline: Duration) {
        driver.stop_listening();
        self.core.shared.remote.begin_drain();
        self.core.shared.drain_end = Some(self.core.shared.now + millis(deadline));
        let Core { dialer, application, links, shared, .. } = &mut self.core;
        for id in dialer.cancel(driver) {
            dialer.fail(id, ConnectError::Ended(Cause::Stopped), application, links, shared);
        }
        self.draining = Some(draining);
        self.go_on_draining(driver);
    }

    /// Closes or ends the next connections of a drain: a bounded number, so that those after them are still served.
    pub(crate) fn go_on_draining(&mut self, driver: &mut dyn Driver) {
        let Some(mut draining) = self.draining.take() else { return };
        let end = self.core.links.len().min(draining.next + DRAINED_AT_ONCE);
        while draining.next < end {
            if let Some(link) = self.core.links.at(draining.next) {
                let (token, is_open) = (link.token, matches!(link.phase, Phase::Open));
                let code = draining.code;
                let Some(reason) = draining.reason_at(self.core.shared.now, is_open) else { break };
                self.visit(driver, token, |core, driver, link| core.drain_link(driver, link, code, &reason));
            }
            draining.next += 1;
        }
        if draining.next < self.core.links.len() {
            self.draining = Some(draining);
        }
    }
}
