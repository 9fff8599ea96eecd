//! Ends of attempts and of outgoing connections: the report to the application, and the next attempt.

use crate::dial::target::{State, Target};
use crate::dial::times::DialStep;
use crate::handler::Handler;
use crate::ids::DialId;
use crate::raw::lent::Others;
use crate::turn::core::Core;
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tautline_conn::closed::ConnectError;
use tautline_conn::tick::millis;
use tautline_tls::Engine;

impl<E: Engine, H: Handler> Core<E, H> {
    /// A new session for a target: without TLS if that is what the engine has for its scheme.
    pub(crate) fn session_to(&self, target: &Target) -> Result<E::Session, tautline_tls::Error> {
        let plain = if target.is_secure() { None } else { self.engine.connect_plain() };
        plain.map_or_else(|| self.engine.connect(&target.tls_name()), Ok)
    }

    /// Lets the application change the target of a further attempt.
    pub(crate) fn report_redial(&mut self, id: DialId) {
        let Some(dial) = self.dials.get(&id).filter(|dial| dial.failures > 0) else { return };
        let mut target = Target::clone(&dial.target);
        // A target that a panic left half changed is not used.
        let changed = self.guard(format_args!("dial {id}"), |core| {
            core.handler.on_redial(id, &mut target);
            target
        });
        if let (Some(target), Some(dial)) = (changed, self.dials.get_mut(&id)) {
            dial.target = Arc::new(target);
        }
    }

    /// A step of an attempt has ended now.
    pub(crate) fn end_step(&mut self, id: DialId, step: DialStep) {
        if let Some(dial) = self.dials.get_mut(&id) {
            dial.steps.end(step, self.clock.elapsed());
        }
    }

    /// Reports a failed attempt to the handler, and schedules the next one if the target wants that.
    pub(crate) fn fail_dial(&mut self, id: DialId, error: ConnectError) {
        let known = self.dials.get(&id).map(|dial| dial.address);
        let is_raw = self.dials.get(&id).is_some_and(|dial| dial.target.raw);
        self.addresses.note(known.flatten(), &error, self.shared.now);
        let known = known.is_some();
        let retry = if error.is_permanent() {
            self.remove_dial(id);
            None
        } else {
            self.try_again(id, error.retry_after(UNIX_EPOCH + self.clock.since_epoch()))
        };
        if is_raw {
            self.guard(format_args!("dial {id}"), |core| {
                let mut others = Others { slots: &mut core.slots, driver: None, shared: &mut core.shared };
                core.handler.on_raw_failed(&mut others, id, &error);
            });
        } else {
            self.guard(format_args!("dial {id}"), |core| core.handler.on_connect_failed(id, &error, retry));
        }
        if known && retry.is_none() {
            self.report_dial_end(id);
        }
    }

    pub(crate) fn remove_dial(&mut self, id: DialId) {
        self.dials.remove(&id);
        self.shared.remote.dials().end(id);
    }

    pub(crate) fn report_dial_end(&mut self, id: DialId) {
        if let Some(probe) = &mut self.probe {
            probe.dial_ended(id);
        }
        self.guard(format_args!("dial {id}"), |core| core.handler.on_dial_end(id));
    }

    /// An open connection ended: schedules the next attempt if the target wants that, unless we ended it.
    ///
    /// `silence` is the time without messages that ended it. A feed that has sent nothing has not come back. `told` is the time
    /// after which the server wants its client back.
    pub(crate) fn dial_lost(&mut self, id: DialId, by_us: bool, silence: Duration, told: Option<Duration>) {
        let heard = self.shared.now.saturating_sub(millis(silence));
        let Some(dial) = self.dials.get_mut(&id) else { return };
        if by_us || dial.ends || dial.target.reconnect.is_none() {
            self.remove_dial(id);
            return self.report_dial_end(id);
        }
        if dial.target.reconnect.is_some_and(|reconnect| heard.saturating_sub(dial.opened) >= millis(reconnect.longest))
        {
            dial.failures = 0;
        }
        if let Some(wait) = self.try_again(id, told) {
            log::info!("dial {}: connection lost; next attempt in {} ms", id.0, wait.as_millis());
        } else {
            self.report_dial_end(id);
        }
    }

    /// Schedules the next attempt and returns the wait, or removes the dial.
    pub(crate) fn try_again(&mut self, id: DialId, told: Option<Duration>) -> Option<Duration> {
        let now = self.shared.now;
        let dial = self.dials.get_mut(&id)?;
        dial.failures = dial.failures.saturating_add(1);
        dial.address = None;
        let failures = dial.failures;
        let wanted = dial.target.reconnect.filter(|_| !dial.ends && self.drain_end.is_none());
        let again = wanted.filter(|reconnect| reconnect.attempts.is_none_or(|most| failures <= most));
        let Some(reconnect) = again else {
            self.remove_dial(id);
            return None;
        };
        let wait = reconnect.wait_as_told(told, failures, |bound| self.shared.keys.up_to(bound));
        // At least one tick later: attempts that fail at once would keep this turn going for ever.
        let at = now.saturating_add(millis(wait).max(1));
        dial.state = State::Waiting(at);
        self.dial_timers.push(Reverse((at, id)));
        Some(wait)
    }
}
