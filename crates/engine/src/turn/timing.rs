//! Timers as applications set them, and the calls when they are due.

use crate::conn::Conn;
use crate::context::ShardContext;
use crate::handler::Handler;
use crate::link::phase::Phase;
use crate::link::state::Link;
use crate::raw::event::RawEvent;
use crate::turn::core::Core;
use crate::turn::reactor::Reactor;
use crate::turn::shared::Shared;
use crate::turn::timer::Tick;
use crate::turn::timers::Timer;
use std::time::Duration;
use tautline_conn::tick::millis;
use tautline_io::Driver;
use tautline_tls::Engine;

impl<T> Conn<'_, T> {
    /// Calls [`on_timer`](crate::Handler::on_timer) with `id` after this time, once, unless the connection ends before.
    ///
    /// A timer of this connection with the same id moves. It is up to 64 ms late. A connection should have few timers: a call
    /// takes time in proportion to their number.
    ///
    /// ```
    /// # mod tautline { pub use {tautline_engine::{Conn, Handler}, tautline_ws::{CloseCode, Message}}; }
    /// use std::time::Duration;
    /// use tautline::{CloseCode, Conn, Handler, Message};
    ///
    /// /// Ends games in which nobody has moved for five minutes.
    /// struct Game;
    ///
    /// impl Handler for Game {
    ///     type State = ();
    ///     fn on_message(&mut self, conn: &mut Conn<'_, ()>, _: Message<'_>) {
    ///         conn.set_timer(Duration::from_secs(300), 0);
    ///     }
    ///     fn on_timer(&mut self, conn: &mut Conn<'_, ()>, _id: u64) {
    ///         conn.close(CloseCode::NORMAL, "no move for five minutes");
    ///     }
    /// }
    /// ```
    pub fn set_timer(&mut self, after: Duration, id: u64) {
        if !self.transport.phase.takes_messages() && !self.transport.phase.is_raw() {
            return;
        }
        let at = self.outlet.shared.now + millis(after);
        let more = self.cold.get_or_insert_default().more();
        if let Some(timer) = more.timers.iter_mut().find(|timer| timer.id == id) {
            timer.at = at;
            timer.scheduled = self.outlet.shared.timers.schedule(self.outlet.token, at, timer.scheduled);
            return;
        }
        let scheduled = self.outlet.shared.timers.schedule(self.outlet.token, at, 0);
        self.keep(|cold| {
            let timers = &mut cold.more().timers;
            // Most connections that have timers have one.
            timers.reserve_exact(1);
            timers.push(Timer { id, at, scheduled });
        });
    }

    /// Cancels a timer of this connection. False if it has none with this id.
    pub fn cancel_timer(&mut self, id: u64) -> bool {
        let more = self.cold.as_mut().and_then(|cold| cold.more.as_mut());
        let timer = more.and_then(|more| more.timers.iter_mut().find(|timer| timer.id == id && timer.at != Tick::MAX));
        // The timer stays until its entry in the wheel is due, so that it has one entry however often it is set.
        timer.map(|timer| timer.at = Tick::MAX).is_some()
    }
}

impl ShardContext<'_> {
    /// Calls [`on_shard_timer`](crate::Handler::on_shard_timer) with `id` after this time, once, up to a millisecond late.
    ///
    /// A timer of this shard with the same id moves.
    pub fn set_timer(&mut self, after: Duration, id: u64) {
        let at = self.shared.now + millis(after);
        self.shared.timers.set(id, at);
    }

    /// Cancels a timer of this shard. False if it has none with this id.
    pub fn cancel_timer(&mut self, id: u64) -> bool {
        self.shared.timers.cancel(id)
    }
}

impl<E: Engine, H: Handler> Reactor<E, H> {
    /// Calls the application for every timer that is due.
    #[cold]
    pub(crate) fn expire_timers(&mut self, driver: &mut dyn Driver) {
        let now = self.core.shared.now;
        let mut due = std::mem::take(&mut self.due);
        self.core.shared.timers.advance(now, &mut due);
        for token in due.drain(..) {
            if self.core.links.get(token).is_some_and(|link| has_timers(&link.phase)) {
                self.visit(driver, token, |core, driver, link| {
                    while let Some(id) = link.take_timer(&mut core.shared) {
                        if link.phase.is_raw() {
                            core.report_raw(Some(&mut *driver), link, RawEvent::Timer(id));
                        } else if link.phase.takes_messages() {
                            let Core { application, shared, links, .. } = core;
                            link.lend(Some(&mut *driver), shared, links, |conn| application.handler.on_timer(conn, id));
                        }
                    }
                });
            }
        }
        self.due = due;
        // Timers that are set meanwhile for this very millisecond wait for the next turn.
        for _ in 0..self.core.shared.timers.due_of_shard(now) {
            let Some(id) = self.core.shared.timers.take_due(now) else { break };
            let Core { application, shared, .. } = &mut self.core;
            application.guard_shard(shared, format_args!("timer {id} of the shard"), |handler, shard| {
                handler.on_shard_timer(shard, id);
            });
        }
        self.core.shared.timers.find_next();
    }
}

impl<S, T> Link<S, T> {
    /// Takes the first timer that is due. Others that the wheel has looked at are scheduled again.
    fn take_timer(&mut self, shared: &mut Shared) -> Option<u64> {
        let now = shared.now;
        while has_timers(&self.phase)
            && let Some(timers) = self.cold.as_mut().and_then(|cold| cold.more.as_mut()).map(|more| &mut more.timers)
            && let looked = timers.iter().enumerate().filter(|(_, timer)| timer.scheduled <= now)
            && let Some((at, _)) = looked.min_by_key(|(_, timer)| timer.at)
        {
            let timer = &mut timers[at];
            if timer.at > now && timer.at != Tick::MAX {
                timer.scheduled = shared.timers.schedule(self.token, timer.at, 0);
                continue;
            }
            let Timer { id, at, .. } = timers.swap_remove(at);
            if at != Tick::MAX {
                return Some(id);
            }
        }
        None
    }
}

/// Whether timers are looked at. A connection that was raw, and reads requests again, forgets those that it had.
const fn has_timers(phase: &Phase) -> bool {
    phase.takes_messages() || matches!(phase, Phase::Raw(_) | Phase::Request(_))
}
