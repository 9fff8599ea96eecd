//! Connections from bytes: the process that goes on with them.

use crate::accept::counting::memory_of;
use crate::dial::target::{Dial, State, Target};
use crate::dial::times::Steps;
use crate::handler::Handler;
use crate::ids::ConnId;
use crate::link::info::Info;
use crate::link::kernel_tls::Handover;
use crate::link::phase::{Finish, Linger, Phase, Raw};
use crate::link::state::{Awaits, Clock, HandshakeCost, Link};
use crate::moving::restored::{Moving, Rest};
use crate::moving::saved::{Life, Outgoing, Saved, SavedRaw, decode};
use crate::raw::event::RawEvent;
use crate::turn::panics::Application;
use crate::turn::reactor::Reactor;
use crate::turn::shared::Shared;
use crate::turn::timer::Tick;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tautline_buf::Buf;
use tautline_conn::frames;
use tautline_conn::front::Via;
use tautline_conn::head::Head;
use tautline_conn::outbound::Outbound;
use tautline_conn::proxy_header::ProxyHeader;
use tautline_conn::wire::Wire;
use tautline_io::{Address, Driver, KernelTls, Token};
use tautline_tls::{Engine, Session};
use tautline_ws::deflate::DeflateParams;
use tautline_ws::{DecoderState, EncoderState, Role};

/// A connection without its token, and what is left when it begins.
pub(crate) type Made<S, T> = (Link<S, T>, Rest);

impl<E: Engine, H: Handler> Reactor<E, H> {
    /// Forgets a connection that has moved.
    pub(crate) fn forget(&mut self, driver: &mut dyn Driver, mut link: Box<Link<E::Session, H::State>>) {
        let phase = std::mem::replace(&mut link.phase, Phase::GONE);
        if phase.is_handshaking() {
            self.core.admission.end_handshake(&link, &phase, &self.core.shared);
        }
        self.core.shared.counters.open.sub(u64::from(phase.is_open()));
        if let Some(id) = link.info.dial {
            self.core.dialer.remove(id, &self.core.shared);
        }
        self.core.shared.unsubscribe_all(&mut link);
        if let Some(handle) = link.cold.as_mut().and_then(|cold| cold.more.as_mut()?.handle.take()) {
            handle.end();
        }
        driver.give_away(link.token);
        self.core.drop_link(link);
    }

    /// Begins a connection in its slot: its socket is read from now on.
    pub(crate) fn begin_link(&mut self, driver: &mut dyn Driver, token: Token, rest: &Rest, since: Tick) {
        let Rest { topics, prefixes, timers, .. } = rest;
        self.visit(driver, token, |core, driver, link| {
            core.schedule(link);
            let (is_open, is_raw) = (link.phase.is_open(), link.phase.is_raw());
            link.lend(Some(driver), &mut core.shared, &mut core.links, |conn| {
                topics.iter().for_each(|topic| _ = conn.subscribe(topic));
                prefixes.iter().for_each(|prefix| _ = conn.subscribe_prefix(prefix));
                timers
                    .iter()
                    .for_each(|(id, due)| conn.set_timer(Duration::from_millis(due.saturating_sub(since)), *id));
                if is_open {
                    core.application.handler.on_restored(conn);
                }
            });
            if is_raw {
                core.report_raw(Some(driver), link, RawEvent::Restored);
            }
            if link.held {
                // Thousands may have input that waits, and all of them begin at once.
                core.shared.rest(link);
            }
        });
    }
}

impl<S: Session, T> Moving<S, T> {
    /// Makes connections that were saved together.
    pub(crate) fn restore_all<E: Engine<Session = S>, H: Handler<State = T>>(
        &self,
        saved: &[u8],
        (engine, kernel_tls): (&E, KernelTls),
        handler: &mut H,
        shared: &Shared,
    ) -> io::Result<Vec<Made<S, T>>> {
        decode(saved)?.into_iter().map(|saved| self.restore(saved, engine, handler, kernel_tls, shared)).collect()
    }

    /// Makes a saved connection. It has no token yet.
    fn restore<E: Engine<Session = S>, H: Handler<State = T>>(
        &self,
        saved: Saved,
        engine: &E,
        handler: &mut H,
        kernel_tls: KernelTls,
        shared: &Shared,
    ) -> io::Result<Made<S, T>> {
        let moved_at = self.at(shared.now);
        let session = engine.restore(&saved.session.0).map_err(|error| invalid(error.to_string()))?;
        let role = if saved.outgoing.is_some() { Role::Client } else { Role::Server };
        let state = catch_unwind(AssertUnwindSafe(|| handler.restore_state(&saved.state)));
        let state = state.ok().flatten().ok_or_else(|| invalid("the handler does not restore its state".into()))?;
        let max_message = catch_unwind(AssertUnwindSafe(|| handler.restored_max_message(&state)));
        let max_message = max_message.map_err(|_| invalid("the handler does not name a limit".into()))?;
        let config = &shared.config;
        // The parameters were agreed upon with the peer; the rest is this process's choice.
        let deflate =
            saved.deflate.map(|params| (DeflateParams::decode(params), config.upgrade.deflate.unwrap_or_default()));
        let decoder = frames::decoder(role, max_message.unwrap_or(config.limits.max_message), deflate.as_ref());
        let mut out = Outbound::new(role);
        if let Some((params, config)) = &deflate {
            out.set_deflate(*params, config);
        }
        let decoder = DecoderState::decode(&saved.decoder).and_then(|state| decoder.import(&state));
        let mut decoder = decoder.map_err(|error| invalid(error.to_string()))?;
        decoder.set_streaming(shared.config.streaming);
        let encoder = EncoderState::decode(saved.encoder).map_err(|error| invalid(error.to_string()))?;
        let peer = address(&saved.peer).map_err(invalid)?;
        let via = saved.via.as_ref().map(restored_via).transpose().map_err(invalid)?;
        let outgoing =
            saved.outgoing.as_ref().map(|outgoing| target_of(handler, outgoing, &saved.life, &state)).transpose()?;
        let [heard, message] = saved.silent.map(|silent| moved_at.saturating_sub(silent));
        let queued = saved.queue.iter().map(|waiting| (waiting.item(), waiting.drops));
        out.restore(encoder, &saved.cork, saved.streaming, queued).map_err(|error| invalid(error.to_string()))?;
        if saved.drain_owed {
            out.owe_drain();
        }
        let mut wire = Wire::new();
        wire.sealed_mut().put(&saved.unsent);
        let mut carry = Buf::new();
        carry.put(&saved.plain);
        carry.put(&saved.received);
        let mut link = Link {
            token: Token { index: u32::MAX, generation: 0 },
            phase: phase_of(shared, moved_at, &saved.life),
            session,
            cost: HandshakeCost::Plain,
            decoder,
            held: !carry.is_empty(),
            awaits: Awaits::Nothing,
            carry,
            out,
            wire,
            info: Info { peer, dial: None },
            cold: None,
            state,
            paused: saved.paused,
            driver_paused: false,
            dirty: false,
            charged: true,
            kernel: Handover::new(kernel_tls),
            answered: 0,
            ping_sent: saved.ping_sent,
            clock: Clock { heard, phase_end: message, ..Clock::default() },
        };
        if let Life::Idle([_, left]) = saved.life {
            link.clock.phase_end = moved_at + left;
        }
        if saved.subprotocol.is_some() {
            link.cold.get_or_insert_default().subprotocol = saved.subprotocol.map(String::into_boxed_str);
        }
        if via.is_some() {
            link.cold.get_or_insert_default().more().via = via.map(Box::new);
        }
        link.set_plain(saved.plain.len());
        let Saved { topics, prefixes, timers, access, .. } = saved;
        Ok((link, Rest { topics, prefixes, timers, access, outgoing: saved.outgoing.zip(outgoing) }))
    }
}

/// Counts a restored connection, `since` milliseconds after it was saved, and puts it into its slot.
pub(crate) fn place_link<E: Engine, H: Handler>(
    reactor: &mut Reactor<E, H>,
    mut link: Box<Link<E::Session, H::State>>,
    mut rest: Rest,
    since: Tick,
) -> Rest {
    let core = &mut reactor.core;
    let now = core.shared.now;
    if let Some((Outgoing { opened, .. }, target)) = rest.outgoing.take() {
        let id = core.shared.remote.dials().begin();
        let opened = now.saturating_sub(since).saturating_sub(opened);
        let (state, target) = (State::Linked(link.token), Arc::new(target));
        let (address, steps) = (None, Steps::default());
        core.dialer.dials.insert(id, Dial { target, state, failures: 0, opened, ends: false, address, steps });
        link.info.dial = Some(id);
    } else {
        core.admission.count_connection();
        core.admission.enter_again(&core.shared, &link);
        if !matches!(link.phase, Phase::Request(_)) {
            core.access.go_on(&mut link, since, &rest.access, &core.shared);
        }
    }
    core.shared.counters.connections.add(1);
    core.shared.account.add_connection(memory_of(&link, &core.engine));
    match link.phase {
        Phase::Open => core.shared.counters.open.add(1),
        Phase::Request(_) => {
            core.shared.counters.http.add(1);
            core.admission.rejoin_crowd(&link, now);
        }
        _ => {}
    }
    reactor.core.links.put(link);
    rest
}

impl<H: Handler> Application<H> {
    /// Tells the application with which connection another one has arrived.
    pub(crate) fn pair<S>(&mut self, link: &mut Link<S, H::State>, partner: Token, shared: &mut Shared) {
        let shard = shared.shard;
        let (id, partner) = (ConnId { shard, token: link.token }, ConnId { shard, token: partner });
        self.guard(shared, format_args!("the arrival of connection {id}"), |handler, _| {
            handler.on_moved_with(&mut link.state, partner);
        });
    }
}

/// The target of an outgoing connection.
fn target_of<H: Handler>(handler: &mut H, outgoing: &Outgoing, life: &Life, state: &H::State) -> io::Result<Target> {
    if outgoing.reconnects {
        let target = catch_unwind(AssertUnwindSafe(|| handler.restore_target(state)));
        let none = || invalid("the handler knows no target for further connections".to_owned());
        return target.ok().flatten().ok_or_else(none);
    }
    let mut target = Target::new(&outgoing.uri).map_err(|error| invalid(error.to_string()))?;
    target.raw = matches!(life, Life::Raw(_));
    target.silence = outgoing.silence.map(Duration::from_millis);
    Ok(target)
}

fn phase_of(shared: &Shared, moved_at: Tick, life: &Life) -> Phase {
    let head = || Box::new(Head::new(shared.config.limits.head));
    match *life {
        Life::Open => Phase::Open,
        Life::Idle([left, _]) => {
            let mut head = head();
            (head.answered, head.http_end) = (true, Some(moved_at + left));
            Phase::Request(head)
        }
        Life::Raw(SavedRaw { ours, peer_finished, late, status, is_http }) => {
            // close_notify was sealed. FIN may have to follow bytes that the old process has not sent, and a second one is none.
            let ours = if ours == Finish::Done { Finish::Abandoned } else { ours };
            let ends = Linger { ours, peer_finished };
            Phase::Raw(Raw { late, status, ends, ..Raw::new(is_http.then(head)) })
        }
    }
}

pub(crate) fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn restored_via((direct, header): &(String, Vec<u8>)) -> Result<Via, String> {
    let header = if header.is_empty() { None } else { ProxyHeader::read(header).map_err(|error| error.to_string())? };
    Ok(Via::new(address(direct)?, header.map(|(header, _)| header)))
}

/// An address as [`Saved`] has it.
fn address(text: &str) -> Result<Address, String> {
    if text == "unix:" { Ok(Address::UnixUnnamed) } else { text.parse() }
}
