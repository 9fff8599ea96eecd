//! The budget of memory: at its limit connections give way, so that the system never has to kill the process.
//!
//! | memory of all shards | measure |
//! |---|---|
//! | from 7/8 of the budget on | unused buffers are freed, and new connections are refused with a reset |
//! | above the budget | the heaviest connections are closed, until 15/16 of the budget are in use |
//! | for a second, new connections were refused | the heaviest connections are closed, until 3/4 of the budget are in use |
//!
//! Peers that hold just less than the budget can thus lock others out for a second, and not for longer.
//!
//! The shards are those of one server, or of all servers that share a [`MemoryBudget`](crate::MemoryBudget). A shard closes
//! connections of its own if they have at least an equal part of the weight that could be closed. One shard's always have.

use crate::accept::admission::{Admission, RETRY};
use crate::handler::Handler;
use crate::link::phase::Phase;
use crate::link::state::Link;
use crate::memory::account::Common;
use crate::turn::core::Core;
use crate::turn::links::Links;
use crate::turn::reactor::Reactor;
use crate::turn::shared::Shared;
use crate::turn::timer::Tick;
use http::StatusCode;
use log::Level;
use tautline_buf::Buf;
use tautline_conn::closed::Cause;
use tautline_io::{Address, Driver, Token};
use tautline_tls::Engine;
use tautline_ws::{CloseCode, Decoder, Role};

/// Most connections that are closed before the memory is looked at again.
const MOST: usize = 64;

/// Milliseconds between two questions to other shards.
const ASK: Tick = 100;

/// Milliseconds for which connections are refused before others are closed to make room.
const REFUSING: Tick = 1_000;

/// The kind of news about this limit; see [`Admission::is_news`](crate::accept::admission::Admission::is_news).
const NEWS: usize = 3;

/// The memory from which on new connections are refused.
const fn refuse_from(budget: usize) -> u64 {
    (budget - budget / 8) as u64
}

/// The memory from which on connections are closed, and the memory that is left then.
const fn close_from_and_to(budget: usize, makes_room: bool) -> (usize, usize) {
    if makes_room { (budget - budget / 4, budget - budget / 4) } else { (budget, budget - budget / 16) }
}

impl<E: Engine, H: Handler> Reactor<E, H> {
    /// Applies the limits and the budget at the end of a turn, if there is [reason to](Admission::has_reason).
    #[inline(never)]
    pub(crate) fn keep_limits(&mut self, driver: &mut dyn Driver) {
        let Core { admission, shared, links, .. } = &mut self.core;
        let is_due = admission.is_due(shared);
        shared.note_application(links);
        admission.report_memory(shared);
        if shared.account.grown || shared.account.due || is_due {
            let excess = admission.begin_shedding(shared);
            for token in excess.iter().flatten() {
                self.visit(driver, *token, |core, _, link| core.shed(link));
            }
            if let Some(heaviest) = excess {
                self.core.admission.end_shedding(&mut self.core.shared, !heaviest.is_empty());
            }
        }
        if is_due || self.core.admission.due {
            self.apply_limits(driver);
            // Nobody may come by for long.
            self.core.admission.report_memory(&mut self.core.shared);
        }
        let Core { admission, shared, .. } = &mut self.core;
        if shared.account.due {
            admission.look_at = shared.now;
        } else if shared.account.awaits_others | shared.account.refuses_more {
            admission.look_at = admission.look_at.min(shared.now + RETRY);
        }
    }
}

impl Shared {
    /// Takes the application's notes about its memory.
    fn note_application<S, T>(&mut self, links: &mut Links<S, T>) {
        for (token, application) in self.account.take_notes() {
            if let Some(link) = links.get_mut(token)
                && link.phase.is_open()
            {
                let cold = link.cold.get_or_insert_default();
                let before = cold.kept();
                cold.more().application = application;
                self.account.keep(token, &before, &cold.kept());
            }
        }
    }
}

impl Admission {
    /// Whether the limits are to be looked at.
    const fn is_due(&self, shared: &Shared) -> bool {
        self.due | (self.look_at <= shared.now)
    }

    /// Whether there is reason to look at limits or budget at the end of a turn.
    #[inline]
    pub(crate) fn has_reason(&self, shared: &Shared) -> bool {
        self.is_due(shared) | shared.account.is_due(&shared.pool, shared.remote.application().bytes())
    }

    /// The connections that are closed, the heaviest first; `None` if none has to be for this shard's part.
    ///
    /// Other shards are asked to look only if this one has grown, or has waited for their unused buffers. Otherwise two could
    /// ask each other for ever.
    fn begin_shedding(&mut self, shared: &mut Shared) -> Option<Vec<Token>> {
        let (budget, used) = (self.budget().bytes(), self.budget().used());
        let grown = shared.account.grown;
        shared.account.looked();
        shared.account.due = false;
        shared.account.refuses_more = false;
        let awaited = std::mem::take(&mut shared.account.awaits_others);
        let makes_room = self.budget().makes_room();
        if used < refuse_from(budget) && !makes_room {
            return None;
        }
        shared.pool.trim();
        self.report_memory(shared);
        let counters = self.budget().counters();
        let used = counters.memory();
        let (from, to) = close_from_and_to(budget, makes_room);
        if used <= from as u64 {
            self.budget().make_room(false);
            return None;
        }
        if used - counters.memory_pooled <= from as u64 {
            // No connection is closed for what other shards can free. One that is stopped frees nothing, and those that wait
            // for it must not wake each other all the time.
            shared.account.awaits_others = true;
            if shared.account.asked_at + RETRY <= shared.now {
                shared.account.asked_at = shared.now;
                self.membership.check_others();
            }
            return None;
        }
        if self.is_news(NEWS, shared.now) {
            let name = shared.config.limits.name_of_memory();
            log::warn!("{name} ({budget}) is reached: the heaviest connections are closed");
        }
        if !self.membership.has_its_part() {
            if grown | awaited {
                self.membership.check_others();
            }
            return None;
        }
        let excess = usize::try_from(used).unwrap_or(usize::MAX) - to;
        Some(shared.account.to_close(excess, MOST))
    }

    /// Looks at the memory again, after connections were closed. If nothing heavy is left, new connections and subscriptions are
    /// refused, until others have gone.
    fn end_shedding(&self, shared: &mut Shared, has_closed: bool) {
        let makes_room = self.budget().makes_room();
        let (from, _) = close_from_and_to(self.budget().bytes(), makes_room);
        shared.pool.trim();
        self.report_memory(shared);
        let is_exceeded = self.budget().used() > from as u64;
        shared.account.due = is_exceeded && has_closed;
        shared.account.refuses_more = is_exceeded && !has_closed && !makes_room;
        if makes_room && !shared.account.due {
            self.budget().make_room(false);
        }
    }

    /// Reports a shard's memory to those that share its budget.
    fn report_memory(&self, shared: &mut Shared) {
        let Shared { topics, timers, remote, pool, counters, account, .. } = shared;
        let common = Common {
            topics: topics.memory(),
            timers: timers.memory(),
            sources: self.memory(),
            application: remote.application().bytes(),
        };
        account.report(pool, &common, counters);
        self.membership.report(account.weight());
    }

    /// Refuses a new connection if memory is short.
    pub(crate) fn refuses(
        &mut self,
        shared: &mut Shared,
        driver: &mut dyn Driver,
        token: Token,
        peer: &Address,
    ) -> bool {
        let budget = self.budget().bytes();
        let is_short = self.budget().used() >= refuse_from(budget);
        if is_short {
            let name = shared.config.limits.name_of_memory();
            shared.counters.connections_refused.add(1);
            if self.is_news(NEWS + 1, shared.now) {
                log::warn!("7/8 of {name} ({budget}) are used: new connections are refused");
            }
            shared.log_peer(Level::Info, peer, format_args!("refused: 7/8 of {name} ({budget}) are used"));
            driver.close(token, true);
            self.check();
            if shared.account.refuses_for(REFUSING, shared.now) {
                self.budget().make_room(true);
                self.membership.check_others();
            }
            if shared.account.asked_at + ASK <= shared.now {
                // They may have unused buffers.
                shared.account.asked_at = shared.now;
                self.membership.check_others();
            }
        }
        is_short
    }
}

impl<E: Engine, H: Handler> Core<E, H> {
    /// Closes a connection, and frees its memory at once, but for bytes that the driver has.
    fn shed(&mut self, link: &mut Link<E::Session, H::State>) {
        let (name, budget) = (self.shared.config.limits.name_of_memory(), self.admission.budget().bytes());
        let held = link.held();
        let (bytes, outgoing) = (held.weight() + link.kept().weight(), held.outgoing());
        let line = format_args!("closed at {name} ({budget}): it holds {bytes} bytes, {outgoing} of them unread by it");
        self.shared.log_peer(Level::Info, &link.info.peer, line);
        if link.phase.is_ending() {
            // It was closed before, and does not read even that.
            return self.end(link, Phase::Gone { reset: true }, Cause::OutOfMemory);
        }
        self.shared.counters.memory_closed.add(1);
        if matches!(link.phase, Phase::Request(_)) && link.info.dial.is_none() {
            link.out.clear();
            self.refuse_with(link, StatusCode::SERVICE_UNAVAILABLE);
        } else if link.phase.is_handshaking() {
            self.fail(link, Cause::OutOfMemory);
        } else if link.phase.is_raw() {
            // Its bytes are the application's, and a close frame would be taken for some of them.
            self.end(link, Phase::Gone { reset: true }, Cause::OutOfMemory);
        } else {
            let code = if outgoing > bytes / 2 { CloseCode::POLICY } else { CloseCode::TRY_AGAIN_LATER };
            link.close_now(code, "memory is short");
            self.end(link, Phase::finishing(false), Cause::OutOfMemory);
        }
        let role = if link.info.dial.is_none() { Role::Server } else { Role::Client };
        link.decoder = Decoder::new(role, self.shared.config.limits.max_message);
        self.openings.forget_input(link);
        link.carry = Buf::new();
        link.set_plain(0);
    }
}
