//! Open connections that move from a shard of one process to a shard of another.
//!
//! ```text
//!  old: begin_move ─► save_ahead, turns ─► hold_still ─► save each ───────────► give_away     or the next turn goes on
//!  new:                 └─ restore each                   └─ those that changed:
//!                                                            restore_again, undo ─► begin_restored   or the shard is dropped
//! ```
//! Saving only reads, so the old shard goes on as if nothing had happened until it gives the connections away. The new
//! shard's driver has the sockets when they are restored, and neither reads nor writes before they begin. The caller ensures
//! that exactly one of the two goes on.
//!
//! A connection that was saved ahead goes on changing. The new shard may begin it only with its last state: a session with an
//! earlier one would use nonces twice.

use crate::accept::counting::memory_of;
use crate::counts::outcomes::Outcomes;
use crate::counts::totals::Totals;
use crate::handler::Handler;
use crate::http::access_table::AccessTable;
use crate::ids::ConnId;
use crate::link::info::Info;
use crate::link::kernel_tls::Handover;
use crate::link::phase::Phase;
use crate::link::state::{Awaits, Clock, HandshakeCost, Link};
use crate::moving::restored::{Rest, Restored};
use crate::moving::saved::{Saved, Secret, Waiting};
use crate::shard::Shard;
use crate::topics::topic::Scope;
use crate::turn::reactor::Reactor;
use crate::turn::shared::Shared;
use crate::turn::slot::Slot;
use crate::turn::timer::Tick;
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use tautline_buf::Buf;
use tautline_conn::frames;
use tautline_conn::front::Via;
use tautline_conn::outbound::Outbound;
use tautline_conn::proxy_header::ProxyHeader;
use tautline_conn::wire::Wire;
use tautline_io::{Address, Driver, Token};
use tautline_tls::{Engine, Session};
use tautline_ws::deflate::DeflateParams;
use tautline_ws::{DecoderState, EncoderState, Role};
use zeroize::Zeroizing;

/// The numbers of connections that cannot move, by the reason.
///
/// ```
/// # mod tautline { pub use tautline_engine::Staying; }
/// use tautline::Staying;
///
/// let mut all = Staying::default();
/// all.merge(&Staying::default());
/// assert_eq!((all.total(), all.to_string()), (0, "none".into()));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Staying {
    /// In their opening handshake, or plain HTTP.
    pub handshaking: usize,
    /// Closing already.
    pub closing: usize,
    /// Outgoing: a client's.
    pub outgoing: usize,
    /// In the middle of a compressed message from the peer.
    pub compressed: usize,
    /// With a TLS session that cannot be saved: TLS 1.2, records of a library or the kernel, a secret for exporters.
    pub tls: usize,
    /// With a socket that the driver cannot give away.
    pub socket: usize,
    /// With a state that the handler does not save.
    pub state: usize,
}

/// The names of the reasons, and the same in words for an operator.
const REASONS: [(&str, &str); 7] = [
    ("handshaking", "without a WebSocket"),
    ("closing", "closing"),
    ("outgoing", "outgoing"),
    ("compressed", "in the middle of a compressed message"),
    ("tls", "with a TLS session that cannot be saved"),
    ("socket", "with a socket that cannot be given away"),
    ("state", "with a state that the handler does not save"),
];

impl Staying {
    /// The numbers with the names of their reasons, which are those of the fields.
    pub fn by_reason(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let counts =
            [self.handshaking, self.closing, self.outgoing, self.compressed, self.tls, self.socket, self.state];
        REASONS.into_iter().map(|(name, _)| name).zip(counts)
    }

    /// Adds to the number of the reason with this name. Nothing happens if it is unknown.
    pub fn add(&mut self, reason: &str, more: usize) {
        let count = match reason {
            "handshaking" => &mut self.handshaking,
            "closing" => &mut self.closing,
            "outgoing" => &mut self.outgoing,
            "compressed" => &mut self.compressed,
            "tls" => &mut self.tls,
            "socket" => &mut self.socket,
            "state" => &mut self.state,
            _ => return,
        };
        *count += more;
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> usize {
        self.by_reason().map(|(_, count)| count).sum()
    }

    /// Adds the numbers of another shard.
    pub fn merge(&mut self, other: &Self) {
        other.by_reason().for_each(|(reason, more)| self.add(reason, more));
    }
}

/// Names the reasons that apply, or prints `none`.
impl fmt::Display for Staying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let some = self.by_reason().zip(REASONS).filter(|((_, count), _)| *count > 0);
        let some: Vec<_> = some.map(|((_, count), (_, what))| format!("{count} {what}")).collect();
        f.write_str(if some.is_empty() { "none" } else { "" })?;
        f.write_str(&some.join(", "))
    }
}

/// Takes a saved connection with its socket, which the shard keeps open for `'s`.
type Give<'g, 's> = dyn FnMut(ConnId, BorrowedFd<'s>, &[u8]) -> io::Result<()> + 'g;

/// Takes a saved connection as [`Give`] does, or `None` for a slot without one. It breaks if that is enough for now.
type GiveAhead<'g, 's> = dyn FnMut(Option<(ConnId, BorrowedFd<'s>, &[u8])>) -> io::Result<ControlFlow<()>> + 'g;

impl<E: Engine, H: Handler> Shard<E, H> {
    /// Handles the commands that wait and sends their output, without reading from any connection.
    ///
    /// Shards publish to each other. If all of them do this twice before they save, no message is left between them.
    pub fn settle(&mut self) {
        self.reactor.core.refresh();
        self.reactor.handle_commands(&mut *self.driver);
        self.reactor.deliver_all(&mut *self.driver);
    }

    /// Begins a move: until this is called again, saved times count up to now, so that bytes differ only if a connection does.
    pub fn begin_move(&mut self) {
        self.reactor.core.refresh();
        self.reactor.move_began = Some(self.reactor.core.shared.now);
    }

    /// Saves connections that can move and calls `give` as [`save`](Self::save) does, but while they go on. It looks at the
    /// slots from `from` on until `give` breaks. Returns the next slot, or `None` after the last one.
    ///
    /// Some drivers give only connections that [hold still](Self::hold_still).
    ///
    /// # Errors
    /// The first error of `give`.
    pub fn save_ahead<'s>(&'s mut self, from: usize, give: &mut GiveAhead<'_, 's>) -> io::Result<Option<usize>> {
        self.reactor.core.refresh();
        let (now, mut room) = (self.reactor.moved_at(), Room::new());
        let Self { driver, reactor: Reactor { core, .. } } = self;
        for (number, slot) in core.slots.iter_mut().enumerate().skip(from) {
            let given = match slot {
                // Saving a compressor within a message makes it send what it holds.
                Slot::Link(link) if !link.out.is_streaming() => {
                    match save(&**driver, &mut core.handler, link, &mut core.shared, (now, &mut room)) {
                        Ok((socket, mut saved)) => {
                            saved.access = saved_access(&mut core.access.table, link.token, &core.shared, now);
                            let conn = ConnId { shard: core.shared.shard, token: link.token };
                            give(Some((conn, socket, room.encode(saved))))?
                        }
                        Err(_) => give(None)?,
                    }
                }
                _ => give(None)?,
            };
            if given.is_break() {
                return Ok(Some(number + 1));
            }
        }
        Ok(None)
    }

    /// Has nothing of any connection move until the next turn.
    ///
    /// # Errors
    /// The driver cannot give connections away, or fails. The next turn goes on.
    pub fn hold_still(&mut self) -> io::Result<()> {
        self.driver.hold_still()
    }

    /// Saves each connection that can move, after [`hold_still`](Self::hold_still), and calls `give` with its socket and its
    /// bytes. These hold its keys. Returns the numbers of the others.
    ///
    /// # Errors
    /// The first error of `give`.
    pub fn save<'s>(&'s mut self, give: &mut Give<'_, 's>) -> io::Result<Staying> {
        self.reactor.core.refresh();
        let (now, mut room) = (self.reactor.moved_at(), Room::new());
        let mut staying = Staying::default();
        let Self { driver, reactor: Reactor { core, .. } } = self;
        for slot in &mut core.slots {
            match slot {
                Slot::Free => {}
                Slot::Attempt(..) => staying.outgoing += 1,
                Slot::Link(link) => {
                    match save(&**driver, &mut core.handler, link, &mut core.shared, (now, &mut room)) {
                        Ok((socket, mut saved)) => {
                            saved.access = saved_access(&mut core.access.table, link.token, &core.shared, now);
                            give(ConnId { shard: core.shared.shard, token: link.token }, socket, room.encode(saved))?;
                        }
                        Err(reason) => *reason(&mut staying) += 1,
                    }
                }
            }
        }
        Ok(staying)
    }

    /// Forgets connections that another process has taken over. Nothing is reported to the handler, since they have not ended.
    pub fn give_away(&mut self, conns: &[ConnId]) {
        for conn in conns {
            if let Some(link) = self.reactor.take(conn.token) {
                self.reactor.forget(&mut *self.driver, link);
            }
        }
    }

    /// The totals so far, for the shard that takes over: [`Counters`](crate::Counters) without the present numbers, and
    /// [`Outcomes`](crate::Outcomes).
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.counters().put_totals(&mut totals);
        self.reactor.core.shared.remote.outcomes().put_totals(&mut totals);
        totals
    }

    /// Adds the totals of a shard whose connections this one takes over. Names that this build does not know are left out.
    pub fn add_totals(&mut self, totals: &Totals) {
        let mut outcomes = Outcomes::default();
        for (name, value) in totals.iter() {
            if !self.reactor.core.shared.counters.add_named(name, value) {
                outcomes.add_total(name, value);
            }
        }
        self.reactor.core.shared.remote.live_outcomes().add(&outcomes);
        if let Some(access) = &mut self.reactor.core.access.table {
            access.skip(&self.reactor.core.shared.counters);
        }
    }

    /// Copies of the listening sockets, for another process.
    ///
    /// # Errors
    /// The driver cannot give them.
    pub fn listening(&self) -> io::Result<Vec<OwnedFd>> {
        self.driver.listening()
    }

    /// Stops accepting, and leaves the listening sockets to the process that has copies of them.
    pub fn give_listening_away(&mut self) {
        self.driver.give_listening_away();
    }

    /// Takes a connection that another process has [saved](Self::save), and returns its number among those that were taken. It
    /// does not begin yet: no turn may come before [`begin_restored`](Self::begin_restored).
    ///
    /// # Errors
    /// The bytes are no connection that this shard can go on with, or the driver cannot take it. The other process keeps it then.
    pub fn restore(&mut self, socket: OwnedFd, saved: &[u8]) -> io::Result<usize> {
        self.reactor.core.refresh();
        if self.reactor.restored.is_empty() {
            self.driver.hold_still()?;
            self.reactor.move_began = Some(self.reactor.core.shared.now);
        }
        let Self { driver, reactor } = self;
        // The driver comes last, since nothing can fail behind it.
        let (link, rest) = reactor.restore(Saved::decode(saved)?, || driver.adopt(socket))?;
        let link = reactor.core.batch_alloc.place(link);
        reactor.restored.push(Some(Restored { link, rest }));
        Ok(reactor.restored.len() - 1)
    }

    /// Takes a later state of the connection with this number.
    ///
    /// # Errors
    /// There is no such connection, or this shard cannot go on with it. It is [undone](Self::undo_restore) then.
    pub fn restore_again(&mut self, number: usize, saved: &[u8]) -> io::Result<()> {
        let none = || io::Error::new(io::ErrorKind::NotFound, "no connection with this number has arrived");
        let token = self.reactor.restored.get(number).and_then(Option::as_ref).ok_or_else(none)?.link.token;
        let later = Saved::decode(saved).and_then(|saved| self.reactor.restore(saved, || Ok(token)));
        if later.is_err() {
            self.undo_restore(number);
        }
        let (link, rest) = later?;
        if let Some(Some(restored)) = self.reactor.restored.get_mut(number) {
            (*restored.link, restored.rest) = (link, rest);
        }
        Ok(())
    }

    /// Closes this process's descriptor of the connection with this number: the other process keeps the connection.
    pub fn undo_restore(&mut self, number: usize) {
        if let Some(restored) = self.reactor.restored.get_mut(number).and_then(Option::take) {
            self.driver.give_away(restored.link.token);
        }
    }

    /// Begins all connections that were restored, and returns their number. From now on they are this shard's.
    pub fn begin_restored(&mut self) -> usize {
        self.reactor.core.refresh();
        let since = self.reactor.core.shared.now.saturating_sub(self.reactor.moved_at());
        let restored = std::mem::take(&mut self.reactor.restored);
        let mut count = 0;
        for one in restored.into_iter().flatten() {
            self.reactor.begin_link(&mut *self.driver, one, since);
            count += 1;
        }
        count
    }
}

/// Memory that all connections of a save use one after the other. It is wiped once.
struct Room {
    session: Secret,
    encoded: Zeroizing<Vec<u8>>,
}

impl Room {
    fn new() -> Self {
        Self { session: Secret(Vec::with_capacity(4096)), encoded: Zeroizing::new(Vec::with_capacity(4096)) }
    }

    /// The connection as bytes.
    fn encode(&mut self, saved: Saved) -> &[u8] {
        saved.encode_into(&mut self.encoded);
        self.session = saved.session;
        &self.encoded
    }
}

/// The entry of the access log, if there is one.
fn saved_access(access: &mut Option<Box<AccessTable>>, token: Token, shared: &Shared, now: Tick) -> Vec<u8> {
    let mut saved = Vec::new();
    if let Some(table) = access {
        table.save(token, &shared.counters, now, &mut saved);
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

fn restored_via((direct, header): &(String, Vec<u8>)) -> Result<Via, String> {
    let header = if header.is_empty() { None } else { ProxyHeader::read(header).map_err(|error| error.to_string())? };
    Ok(Via::new(address(direct)?, header.map(|(header, _)| header)))
}

/// An address as [`Saved`] has it.
fn address(text: &str) -> Result<Address, String> {
    if text == "unix:" { Ok(Address::UnixUnnamed) } else { text.parse() }
}

type Reason = fn(&mut Staying) -> &mut usize;

fn save<'d, S: Session, H: Handler>(
    driver: &'d dyn Driver,
    handler: &mut H,
    link: &mut Link<S, H::State>,
    shared: &mut Shared,
    (now, room): (Tick, &mut Room),
) -> Result<(BorrowedFd<'d>, Saved), Reason> {
    match link.phase {
        Phase::Open => {}
        ref phase if phase.is_handshaking() => return Err(|staying| &mut staying.handshaking),
        _ => return Err(|staying| &mut staying.closing),
    }
    if link.info.dial.is_some() {
        return Err(|staying| &mut staying.outgoing);
    }
    room.session.0.clear();
    if link.kernel.in_kernel() || link.session.save(&mut room.session.0).is_err() {
        return Err(|staying| &mut staying.tls);
    }
    let held = driver.held(link.token).ok_or((|staying| &mut staying.socket) as Reason)?;
    let mut state = Vec::new();
    let saves = catch_unwind(AssertUnwindSafe(|| handler.save_state(&mut link.state, &mut state)));
    if !saves.unwrap_or(false) {
        return Err(|staying| &mut staying.state);
    }
    let closing: Reason = |staying| &mut staying.closing;
    let mut decoder = Vec::new();
    let state_of_decoder = link.decoder.state(&mut shared.pool).map_err(|error| match error {
        tautline_ws::Error::ApiMisuse(_) => (|staying| &mut staying.compressed) as Reason,
        _ => closing,
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
    saved.encoder = link.out.save(shared.means()).map_err(|_| closing)?.encode();
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
    // At last: an early return keeps the memory.
    saved.session = std::mem::take(&mut room.session);
    Ok((held.socket, saved))
}

impl<E: Engine, H: Handler> Reactor<E, H> {
    /// Forgets a connection that has moved.
    fn forget(&mut self, driver: &mut dyn Driver, mut link: Box<Link<E::Session, H::State>>) {
        self.core.shared.counters.open.sub(1);
        self.core.shared.unsubscribe_all(&mut link);
        if let Some(handle) = link.cold.as_mut().and_then(|cold| cold.more.as_mut()?.handle.take()) {
            handle.end();
        }
        driver.give_away(link.token);
        self.core.drop_link(link);
    }

    /// Makes a saved connection, whose token `adopt` returns at last.
    #[expect(clippy::type_complexity, reason = "a link, and what is left when it begins")]
    fn restore(
        &mut self,
        saved: Saved,
        adopt: impl FnOnce() -> io::Result<Token>,
    ) -> io::Result<(Link<E::Session, H::State>, Rest)> {
        let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let session = self.core.engine.restore(&saved.session.0).map_err(|error| invalid(error.to_string()))?;
        let config = &self.core.shared.config;
        // The parameters were agreed upon with the peer; the rest is this process's choice.
        let deflate =
            saved.deflate.map(|params| (DeflateParams::decode(params), config.upgrade.deflate.unwrap_or_default()));
        let decoder = frames::decoder(Role::Server, config.limits.max_message, deflate.as_ref());
        let mut out = Outbound::new(Role::Server);
        if let Some((params, config)) = &deflate {
            out.set_deflate(*params, config);
        }
        let decoder = DecoderState::decode(&saved.decoder).and_then(|state| decoder.import(&state));
        let mut decoder = decoder.map_err(|error| invalid(error.to_string()))?;
        decoder.set_streaming(self.core.shared.config.streaming);
        let encoder = EncoderState::decode(saved.encoder).map_err(|error| invalid(error.to_string()))?;
        let peer = address(&saved.peer).map_err(invalid)?;
        let via = saved.via.as_ref().map(restored_via).transpose().map_err(invalid)?;
        let state = catch_unwind(AssertUnwindSafe(|| self.core.handler.restore_state(&saved.state)));
        let state = state.ok().flatten().ok_or_else(|| invalid("the handler does not restore its state".into()))?;
        let [heard, message] = saved.silent.map(|silent| self.moved_at().saturating_sub(silent));
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
            token: adopt()?,
            phase: Phase::Open,
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
            kernel: Handover::new(self.core.kernel_tls),
            answered: 0,
            ping_sent: saved.ping_sent,
            clock: Clock { heard, phase_end: message, ..Clock::default() },
        };
        if saved.subprotocol.is_some() {
            link.cold.get_or_insert_default().subprotocol = saved.subprotocol.map(String::into_boxed_str);
        }
        if via.is_some() {
            link.cold.get_or_insert_default().more().via = via.map(Box::new);
        }
        link.set_plain(saved.plain.len());
        let Saved { topics, prefixes, timers, access, .. } = saved;
        Ok((link, Rest { topics, prefixes, timers, access }))
    }

    /// The time up to which saved times count.
    fn moved_at(&self) -> Tick {
        self.move_began.unwrap_or(self.core.shared.now)
    }

    /// Begins a restored connection, `since` milliseconds after it was saved: its socket is read from now on.
    fn begin_link(&mut self, driver: &mut dyn Driver, restored: Restored<E::Session, H::State>, since: Tick) {
        let Restored { link, rest: Rest { topics, prefixes, timers, access } } = restored;
        if let Some(table) = &mut self.core.access.table {
            table.restore(link.token, &self.core.shared.counters, self.core.shared.now.saturating_sub(since), &access);
        }
        self.core.shared.counters.connections.add(1);
        self.core.shared.counters.open.add(1);
        self.core.shared.account.add_connection(memory_of(&link, &self.core.engine));
        self.core.admission.count_connection();
        self.visit_link(driver, link, |core, driver, link| {
            core.schedule(link);
            link.lend(Some(driver), &mut core.shared, |conn| {
                topics.iter().for_each(|topic| _ = conn.subscribe(topic));
                prefixes.iter().for_each(|prefix| _ = conn.subscribe_prefix(prefix));
                timers
                    .iter()
                    .for_each(|(id, due)| conn.set_timer(Duration::from_millis(due.saturating_sub(since)), *id));
                core.handler.on_restored(conn);
            });
            if link.held {
                // Thousands may have input that waits, and all of them begin at once.
                core.rest(link);
            }
        });
    }
}
