//! A turn of a shard: events of the driver, commands of other threads, publications, and output of connections.

use crate::handler::Handler;
use crate::ids::ConnId;
use crate::link::outlet::DriverOutlet;
use crate::link::phase::Phase;
use crate::link::phase::Transport;
use crate::link::state::{Awaits, Link};
use crate::offload::Handshakes;
use crate::threads::command::Command;
use crate::topics::topic::Scope;
use crate::turn::clock::tick;
use crate::turn::core::{Core, Slot};
use crate::turn::shared::Shared;
use crate::turn::timer::Tick;
use crate::turn::visit::Visit;
use std::cmp::Reverse;
use std::io;
use std::time::Duration;
use tautline_buf::Buf;
use tautline_conn::closed::Cause;
use tautline_conn::front::Begins;
use tautline_conn::message::{Delivery, Encoded};
use tautline_conn::tick::millis;
use tautline_io::{Address, Driver, End, Listener, Received, Sink, Token};
use tautline_tls::{Engine, Session};

/// Most calls of `on_drain` for a connection in one turn. If its handler sends more from there, the next turn continues.
const MAX_DRAINS: usize = 16;
/// Bytes that a command counts for: about as many take as long to process.
const COMMAND: usize = 1 << 10;

impl<E: Engine, H: Handler> Core<E, H> {
    /// Sends a message of another thread to one connection. It leaves with the turn's other output.
    fn send_to(&mut self, driver: &mut dyn Driver, token: Token, message: &Encoded) {
        self.visit_corked(driver, token, |core, driver, link| {
            core.shared.publish_to(driver, link, message);
        });
    }

    /// Sends a connection's output after an event. Rare steps are functions of their own, so that a message does not pay for
    /// them.
    pub(crate) fn settle(&mut self, driver: &mut dyn Driver, link: &mut Link<E::Session, H::State>) {
        self.flush(driver, link);
        if link.is_drained() && link.awaits == Awaits::Nothing {
            self.report_drained(driver, link);
        }
        if link.out.has_dropped() {
            self.report_dropped(driver, link);
        }
        if link.held || matches!(link.phase, Phase::Streaming(_)) {
            self.stream_and_resume(driver, link);
        }
        if link.wire.has_failed() {
            self.fail_seal(driver, link);
        }
        if link.phase.close_sent() {
            self.await_close(driver, link);
        }
        if link.wire.is_in_flight() {
            self.schedule(link);
        } else if link.phase.is_finished() && !link.is_dirty() {
            self.end(link, Phase::GONE, Cause::Finished);
        }
        if link.phase.is_gone() {
            return;
        }
        if self.shared.visit.did_much() {
            // It goes on, and its next input is read, behind others that did much.
            self.rest(link);
        }
        if link.kernel.is_active() {
            self.enter_kernel(driver, link);
        }
        link.out.tidy(&mut self.shared.pool);
        link.wire.tidy(&mut self.shared.pool);
        let pause = link.holds_back(self.shared.config.limits.pause_receive_above);
        if pause != link.driver_paused {
            self.pause_receive(driver, link, pause);
        }
    }

    #[inline(never)]
    fn report_drained(&mut self, driver: &mut dyn Driver, link: &mut Link<E::Session, H::State>) {
        let mut drains = 0;
        while link.is_drained() {
            if drains == MAX_DRAINS || self.shared.visit.is_over(&self.clock) {
                self.rest(link);
                break;
            }
            drains += 1;
            link.out.report_drained();
            link.lend(Some(driver), &mut self.shared, |conn| self.handler.on_drain(conn));
            self.flush(driver, link);
        }
    }

    /// Reports dropped messages. The handler's own sends may drop more, which wait for the next event: a handler that sends a note
    /// to a peer that does not read would else be called for ever.
    #[cold]
    fn report_dropped(&mut self, driver: &mut dyn Driver, link: &mut Link<E::Session, H::State>) {
        let dropped = link.out.take_dropped();
        if link.phase.takes_messages() {
            link.lend(Some(driver), &mut self.shared, |conn| self.handler.on_dropped(conn, dropped));
            self.flush(driver, link);
        }
    }

    #[inline(never)]
    fn stream_and_resume(&mut self, driver: &mut dyn Driver, link: &mut Link<E::Session, H::State>) {
        if link.awaits != Awaits::Nothing {
            return;
        }
        if matches!(link.phase, Phase::Streaming(_)) {
            self.stream(driver, link);
        }
        let pause_above = self.shared.config.limits.pause_receive_above;
        while link.held && link.awaits == Awaits::Nothing && !link.holds_back(pause_above) {
            if self.shared.visit.is_over(&self.clock) {
                return self.rest(link);
            }
            if let Err(stop) = self.resume(driver, link) {
                self.stop(link, stop);
            }
            self.flush(driver, link);
            self.stream(driver, link);
        }
    }

    #[cold]
    fn fail_seal(&mut self, driver: &mut dyn Driver, link: &mut Link<E::Session, H::State>) {
        if let Some(error) = link.wire.take_failure() {
            self.fail(link, Cause::Tls(error));
            link.flush(driver, &mut self.shared);
        }
    }

    /// Our close frame was sent, and the peer's is awaited.
    #[inline(never)]
    fn await_close(&mut self, driver: &mut dyn Driver, link: &mut Link<E::Session, H::State>) {
        link.clock.phase_end = self.shared.now + millis(self.shared.config.deadlines.close);
        self.schedule(link);
        if link.reconnects() {
            // A stale peer may not answer.
            self.end(link, Phase::finishing(false), Cause::Local);
            link.flush(driver, &mut self.shared);
        }
    }

    #[inline(never)]
    fn pause_receive(&mut self, driver: &mut dyn Driver, link: &mut Link<E::Session, H::State>, pause: bool) {
        link.driver_paused = pause;
        link.clock.heard = self.shared.now;
        if link.phase.takes_messages() {
            link.clock.phase_end = self.shared.now;
        }
        link.ping_sent = false;
        driver.pause_receive(link.token, pause);
        self.schedule(link);
        if pause && link.awaits == Awaits::Nothing {
            self.shared.counters.receive_pauses.add(1);
            let waiting = link.out.buffered(&link.wire);
            let line = format_args!("reading pauses: {waiting} bytes wait for it (limits.pause_receive_above)");
            self.shared.log_peer(log::Level::Debug, &link.info.peer, line);
        }
    }

    /// Flushes a connection, or fails it if the slow-consumer policy gave up on the peer.
    fn flush(&mut self, driver: &mut dyn Driver, link: &mut Link<E::Session, H::State>) {
        if matches!(link.phase, Phase::Overrun) {
            self.fail(link, Cause::SlowConsumer);
        }
        link.flush(driver, &mut self.shared);
    }

    pub(crate) fn release(&mut self, driver: &mut dyn Driver, link: Box<Link<E::Session, H::State>>, reset: bool) {
        self.end_access(&link);
        driver.close(link.token, reset || link.wire.is_in_flight());
        self.drop_link(link);
    }

    /// Uncounts a connection, gives its memory back, and drops its state.
    pub(crate) fn drop_link(&mut self, mut link: Box<Link<E::Session, H::State>>) {
        self.uncount_connection(&link);
        self.discharge(&link);
        self.forget_input(&link);
        self.forget_access(link.token);
        link.out.release(&mut self.shared.pool);
        link.wire.release(&mut self.shared.pool);
        link.decoder.recycle(&mut self.shared.pool);
        self.shared.pool.give(std::mem::take(&mut link.carry));
        let id = ConnId { shard: self.shared.shard, token: link.token };
        self.guard(format_args!("the state of connection {id}"), |_| drop(link));
    }

    /// The driver's timeout: until the next timer, at most `longest`; zero if output waits already.
    pub(crate) fn wait(&self, longest: Option<Duration>) -> Option<Duration> {
        let waits_here = !self.shared.dirty.is_empty() || self.shared.has_messages() || self.commands_left;
        if waits_here || self.openings.are_waiting() || !self.resting.is_empty() {
            return Some(Duration::ZERO);
        }
        let due = self.due();
        let timer = (due != Tick::MAX).then(|| Duration::from_millis(due.saturating_sub(self.shared.now)));
        let stamps = self.shared.sends.as_ref().and_then(|sends| sends.wait());
        let longest = stamps.into_iter().chain(longest).min();
        match (timer, longest) {
            (Some(timer), Some(longest)) => Some(timer.min(longest)),
            (timer, longest) => timer.or(longest),
        }
    }

    /// When the first of all timers is due; [`Tick::MAX`] without one. Every turn asks, so nothing is collected first.
    fn due(&self) -> Tick {
        let mut due = self.wheel.due().min(self.shared.timers.due()).min(self.admission.look_at);
        if let Some(&Reverse((at, _))) = self.dial_timers.peek() {
            due = due.min(at);
        }
        if let Some(draining) = &self.draining {
            due = due.min(draining.due());
        }
        if let Some(end) = self.drain_end {
            due = due.min(end);
        }
        if let Some(at) = self.shared.peer_log.due() {
            due = due.min(at);
        }
        due
    }

    /// Handles commands that wait, for as long as a [visit](crate::turn::visit) may last, unless too many publications wait.
    pub(crate) fn handle_commands(&mut self, driver: &mut dyn Driver) {
        let mut visit = Visit::default();
        loop {
            // A wake is reported once, so the others are looked at again once publications were delivered.
            self.commands_left = self.shared.publications.is_full();
            if self.commands_left {
                return;
            }
            let Some(command) = self.commands.next() else { return };
            self.handle_command(driver, command);
            visit.spend(COMMAND);
            if visit.is_over(&self.clock) {
                self.commands_left = true;
                return;
            }
        }
    }

    fn handle_command(&mut self, driver: &mut dyn Driver, command: Command) {
        match command {
            Command::Publish(publication) => self.shared.publications.push(publication),
            Command::PublishToAll(publication) => _ = self.shared.publish(publication),
            Command::Subscribe { to, scope, name, on } => self.on_conn(driver, to, |_, conn| match (scope, on) {
                (Scope::Exact, true) => _ = conn.subscribe(&name),
                (Scope::Exact, false) => conn.unsubscribe(&name),
                (Scope::Prefix, true) => _ = conn.subscribe_prefix(&name),
                (Scope::Prefix, false) => conn.unsubscribe_prefix(&name),
            }),
            Command::Answer { to, number, answer } => self.answer_later(driver, to, number, *answer),
            Command::Act { to, act, .. } => self.act(driver, to, act),
            Command::ShardAct { act, .. } => self.shard_act(act),
            Command::Reconnect(token) => self.on_conn(driver, token, |_, conn| conn.reconnect()),
            Command::Connect { dial, target } => self.begin_dial(driver, dial, target),
            Command::Disconnect { dial, code, reason } => self.disconnect(driver, dial, code, &reason),
            Command::Send { to, message } => self.send_to(driver, to.token, &message),
            Command::Close { conn, code, reason } => {
                if let Some(Slot::Link(link)) = self.slots.get_mut(conn.token.index as usize)
                    && link.token == conn.token
                    && link.phase.takes_messages()
                {
                    link.close(code, &reason);
                    self.shared.dirty.push(conn.token);
                }
            }
            Command::Adopt { socket, peer } => {
                if let Err(error) = self.adopt(driver, socket, peer) {
                    log::warn!("a connection was not adopted: {error}");
                }
            }
            Command::Drain { code, reason, deadline } => self.drain(driver, code, &reason, deadline),
            Command::DrainForRestart { restart, deadline } => self.drain_for_restart(driver, &restart, deadline),
            // The asking thread may have ended.
            Command::Stages(dial, reply) => {
                let of = |dial| self.probe.as_ref().and_then(|probe| probe.stages_of(dial));
                drop(reply.try_send(dial.map_or_else(|| self.stages(), of)));
            }
            Command::Subscribers { topic, reply } => drop(reply.try_send(self.shared.topics.count(&topic))),
            Command::List(listing, reply) => drop(reply.try_send(self.list(listing))),
            Command::Beat(reply) => drop(reply.try_send(())),
            Command::Resolved { dial, result } => self.resolved(driver, dial, result),
        }
    }

    /// Begins to serve a connection from `peer`.
    pub(crate) fn accept_from(&mut self, driver: &mut dyn Driver, token: Token, peer: Address) {
        if self.refuses(driver, token, &peer) {
            return;
        }
        let begins = self.shared.config.front.begins(&peer);
        if begins == Begins::Refused {
            return self.refuse_peer(driver, token, &peer);
        }
        match self.engine.accept() {
            Ok(session) => {
                let phase = if begins == Begins::WithHeader { Phase::ProxyHeader } else { self.first_phase() };
                let from = peer.clone();
                let opened = self.guard(format_args!("a connection from {from}"), |core| {
                    core.open_link(token, phase, session, peer, None);
                });
                if opened.is_none() {
                    driver.close(token, true);
                }
                self.bound_accepting(driver);
            }
            Err(error) => {
                self.shared.log_peer(log::Level::Error, &peer, format_args!("not accepted: {error}"));
                driver.close(token, true);
            }
        }
    }
}

impl Shared {
    pub(crate) fn publish_to<S: Session, T>(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<S, T>,
        message: &Encoded,
    ) -> Delivery {
        if !link.phase.takes_messages() {
            return Delivery::Closed;
        }
        let Link { token, phase, session, out, wire, kernel, .. } = link;
        let mut transport = Transport { phase, wire, session, in_kernel: kernel.in_kernel() };
        let mut outlet = DriverOutlet { driver: &mut Some(driver), token: *token, shared: self };
        if out.is_blocked(transport.wire) {
            // Flushed first: a peer is slow only if the kernel takes no more bytes for it.
            out.flush_all(&mut transport, &mut outlet);
        }
        out.publish(message, &mut transport, &mut outlet)
    }

    pub(crate) fn mark_dirty<S, T>(&mut self, link: &mut Link<S, T>) {
        if !link.dirty {
            link.dirty = true;
            self.dirty.push(link.token);
        }
    }
}

impl<E: Engine, H: Handler> Sink for Core<E, H> {
    fn woke(&mut self, _driver: &mut dyn Driver) {
        if let Some(probe) = &mut self.probe {
            probe.woke();
        }
        let now = self.clock.elapsed();
        self.shared.now = tick(now);
        self.openings.begin(now);
    }

    fn may_accept(&self) -> bool {
        Self::may_accept(self)
    }

    fn accepted(&mut self, driver: &mut dyn Driver, token: Token, _listener: Listener) {
        self.shared.counters.accepted.add(1);
        match driver.peer(token) {
            Some(peer) => {
                let begun = self.clock.elapsed();
                self.accept_from(driver, token, peer);
                self.openings.accepted();
                self.end_opening(begun);
            }
            // The connection was reset in the backlog.
            None => driver.close(token, true),
        }
    }

    fn connected(&mut self, driver: &mut dyn Driver, token: Token) {
        self.attempt_connected(driver, token);
    }

    fn received(&mut self, driver: &mut dyn Driver, token: Token, data: Received<'_>) {
        if let Some(probe) = &mut self.probe {
            probe.received(driver);
        }
        let Some(link) = self.take(token) else { return };
        let mut begun = None;
        if link.is_opening() {
            begun = self.begin_opening(&link);
            if begun.is_none() {
                return self.keep_input(driver, link, data);
            }
        }
        // The only place that takes input, so that the compiler inlines all of it here.
        self.visit_link(driver, link, |core, driver, link| {
            core.take_input(driver, link, data);
            if begun.is_none() && link.goes_on() {
                core.openings.serve();
            }
        });
        if let Some(begun) = begun {
            self.end_opening(begun);
        }
    }

    fn sent(&mut self, driver: &mut dyn Driver, token: Token, buf: Buf) {
        self.visit(driver, token, |core, _, link| {
            link.wire.sent(buf, &mut core.shared.pool);
            // If sealed bytes remain, they may be the rest of a message whose beginning was just sent.
            if link.wire.is_flushed() {
                link.out.count_gone();
            }
            if matches!(link.phase, Phase::CloseSent | Phase::Linger(_)) {
                link.clock.phase_end = core.shared.now + millis(core.shared.config.deadlines.close);
                core.schedule(link);
            }
        });
    }

    fn departed(&mut self, _driver: &mut dyn Driver, token: Token, number: u32, nanos: u64) {
        if let Some(sends) = &mut self.shared.sends {
            sends.departed(token, number, nanos);
        }
    }

    fn ended(&mut self, driver: &mut dyn Driver, token: Token, end: End) {
        if let Some(Slot::Attempt(attempt, dial)) = self.slots.get(token.index as usize)
            && *attempt == token
        {
            let dial = *dial;
            self.attempt_failed(driver, token, dial, end);
            return;
        }
        self.visit(driver, token, |core, _, link| core.peer_ended(link, end, false));
    }

    fn woken(&mut self, driver: &mut dyn Driver) {
        self.admission.check();
        self.commands.woken();
        self.handle_commands(driver);
        for done in self.handshakes.as_ref().map(Handshakes::done).unwrap_or_default() {
            self.on_offload_done(driver, done);
        }
    }

    fn make_room(&mut self, driver: &mut dyn Driver) -> bool {
        self.make_room_for_descriptors(driver)
    }

    fn accept_failed(&mut self, _driver: &mut dyn Driver, error: io::Error) {
        log::error!("cannot accept connections: {error}; raise the limit of open files (ulimit -n) or close some");
    }
}
