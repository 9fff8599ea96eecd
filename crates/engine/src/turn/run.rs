//! A turn of a shard: events of the driver, commands of other threads, publications, and output of connections.

use crate::close::draining::Draining;
use crate::dial::target::Target;
use crate::handler::Handler;
use crate::ids::DialId;
use crate::link::input::Inbound;
use crate::link::phase::Phase;
use crate::link::state::Awaits;
use crate::memory::weighing::Scales;
use crate::raw::event::RawEvent;
use crate::threads::command::Command;
use crate::topics::reaching::Act;
use crate::topics::topic::Scope;
use crate::turn::clock::tick;
use crate::turn::core::Core;
use crate::turn::reactor::Reactor;
use crate::turn::visit::{RESTING, Visit};
use log::Level;
use std::io;
use std::sync::Arc;
use tautline_buf::Buf;
use tautline_conn::closed::{Cause, ConnectError};
use tautline_conn::inbound;
use tautline_conn::tick::millis;
use tautline_io::{Address, Answered, CarrierEnd, Driver, End, Listener, Received, Sink, StreamFault, Token};
use tautline_tls::Engine;

/// Bytes that a command counts for: about as many take as long to process.
const COMMAND: usize = 1 << 10;

impl<E: Engine, H: Handler> Reactor<E, H> {
    /// Handles commands that wait, for as long as a [visit](crate::turn::visit) may last, unless too many publications wait.
    pub(crate) fn handle_commands(&mut self, driver: &mut dyn Driver) {
        let mut visit = Visit::default();
        loop {
            // A wake is reported once, so the others are looked at again once publications were delivered.
            self.commands_left = self.core.shared.publications.is_full();
            if self.commands_left {
                return;
            }
            let Some(command) = self.commands.next() else { return };
            self.handle_command(driver, command);
            visit.spend(COMMAND);
            if visit.is_over(&self.core.shared.clock) {
                self.commands_left = true;
                return;
            }
        }
    }

    fn handle_command(&mut self, driver: &mut dyn Driver, command: Command) {
        match command {
            Command::Publish(publication) => self.core.shared.publications.push(publication),
            Command::PublishToAll(publication) => _ = self.core.shared.publish(publication),
            Command::Subscribe { to, scope, name, on } => self.on_conn(driver, to, |_, conn| match (scope, on) {
                (Scope::Exact, true) => _ = conn.subscribe(&name),
                (Scope::Exact, false) => conn.unsubscribe(&name),
                (Scope::Prefix, true) => _ = conn.subscribe_prefix(&name),
                (Scope::Prefix, false) => conn.unsubscribe_prefix(&name),
            }),
            Command::Reply { to, number, reply } => self.reply_later(driver, to, number, *reply),
            Command::Act { to, act, .. } => {
                // The handle has compared the types of the handlers.
                if let Ok(act) = act.downcast::<Act<H>>() {
                    self.on_conn(driver, to, *act);
                }
            }
            Command::ShardAct { act, .. } => self.core.application.act(&mut self.core.shared, act),
            Command::Reconnect(token) => self.on_conn(driver, token, |_, conn| conn.reconnect()),
            Command::Notify(conn) if conn.shard == self.core.shared.shard => {
                self.visit(driver, conn.token, |core, driver, link| {
                    if link.phase.is_raw() {
                        core.report_raw(Some(driver), link, RawEvent::Notified);
                    }
                });
            }
            Command::Notify(_) => {}
            Command::Connect { dial, target } => self.begin_dial(driver, dial, target),
            Command::Disconnect { dial, code, reason } => {
                let Core { dialer, application, links, shared, .. } = &mut self.core;
                match dialer.give_up(driver, dial) {
                    Some(Some(token)) => self.visit(driver, token, |core, _, link| {
                        if link.phase.is_handshaking() {
                            core.dial_failed(link, Phase::GONE, ConnectError::Ended(Cause::Local));
                        } else if link.phase.is_raw() {
                            core.end(link, Phase::finishing(false), Cause::Local);
                        } else {
                            link.close(code, &reason);
                        }
                    }),
                    Some(None) => dialer.fail(dial, ConnectError::Ended(Cause::Local), application, links, shared),
                    None => {}
                }
            }
            // It leaves with the turn's other output.
            Command::Send { to, message } => self.visit_corked(driver, to.token, |core, driver, link| {
                core.shared.publish_to(driver, link, &message);
            }),
            Command::Close { conn, code, reason } => {
                if let Some(link) = self.core.links.get_mut(conn.token)
                    && link.phase.takes_messages()
                {
                    link.close(code, &reason);
                    self.core.shared.dirty.push(conn.token);
                }
            }
            Command::Adopt { socket, peer } => {
                if let Err(error) = self.adopt(driver, socket, peer) {
                    log::warn!("a connection was not adopted: {error}");
                }
            }
            Command::Drain { code, reason, deadline } => {
                self.begin_drain(driver, Draining::new(code, &reason), deadline);
            }
            Command::DrainForRestart { restart, deadline } => {
                let pace = &self.core.openings.pace;
                let draining = Draining::for_restart(&restart, deadline, &self.core.shared, pace);
                self.begin_drain(driver, draining, deadline);
            }
            // The asking thread may have ended.
            Command::Stages(dial, reply) => {
                let of = |dial| self.core.shared.probe.as_ref().and_then(|probe| probe.stages_of(dial));
                drop(reply.try_send(dial.map_or_else(|| self.core.shared.stages(), of)));
            }
            Command::Subscribers { topic, reply } => drop(reply.try_send(self.core.shared.topics.count(&topic))),
            Command::List(listing, reply) => {
                let Core { links, shared, access, .. } = &self.core;
                drop(reply.try_send(Scales { links, shared, access, driver }.list(listing)));
            }
            Command::Beat(reply) => drop(reply.try_send(())),
            Command::Resolved { dial, result } => self.core.dialer.resolved(driver, dial, result, &self.core.shared),
        }
    }

    /// Begins to connect.
    pub(crate) fn begin_dial(&mut self, driver: &mut dyn Driver, id: DialId, target: Arc<Target>) {
        let Core { dialer, engine, application, shared, .. } = &mut self.core;
        dialer.insert(id, target);
        dialer.attempt(driver, id, engine, application, shared);
    }

    /// Goes on with connections that rest, in this turn's time. One of them has a visit in each turn, unless what they published
    /// fills the shard.
    pub(crate) fn go_on_resting(&mut self, driver: &mut dyn Driver) {
        if self.core.shared.resting.is_empty() {
            return;
        }
        let begun = self.core.shared.clock.elapsed();
        // A connection that rests again has its turn in the next one.
        for _ in 0..self.core.shared.resting.len() {
            if self.core.shared.publications.is_full() {
                return;
            }
            let Some(token) = self.core.shared.resting.pop_front() else { return };
            let Some(mut link) = self.core.links.take(token) else { continue };
            link.awaits = Awaits::Nothing;
            // The visit resumes what was held.
            self.visit_link(driver, link, |_, _, _| {});
            if self.core.shared.clock.elapsed().saturating_sub(begun) >= RESTING {
                return;
            }
        }
    }
}

impl<E: Engine, H: Handler> Sink for Reactor<E, H> {
    fn woke(&mut self, _driver: &mut dyn Driver) {
        if let Some(probe) = &mut self.core.shared.probe {
            probe.woke();
        }
        let now = self.core.shared.clock.elapsed();
        self.core.shared.now = tick(now);
        self.core.openings.begin(now);
        self.core.carrier_ends.forget(&self.core.links);
    }

    fn may_accept(&self) -> bool {
        self.core.openings.take_another(&self.core.shared.config.limits, &self.core.shared.clock)
    }

    fn accepted(&mut self, driver: &mut dyn Driver, token: Token, _listener: Listener) {
        self.core.shared.counters.accepted.add(1);
        match driver.peer(token) {
            Some(peer) => {
                let begun = self.core.shared.clock.elapsed();
                self.accept_from(driver, token, peer);
                self.core.openings.accepted();
                self.core.openings.end_step(begun, &self.core.shared.clock);
            }
            // The connection was reset in the backlog.
            None => driver.close(token, true),
        }
    }

    fn connected(&mut self, driver: &mut dyn Driver, token: Token) {
        let Some((id, target)) = self.core.dialer.connected(driver, token, &self.core.shared) else { return };
        let peer = driver.peer(token).unwrap_or(Address::UnixUnnamed);
        let session = target.session(&self.core.engine).map_err(Cause::Tls);
        let opened = session
            .and_then(|session| self.core.open_link(token, Phase::Tls, session, peer, Some(id)).ok_or(Cause::Panicked));
        match opened {
            Ok(link) => self.visit_link(driver, link, |core, driver, link| {
                if let Some(longest) = target.connect {
                    link.clock.phase_end = core.shared.now + millis(longest);
                    core.schedule(link);
                }
                let begun = match &target.proxy {
                    Some(proxy) => match target.tunnel(proxy.clone(), link.wire.buf(&mut core.shared.pool)) {
                        Ok(tunnel) => {
                            link.phase = Phase::Proxy(Box::new(tunnel));
                            Ok(())
                        }
                        Err(error) => return core.dial_failed(link, Phase::GONE, error),
                    },
                    None => {
                        if !target.preface.is_empty() {
                            link.wire.buf(&mut core.shared.pool).put(&target.preface);
                        }
                        inbound::secure(&mut Inbound { core, driver, link })
                    }
                };
                if let Err(stop) = begun {
                    core.stop(link, stop);
                }
            }),
            Err(cause) => {
                driver.close(token, true);
                let Core { dialer, application, links, shared, .. } = &mut self.core;
                dialer.fail(id, ConnectError::Ended(cause), application, links, shared);
            }
        }
    }

    fn received(&mut self, driver: &mut dyn Driver, token: Token, data: Received<'_>) {
        if let Some(probe) = &mut self.core.shared.probe {
            probe.received(driver);
        }
        let Some(link) = self.core.links.take(token) else { return };
        let mut begun = None;
        if link.is_opening() {
            begun = self.core.openings.begin_step(&link, &self.core.shared.clock);
            if begun.is_none() {
                return self.keep_input(driver, link, data);
            }
        }
        // The only place that takes input, so that the compiler inlines all of it here.
        self.visit_link(driver, link, |core, driver, link| {
            core.take_input(driver, link, data);
            // The streams of a connection are counted by themselves: their requests are others that open.
            if begun.is_none() && link.goes_on() && !link.phase.carries() {
                core.openings.serve();
            }
        });
        if let Some(begun) = begun {
            self.core.openings.end_step(begun, &self.core.shared.clock);
        }
    }

    fn carried(&mut self, driver: &mut dyn Driver, token: Token, plain: &[u8], end: Option<CarrierEnd>) {
        self.visit(driver, token, |core, driver, link| {
            if !link.phase.carries() {
                return;
            }
            link.write(driver, &mut core.shared, plain);
            if let Some(CarrierEnd::Fault(why)) = end {
                core.shared.counters.carriers_failed.add(1);
                core.shared.log_peer(Level::Info, &link.info.peer, format_args!("HTTP/2 ends: {why}"));
            }
            if end.is_some() {
                core.end(link, Phase::finishing(false), Cause::Local);
            }
        });
    }

    fn carries(&mut self, _driver: &mut dyn Driver, token: Token, some: bool) {
        let Core { links, admission, shared, .. } = &mut self.core;
        let Some(link) = links.get(token).filter(|link| link.phase.carries()) else { return };
        if some {
            admission.leave_crowd(link);
        } else {
            admission.begin_carrier(link, shared.now);
        }
    }

    fn stream_failed(&mut self, driver: &mut dyn Driver, token: Token, stream: u32, fault: StreamFault) {
        self.visit(driver, token, |core, _, link| {
            let counters = &core.shared.counters;
            match fault {
                StreamFault::Streams => counters.streams_refused.add(1),
                StreamFault::Window => counters.stream_windows_exceeded.add(1),
                StreamFault::Head => counters.stream_heads_too_big.add(1),
                _ => counters.streams_faulty.add(1),
            }
            let line = format_args!("HTTP/2 refuses stream {stream}: {fault}");
            core.shared.log_peer(Level::Info, &link.info.peer, line);
        });
    }

    fn answered(&mut self, driver: &mut dyn Driver, token: Token, answered: &Answered<'_>) {
        self.visit(driver, token, |core, _, link| core.access.note_answered(link, answered, &core.shared));
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
        if let Some(sends) = &mut self.core.shared.sends {
            sends.departed(token, number, nanos);
        }
    }

    fn ended(&mut self, driver: &mut dyn Driver, token: Token, end: End) {
        if self.core.dialer.is_connecting(token) {
            return self.core.dialer.attempt_failed(driver, token, end, &self.core.shared);
        }
        self.visit(driver, token, |core, driver, link| {
            let end = core.carrier_ends.explain(driver, token, &link.phase, end);
            core.peer_ended(link, end);
        });
    }

    fn woken(&mut self, driver: &mut dyn Driver) {
        self.core.admission.check();
        self.commands.woken();
        self.handle_commands(driver);
        for done in self.core.offloading.done() {
            let shared = &mut self.core.shared;
            if done.result.is_some() {
                shared.counters.handshakes_offloaded.add(1);
                shared.counters.handshakes_stalled.add(u64::from(done.stalled));
                shared.remote.live_outcomes().offloaded.add(millis(done.took));
            }
            let Some(link) = self.core.links.take(done.token) else {
                shared.pool.give(done.wire);
                shared.pool.give(done.out);
                continue;
            };
            self.visit_link(driver, link, |core, driver, link| {
                let Core { offloading, admission, openings, shared, .. } = core;
                let continued = match offloading.take_back(link, done, admission, &mut openings.pace, shared) {
                    Ok(true) => core.secured(driver, link),
                    result => result.map(drop),
                };
                if let Err(stop) = continued {
                    core.stop(link, stop);
                }
            });
        }
    }

    fn make_room(&mut self, driver: &mut dyn Driver) -> bool {
        let has_room = self.core.admission.for_descriptor().any(|evicted| self.evict(driver, &evicted));
        // A loop with a table of its own would gain nothing from others.
        if !has_room && !self.core.shared.remote.has_own_descriptors() {
            self.core.admission.want_descriptors();
            self.core.shared.check_others();
        }
        has_room
    }

    fn accept_failed(&mut self, _driver: &mut dyn Driver, error: io::Error) {
        log::error!("cannot accept connections: {error}; raise the limit of open files (ulimit -n) or close some");
    }
}
