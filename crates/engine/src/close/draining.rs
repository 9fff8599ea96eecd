//! Drains: a shard closes its connections, a bounded number in each turn.

use crate::close::restart::Restart;
use crate::close::schedule::Schedule;
use crate::handler::Handler;
use crate::link::phase::Phase;
use crate::turn::reactor::{Draining, Reactor};
use crate::turn::slot::Slot;
use std::time::Duration;
use tautline_conn::closed::Cause;
use tautline_conn::tick::millis;
use tautline_io::Driver;
use tautline_tls::Engine;
use tautline_ws::CloseCode;

/// Connections that a drain closes in one turn: some milliseconds of work.
const DRAINED_AT_ONCE: usize = 512;

impl<E: Engine, H: Handler> Reactor<E, H> {
    /// Stops accepting, and begins to close or end every connection.
    pub(crate) fn drain(&mut self, driver: &mut dyn Driver, code: CloseCode, reason: &str, deadline: Duration) {
        let draining = Draining { code, reason: reason.to_owned(), next: 0, schedule: None };
        self.begin_drain(driver, draining, deadline);
    }

    /// Drains with 1012. Each client learns when it is to come back.
    pub(crate) fn drain_for_restart(&mut self, driver: &mut dyn Driver, restart: &Restart, deadline: Duration) {
        let (count, pace) = (self.core.shared.counters.open.get(), self.core.openings.pace.returns());
        let schedule = Schedule::new(restart, (self.core.shared.now, deadline), count, pace);
        if count > 0 {
            let returning = schedule.returning();
            log::info!("{count} WebSockets are closed for a restart; clients return within {returning:?}");
        }
        let (code, reason) = (CloseCode::SERVICE_RESTART, restart.reason.clone());
        self.begin_drain(driver, Draining { code, reason, next: 0, schedule: Some(schedule) }, deadline);
    }

    pub(crate) fn begin_drain(&mut self, driver: &mut dyn Driver, draining: Draining, deadline: Duration) {
        driver.stop_listening();
        self.core.shared.remote.begin_drain();
        self.core.drain_end = Some(self.core.shared.now + millis(deadline));
        self.cancel_dials(driver);
        self.draining = Some(draining);
        self.go_on_draining(driver);
    }

    /// Closes or ends the next connections of a drain: a bounded number, so that those after them are still served.
    pub(crate) fn go_on_draining(&mut self, driver: &mut dyn Driver) {
        let Some(mut draining) = self.draining.take() else { return };
        let end = self.core.slots.len().min(draining.next + DRAINED_AT_ONCE);
        while draining.next < end {
            if let Slot::Link(link) = &self.core.slots[draining.next] {
                let Draining { code, reason, schedule, .. } = &mut draining;
                let (token, now) = (link.token, self.core.shared.now);
                let told = match schedule {
                    Some(schedule) if matches!(link.phase, Phase::Open) => {
                        if now < schedule.next_at() {
                            break;
                        }
                        Some(format!("{} {reason}", schedule.close(now)))
                    }
                    _ => None,
                };
                let reason = told.as_deref().unwrap_or(reason);
                self.visit(driver, token, |core, driver, link| core.drain_link(driver, link, *code, reason));
            }
            draining.next += 1;
        }
        if draining.next < self.core.slots.len() {
            self.draining = Some(draining);
        }
    }

    pub(crate) fn abort_all(&mut self, driver: &mut dyn Driver) {
        log::warn!("{} connections did not close in time and are aborted", self.core.shared.counters.connections.get());
        for index in 0..self.core.slots.len() {
            let Slot::Link(link) = &self.core.slots[index] else { continue };
            self.visit(driver, link.token, |core, _, link| core.end(link, Phase::GONE, Cause::Stopped));
        }
    }
}
