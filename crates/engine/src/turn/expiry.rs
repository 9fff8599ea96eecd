//! Deadlines of connections, dials and the shard, when a turn finds them passed.

use crate::close::draining::Draining;
use crate::dial::dialing::DialDue;
use crate::handler::Handler;
use crate::link::phase::Phase;
use crate::turn::core::Core;
use crate::turn::reactor::Reactor;
use crate::turn::timer::Tick;
use std::time::Duration;
use tautline_conn::closed::Cause;
use tautline_io::Driver;
use tautline_tls::Engine;

impl<E: Engine, H: Handler> Reactor<E, H> {
    /// Handles every deadline of a peer that has passed.
    pub(crate) fn expire_links(&mut self, driver: &mut dyn Driver) {
        let mut due = std::mem::take(&mut self.due);
        self.core.wheel.advance(self.core.shared.now, &mut due);
        for token in due.drain(..) {
            // An entry is stale if the link has a later one.
            if self.core.links.get(token).is_some_and(|link| link.clock.scheduled <= self.core.shared.now) {
                self.visit(driver, token, Core::miss_deadline);
            }
        }
        self.due = due;
    }

    /// Handles what else is due.
    pub(crate) fn expire(&mut self, driver: &mut dyn Driver) {
        let now = self.core.shared.now;
        if self.core.shared.peer_log.due().is_some_and(|at| at <= now) {
            self.core.shared.peer_log.report();
        }
        let Core { dialer, engine, application, links, shared, .. } = &mut self.core;
        while dialer.due() <= now
            && let Some(due) = dialer.next_due(driver, shared)
        {
            match due {
                DialDue::Attempt(id) => dialer.attempt(driver, id, engine, application, shared),
                DialDue::Failed(id, error) => dialer.fail(id, error, application, links, shared),
            }
        }
        if self.core.shared.drain_end.is_some_and(|end| end <= now) && self.core.shared.counters.connections.get() > 0 {
            let connections = self.core.shared.counters.connections.get();
            log::warn!("{connections} connections did not close in time and are aborted");
            for index in 0..self.core.links.len() {
                let Some(link) = self.core.links.at(index) else { continue };
                self.visit(driver, link.token, |core, _, link| core.end(link, Phase::GONE, Cause::Stopped));
            }
        }
    }

    /// The driver's timeout: until the next timer, at most `longest`; zero if output waits already.
    pub(crate) fn wait(&self, longest: Option<Duration>) -> Option<Duration> {
        let waits_here = !self.core.shared.dirty.is_empty() || self.core.shared.has_messages() || self.commands_left;
        if waits_here || self.core.openings.are_waiting() || !self.core.shared.resting.is_empty() {
            return Some(Duration::ZERO);
        }
        // Every turn asks, so nothing is collected first.
        let Core { wheel, dialer, admission, shared, .. } = &self.core;
        // Commands that were left are handled before the wait, but limits are kept behind it.
        if admission.due || shared.account.has_changed() {
            return Some(Duration::ZERO);
        }
        let due = wheel.due().min(shared.timers.due()).min(admission.look_at).min(dialer.due());
        let due = due.min(self.draining.as_ref().map_or(Tick::MAX, Draining::due));
        let due = due.min(shared.drain_end.unwrap_or(Tick::MAX)).min(shared.peer_log.due().unwrap_or(Tick::MAX));
        let timer = (due != Tick::MAX).then(|| Duration::from_millis(due.saturating_sub(self.core.shared.now)));
        let stamps = self.core.shared.sends.as_ref().and_then(|sends| sends.wait());
        let longest = stamps.into_iter().chain(longest).min();
        match (timer, longest) {
            (Some(timer), Some(longest)) => Some(timer.min(longest)),
            (timer, longest) => timer.or(longest),
        }
    }
}
