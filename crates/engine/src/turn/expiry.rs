//! Deadlines of connections, dials and the shard, when a turn finds them passed.

use crate::handler::Handler;
use crate::turn::core::Core;
use crate::turn::reactor::Reactor;
use crate::turn::slot::Slot;
use crate::turn::timer::Tick;
use std::cmp::Reverse;
use std::time::Duration;
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
        let Some(Slot::Link(link)) = self.core.slots.get(token.index as usize) else { return };
        // An entry is stale if the link has a later one.
        if link.token == token && link.clock.scheduled <= self.core.shared.now {
            self.visit(driver, token, Core::miss_deadline);
        }
    }

    /// The driver's timeout: until the next timer, at most `longest`; zero if output waits already.
    pub(crate) fn wait(&self, longest: Option<Duration>) -> Option<Duration> {
        let waits_here = !self.core.shared.dirty.is_empty() || self.core.shared.has_messages() || self.commands_left;
        if waits_here || self.core.openings.are_waiting() || !self.core.resting.is_empty() {
            return Some(Duration::ZERO);
        }
        let due = self.due();
        let timer = (due != Tick::MAX).then(|| Duration::from_millis(due.saturating_sub(self.core.shared.now)));
        let stamps = self.core.shared.sends.as_ref().and_then(|sends| sends.wait());
        let longest = stamps.into_iter().chain(longest).min();
        match (timer, longest) {
            (Some(timer), Some(longest)) => Some(timer.min(longest)),
            (timer, longest) => timer.or(longest),
        }
    }

    /// When the first of all timers is due; [`Tick::MAX`] without one. Every turn asks, so nothing is collected first.
    fn due(&self) -> Tick {
        let mut due = self.core.wheel.due().min(self.core.shared.timers.due()).min(self.core.admission.look_at);
        if let Some(&Reverse((at, _))) = self.core.dial_timers.peek() {
            due = due.min(at);
        }
        if let Some(draining) = &self.draining {
            due = due.min(draining.due());
        }
        if let Some(end) = self.core.drain_end {
            due = due.min(end);
        }
        if let Some(at) = self.core.shared.peer_log.due() {
            due = due.min(at);
        }
        due
    }
}
