//! A drain: the connections that a shard has still to close, and what they are told.

use crate::accept::pace::Pace;
use crate::close::restart::Restart;
use crate::close::schedule::Schedule;
use crate::turn::shared::Shared;
use crate::turn::timer::Tick;
use std::borrow::Cow;
use std::time::Duration;
use tautline_ws::CloseCode;

/// A drain that has not reached all connections.
pub(crate) struct Draining {
    pub(crate) code: CloseCode,
    reason: String,
    /// The first slot that it has not looked at.
    pub(crate) next: usize,
    /// When connections are closed before a restart, and their clients return.
    schedule: Option<Schedule>,
}

impl Draining {
    pub(crate) fn new(code: CloseCode, reason: &str) -> Self {
        Self { code, reason: reason.to_owned(), next: 0, schedule: None }
    }

    /// A drain with 1012. Each client learns when it is to come back. `pace` is that at which clients return.
    pub(crate) fn for_restart(restart: &Restart, deadline: Duration, shared: &Shared, pace: &Pace) -> Self {
        let count = shared.counters.open.get();
        let schedule = Schedule::new(restart, (shared.now, deadline), count, pace.returns());
        if count > 0 {
            let returning = schedule.returning();
            log::info!("{count} WebSockets are closed for a restart; clients return within {returning:?}");
        }
        let (code, reason) = (CloseCode::SERVICE_RESTART, restart.reason.clone());
        Self { code, reason, next: 0, schedule: Some(schedule) }
    }

    /// The reason that a connection is told at `now`; `None` if it is to be closed later.
    pub(crate) fn reason_at(&mut self, now: Tick, is_open: bool) -> Option<Cow<'_, str>> {
        match &mut self.schedule {
            Some(schedule) if is_open && now < schedule.next_at() => None,
            Some(schedule) if is_open => Some(format!("{} {}", schedule.close(now), self.reason).into()),
            _ => Some(self.reason.as_str().into()),
        }
    }

    /// When the drain goes on.
    pub(crate) fn due(&self) -> Tick {
        self.schedule.as_ref().map_or(0, Schedule::next_at)
    }
}
