//! Connections as bytes: the process that gives them away.

use crate::dial::target::Dial;
use crate::handler::Handler;
use crate::http::access_table::AccessTable;
use crate::ids::{ConnId, DialId, Movers};
use crate::link::phase::{Phase, Wish};
use crate::link::state::Link;
use crate::moving::saved::{Life, Outgoing, Saved, SavedRaw, Secret, Waiting, encode_into};
use crate::moving::staying::Staying;
use crate::topics::topic::Scope;
use crate::turn::core::Core;
use crate::turn::panics::Application;
use crate::turn::shared::Shared;
use crate::turn::timer::Tick;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tautline_buf::Buf;
use tautline_conn::front::Via;
use tautline_conn::tick::millis;
use tautline_io::Driver;
use tautline_tls::{Engine, Session};
use tautline_ws::deflate::DeflateParams;
use zeroize::Zeroizing;

/// The result for the connections in a slot.
pub(crate) enum Saving {
    /// There are none, or they are saved with those of an earlier slot.
    Nothing,
    Stays(Reason, usize),
    /// They are in the room.
    Moves(Movers),
}

/// Memory that all connections of a save use one after the other. It is wiped once.
pub(crate) struct Room<'d> {
    sessions: Vec<Secret>,
    saved: Vec<Saved>,
    pub(crate) sockets: Vec<BorrowedFd<'d>>,
    pub(crate) encoded: Zeroizing<Vec<u8>>,
}

impl Room<'_> {
    pub(crate) fn new() -> Self {
        let encoded = Zeroizing::new(Vec::with_capacity(4096));
        Self { sessions: Vec::new(), saved: Vec::new(), sockets: Vec::new(), encoded }
    }

    /// Empty memory for a TLS session.
    fn session(&mut self) -> Secret {
        self.sessions.pop().unwrap_or_else(|| Secret(Vec::with_capacity(4096)))
    }

    fn give_session(&mut self, mut session: Secret) {
        session.0.clear();
        self.sessions.push(session);
    }

    /// Encodes the connections that were saved.
    fn encode(&mut self) {
        encode_into(&self.saved, &mut self.encoded);
    }

    /// Forgets the connections that were saved.
    fn clear(&mut self) {
        self.sockets.clear();
        while let Some(saved) = self.saved.pop() {
            self.give_session(saved.session);
        }
    }
}

/// The entry of the access log, if there is one.
fn saved_access<S, T>(access: &mut Option<Box<AccessTable>>, link: &Link<S, T>, shared: &Shared, now: Tick) -> Vec<u8> {
    let mut saved = Vec::new();
    if let Some(table) = access {
        let notes = if let Phase::Raw(raw) = &link.phase { raw.head.as_ref().map(|head| &head.notes) } else { None };
        table.save(link.token, &shared.counters, now, notes, &mut saved);
    }
    saved
}

/// The way of a client, as [`Saved`] has it.
fn saved_via(via: &Via) -> (String, Vec<u8>) {
    let mut out = Buf::new();
    // It was read from such bytes, so it can be written.
    let written = via.header.as_ref().is_some_and(|header| header.write_v2(false, &mut out).is_ok());
    (via.direct.to_string(), if written { out.filled().to_vec() } else { Vec::new() })
}

pub(crate) type Reason = fn(&mut Staying) -> &mut usize;

const CLOSING: Reason = |staying| &mut staying.closing;

/// The connections that have to move with the one in a slot.
enum Together {
    Nobody,
    /// The connection of an earlier slot.
    Earlier,
    /// That of this slot, which is to be in another place.
    Other(usize),
    /// The other one does not move, or is not there any more.
    Torn,
}

/// The connection with which one moves.
fn partner_of<S, H: Handler>(handler: &H, link: &Link<S, H::State>) -> Result<Option<ConnId>, ()> {
    if !matches!(link.phase, Phase::Open | Phase::Raw(_)) {
        return Ok(None);
    }
    // A panic is none of its events. It stays, and is told of the end.
    catch_unwind(AssertUnwindSafe(|| handler.moves_with(&link.state))).map_err(drop)
}

fn together<E: Engine, H: Handler>(core: &Core<E, H>, link: &Link<E::Session, H::State>) -> Together {
    let Core { links, application: Application { handler, .. }, shared, .. } = core;
    let own = ConnId { shard: shared.shard, token: link.token };
    let partner = match partner_of(handler, link) {
        Ok(Some(partner)) => partner,
        Ok(None) => return Together::Nobody,
        Err(()) => return Together::Torn,
    };
    let index = partner.token.index as usize;
    match links.get(partner.token) {
        Some(other) if partner.shard == own.shard && partner != own => match partner_of(handler, other) {
            Ok(Some(back)) if back == own && index < own.token.index as usize => Together::Earlier,
            Ok(Some(back)) if back == own => Together::Other(index),
            _ => Together::Torn,
        },
        _ => Together::Torn,
    }
}

/// Saves the connection in a slot into the room, together with the one that it moves with.
pub(crate) fn save_slot<'d, E: Engine, H: Handler>(
    driver: &'d dyn Driver,
    core: &mut Core<E, H>,
    number: usize,
    (ahead, now): (bool, Tick),
    room: &mut Room<'d>,
) -> Saving {
    room.clear();
    let Some(link) = core.links.at(number) else { return Saving::Nothing };
    let shard = core.shared.shard;
    let first = ConnId { shard, token: link.token };
    let other = match together(core, link) {
        Together::Nobody => None,
        Together::Earlier => return Saving::Nothing,
        Together::Torn => return Saving::Stays(CLOSING, 1),
        Together::Other(index) => Some(index),
    };
    let mut second = None;
    for index in [number].into_iter().chain(other) {
        let Some(link) = core.links.at_mut(index) else { return Saving::Nothing };
        if index != number {
            second = Some(ConnId { shard, token: link.token });
        }
        // Saving a compressor within a message makes it send what it holds.
        if ahead && link.out.is_streaming() {
            return Saving::Nothing;
        }
        match save(driver, core, index, now, room) {
            Ok((socket, saved)) => {
                room.saved.push(saved);
                room.sockets.push(socket);
            }
            Err(reason) => return Saving::Stays(reason, 1 + usize::from(other.is_some())),
        }
    }
    room.encode();
    Saving::Moves(Movers::new(first, second))
}

/// The part of its life in which a connection can move.
fn life_of<S, T>(link: &Link<S, T>, now: Tick) -> Result<Life, Reason> {
    match &link.phase {
        Phase::Open if link.out.is_push() => Err(|staying| &mut staying.handshaking),
        Phase::Open => Ok(Life::Open),
        // It carries other connections, which cannot move.
        Phase::Raw(raw) if raw.carrier.is_some() => Err(|staying| &mut staying.http2),
        Phase::Raw(raw) if raw.wish == Wish::Stay => Ok(Life::Raw(SavedRaw {
            ours: raw.ends.ours,
            peer_finished: raw.ends.peer_finished,
            late: raw.late,
            status: raw.status,
            is_http: raw.head.is_some(),
        })),
        Phase::Request(head) if !head.has_begun() && link.carry.is_empty() && head.http_end.is_some() => {
            let left = [head.http_end.unwrap_or(now), link.clock.phase_end];
            Ok(Life::Idle(left.map(|end| end.saturating_sub(now))))
        }
        phase if phase.is_handshaking() => Err(|staying| &mut staying.handshaking),
        _ => Err(CLOSING),
    }
}

/// The target of an outgoing connection.
fn outgoing_of(dials: &HashMap<DialId, Dial>, id: DialId, now: Tick) -> Result<Outgoing, Reason> {
    let Some(Dial { target, opened, ends: false, .. }) = dials.get(&id) else { return Err(CLOSING) };
    Ok(Outgoing {
        uri: target.uri.to_string(),
        silence: target.silence.map(millis),
        reconnects: target.reconnect.is_some(),
        opened: now.saturating_sub(*opened),
    })
}

fn save<'d, E: Engine, H: Handler>(
    driver: &'d dyn Driver,
    core: &mut Core<E, H>,
    index: usize,
    now: Tick,
    room: &mut Room<'d>,
) -> Result<(BorrowedFd<'d>, Saved), Reason> {
    let Core { application: Application { handler, .. }, links, shared, dialer, access, .. } = core;
    let Some(link) = links.at_mut(index) else { return Err(CLOSING) };
    if driver.carrier(link.token).is_some() {
        return Err(|staying| &mut staying.http2);
    }
    let life = life_of(link, now)?;
    let outgoing = link.info.dial.map(|id| outgoing_of(&dialer.dials, id, now)).transpose()?;
    let mut session = room.session();
    if link.kernel.in_kernel() || link.session.save(&mut session.0).is_err() {
        room.give_session(session);
        return Err(|staying| &mut staying.tls);
    }
    let saved = save_rest(driver, handler, link, shared, now);
    match saved {
        Ok((socket, saved)) => {
            let access = match life {
                Life::Idle(_) => Vec::new(),
                _ if outgoing.is_some() => Vec::new(),
                _ => saved_access(&mut access.table, link, shared, now),
            };
            Ok((socket, Saved { session, access, life, outgoing, ..saved }))
        }
        Err(reason) => {
            room.give_session(session);
            Err(reason)
        }
    }
}

fn save_rest<'d, S: Session, H: Handler>(
    driver: &'d dyn Driver,
    handler: &mut H,
    link: &mut Link<S, H::State>,
    shared: &mut Shared,
    now: Tick,
) -> Result<(BorrowedFd<'d>, Saved), Reason> {
    let held = driver.held(link.token).ok_or((|staying| &mut staying.socket) as Reason)?;
    let mut state = Vec::new();
    let saves = catch_unwind(AssertUnwindSafe(|| handler.save_state(&mut link.state, &mut state)));
    if !saves.unwrap_or(false) {
        return Err(match link.phase {
            Phase::Raw(_) => |staying| &mut staying.forwarding,
            Phase::Request(_) => |staying| &mut staying.handshaking,
            _ => |staying| &mut staying.state,
        });
    }
    let mut decoder = Vec::new();
    let state_of_decoder = link.decoder.state(&mut shared.pool).map_err(|error| match error {
        tautline_ws::Error::ApiMisuse(_) => (|staying| &mut staying.compressed) as Reason,
        _ => CLOSING,
    });
    state_of_decoder?.encode(&mut decoder);
    let plain = link.plain().min(link.carry.len());
    let mut saved = Saved {
        peer: link.info.peer.to_string(),
        decoder,
        received: [&link.carry.filled()[plain..], held.received].concat(),
        plain: link.carry.filled()[..plain].to_vec(),
        unsent: [held.unsent, link.wire.sealed_mut().filled()].concat(),
        paused: link.paused,
        ping_sent: link.ping_sent,
        silent: [now.saturating_sub(link.clock.heard), now.saturating_sub(link.clock.phase_end)],
        state,
        deflate: link.out.deflate().map(DeflateParams::encode),
        ..Saved::default()
    };
    saved.encoder = link.out.save(shared.means()).map_err(|_| CLOSING)?.encode();
    saved.cork = link.out.cork().frames().filled().to_vec();
    (saved.streaming, saved.drain_owed) = (link.out.streaming(), link.out.owes_drain());
    saved.queue = link.out.queued().map(|(item, drops)| Waiting::new(item, drops)).collect();
    if let Some(cold) = &link.cold {
        saved.subprotocol = cold.subprotocol.as_deref().map(str::to_owned);
        let names = |scope| -> Vec<String> {
            cold.names(scope).iter().flat_map(|names| names.list()).map(|name| name.as_ref().into()).collect()
        };
        (saved.topics, saved.prefixes) = (names(Scope::Exact), names(Scope::Prefix));
        saved.via = cold.via().map(saved_via);
        if let Some(more) = &cold.more {
            let running = more.timers.iter().filter(|timer| timer.at != Tick::MAX);
            saved.timers = running.map(|timer| (timer.id, timer.at.saturating_sub(now))).collect();
        }
    }
    Ok((held.socket, saved))
}
