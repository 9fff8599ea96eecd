//! Ends of attempts and of outgoing connections: the report to the application, and the next attempt.

use crate::dial::dialing::Dialer;
use crate::dial::target::{State, Target};
use crate::handler::Handler;
use crate::ids::DialId;
use crate::raw::lent::Others;
use crate::raw::slots::Slots;
use crate::turn::panics::Application;
use crate::turn::shared::Shared;
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tautline_conn::closed::ConnectError;
use tautline_conn::tick::millis;

impl Dialer {
    /// Lets the application change the target of a further attempt.
    pub(super) fn report_redial<H: Handler>(
        &mut self,
        id: DialId,
        application: &mut Application<H>,
        shared: &mut Shared,
    ) {
        let Some(dial) = self.dials.get_mut(&id).filter(|dial| dial.failures > 0) else { return };
        let mut target = Target::clone(&dial.target);
        // A target that a panic left half changed is not used.
        let changed = application.guard(shared, format_args!("dial {id}"), |handler, _| {
            handler.on_redial(id, &mut target);
            target
        });
        if let Some(target) = changed {
            dial.target = Arc::new(target);
        }
    }

    /// Reports a failed attempt to the handler, and schedules the next one if the target wants that.
    pub(crate) fn fail<H: Handler>(
        &mut self,
        id: DialId,
        error: ConnectError,
        application: &mut Application<H>,
        slots: &mut dyn Slots<H::State>,
        shared: &mut Shared,
    ) {
        let dial = self.dials.get(&id);
        let (known, is_raw) = (dial.is_some(), dial.is_some_and(|dial| dial.target.raw));
        self.addresses.note(dial.and_then(|dial| dial.address), &error, shared.now);
        let retry = if error.is_permanent() {
            self.remove(id, shared);
            None
        } else {
            self.try_again(id, error.retry_after(UNIX_EPOCH + shared.clock.since_epoch()), shared)
        };
        application.guard(shared, format_args!("dial {id}"), |handler, shared| {
            if is_raw {
                handler.on_raw_failed(&mut Others { slots, driver: None, shared }, id, &error);
            } else {
                handler.on_connect_failed(id, &error, retry);
            }
        });
        if known && retry.is_none() {
            application.end_dial(shared, id);
        }
    }

    /// Forgets a dial.
    pub(crate) fn remove(&mut self, id: DialId, shared: &Shared) {
        self.dials.remove(&id);
        shared.remote.dials().end(id);
    }

    /// An open connection ended: schedules the next attempt if the target wants that, unless we ended it. Returns whether the dial
    /// has ended too.
    ///
    /// `silence` is the time without messages that ended it. A feed that has sent nothing has not come back. `told` is the time
    /// after which the server wants its client back.
    #[must_use]
    pub(crate) fn lost(
        &mut self,
        id: DialId,
        by_us: bool,
        silence: Duration,
        told: Option<Duration>,
        shared: &mut Shared,
    ) -> bool {
        let heard = shared.now.saturating_sub(millis(silence));
        let Some(dial) = self.dials.get_mut(&id) else { return false };
        let Some(reconnect) = dial.target.reconnect.filter(|_| !by_us && !dial.ends) else {
            self.remove(id, shared);
            return true;
        };
        if heard.saturating_sub(dial.opened) >= millis(reconnect.longest) {
            dial.failures = 0;
        }
        let wait = self.try_again(id, told, shared);
        if let Some(wait) = wait {
            log::info!("dial {}: connection lost; next attempt in {} ms", id.0, wait.as_millis());
        }
        wait.is_none()
    }

    /// Schedules the next attempt and returns the wait, or removes the dial.
    fn try_again(&mut self, id: DialId, told: Option<Duration>, shared: &mut Shared) -> Option<Duration> {
        let dial = self.dials.get_mut(&id)?;
        dial.failures = dial.failures.saturating_add(1);
        dial.address = None;
        let failures = dial.failures;
        let wanted = dial.target.reconnect.filter(|_| !dial.ends && shared.drain_end.is_none());
        let again = wanted.filter(|reconnect| reconnect.attempts.is_none_or(|most| failures <= most));
        let Some(reconnect) = again else {
            self.remove(id, shared);
            return None;
        };
        let wait = reconnect.wait_as_told(told, failures, |bound| shared.keys.up_to(bound));
        // At least one tick later: attempts that fail at once would keep this turn going for ever.
        let at = shared.now.saturating_add(millis(wait).max(1));
        dial.state = State::Waiting(at);
        self.timers.push(Reverse((at, id)));
        Some(wait)
    }
}

impl<H: Handler> Application<H> {
    /// A dial has ended.
    pub(crate) fn end_dial(&mut self, shared: &mut Shared, id: DialId) {
        if let Some(probe) = &mut shared.probe {
            probe.dial_ended(id);
        }
        self.guard(shared, format_args!("dial {id}"), |handler, _| handler.on_dial_end(id));
    }
}
