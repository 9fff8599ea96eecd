//! Open connections that move from a shard of one process to a shard of another.
//!
//! ```text
//!  old: hold_still ─► save each ───────────────────────────► give_away        or the next turn goes on
//!  new:                 └─ socket, bytes ─► restore each ─► begin_restored    or the shard is dropped
//! ```
//! Saving only reads, so the old shard goes on as if nothing had happened until it gives the connections away. The new
//! shard's driver has the sockets when they are restored, and neither reads nor writes before they begin. The caller ensures
//! that exactly one of the two goes on.

use crate::core::{Core, Slot};
use crate::handler::Handler;
use crate::handover::Handover;
use crate::ids::ConnId;
use crate::info::Info;
use crate::link::{Clock, HandshakeCost, Link};
use crate::outbound::Outbound;
use crate::outcomes::Outcomes;
use crate::phase::Phase;
use crate::restored::Restored;
use crate::saved::{Saved, Secret};
use crate::shard::Shard;
use crate::shared::Shared;
use crate::timer::Tick;
use crate::totals::Totals;
use crate::wire::Wire;
use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use tautline_buf::Buf;
use tautline_io::{Address, Driver};
use tautline_tls::{Engine, Session};
use tautline_ws::deflate::{DeflateParams, Inflater};
use tautline_ws::{Decoder, DecoderState, EncoderState, Role};

/// The numbers of connections that cannot move, by the reason.
///
/// ```
/// use tautline_engine::Staying;
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

impl<E: Engine, H: Handler> Shard<E, H> {
    /// Handles the commands that wait and sends their output, without reading from any connection.
    ///
    /// Shards publish to each other. If all of them do this twice before they save, no message is left between them.
    pub fn settle(&mut self) {
        self.core.refresh();
        self.core.handle_commands(&mut *self.driver);
        self.core.deliver_all(&mut *self.driver);
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
        self.core.refresh();
        let mut staying = Staying::default();
        let Self { driver, core } = self;
        for slot in &mut core.slots {
            match slot {
                Slot::Free => {}
                Slot::Attempt(..) => staying.outgoing += 1,
                Slot::Link(link) => match save(&**driver, &mut core.handler, link, &mut core.shared) {
                    Ok((socket, saved)) => {
                        give(ConnId { shard: core.shared.shard, token: link.token }, socket, &saved.encode())?;
                    }
                    Err(reason) => *reason(&mut staying) += 1,
                },
            }
        }
        Ok(staying)
    }

    /// Forgets connections that another process has taken over. Nothing is reported to the handler, since they have not ended.
    pub fn give_away(&mut self, conns: &[ConnId]) {
        for conn in conns {
            if let Some(link) = self.core.take(conn.token) {
                self.core.forget(&mut *self.driver, link);
            }
        }
    }

    /// The totals so far, for the shard that takes over: [`Counters`](crate::Counters) without the present numbers, and
    /// [`Outcomes`](crate::Outcomes).
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.counters().put_totals(&mut totals);
        self.core.shared.remote.outcomes().put_totals(&mut totals);
        totals
    }

    /// Adds the totals of a shard whose connections this one takes over. Names that this build does not know are left out.
    pub fn add_totals(&mut self, totals: &Totals) {
        let mut outcomes = Outcomes::default();
        for (name, value) in totals.iter() {
            if !self.core.shared.counters.add_named(name, value) {
                outcomes.add_total(name, value);
            }
        }
        self.core.shared.remote.live_outcomes().add(&outcomes);
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

    /// Takes a connection that another process has [saved](Self::save). It does not begin yet: no turn may come before
    /// [`begin_restored`](Self::begin_restored).
    ///
    /// # Errors
    /// The bytes are no connection that this shard can go on with, or the driver cannot take it. The other process keeps it then.
    pub fn restore(&mut self, socket: OwnedFd, saved: &[u8]) -> io::Result<()> {
        self.core.refresh();
        if self.core.restored.is_empty() {
            self.driver.hold_still()?;
        }
        let restored = self.core.restore(&mut *self.driver, socket, Saved::decode(saved)?)?;
        self.core.restored.push(restored);
        Ok(())
    }

    /// Begins all connections that were restored, and returns their number. From now on they are this shard's.
    pub fn begin_restored(&mut self) -> usize {
        self.core.refresh();
        let restored = std::mem::take(&mut self.core.restored);
        let count = restored.len();
        restored.into_iter().for_each(|one| self.core.begin_link(&mut *self.driver, one));
        count
    }
}

type Reason = fn(&mut Staying) -> &mut usize;

fn save<'d, S: Session, H: Handler>(
    driver: &'d dyn Driver,
    handler: &mut H,
    link: &mut Link<S, H::State>,
    shared: &mut Shared,
) -> Result<(BorrowedFd<'d>, Saved), Reason> {
    match link.phase {
        Phase::Open => {}
        ref phase if phase.is_handshaking() => return Err(|staying| &mut staying.handshaking),
        _ => return Err(|staying| &mut staying.closing),
    }
    if link.info.dial.is_some() {
        return Err(|staying| &mut staying.outgoing);
    }
    let mut session = Secret(Vec::with_capacity(4096));
    if link.kernel.in_kernel() || link.session.save(&mut session.0).is_err() {
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
    let now = shared.now;
    let mut saved = Saved {
        peer: link.info.peer.to_string(),
        session,
        decoder,
        received: [link.carry.filled(), held.received].concat(),
        unsent: [held.unsent, link.wire.sealed_mut().filled()].concat(),
        paused: link.paused,
        ping_sent: link.ping_sent,
        silent: [now.saturating_sub(link.clock.heard), now.saturating_sub(link.clock.phase_end)],
        state,
        deflate: link.out.deflate().map(DeflateParams::encode),
        ..Saved::default()
    };
    link.out.save(&mut saved, shared).map_err(|_| closing)?;
    if let Some(cold) = &link.cold {
        saved.subprotocol = cold.subprotocol.as_deref().map(str::to_owned);
        saved.topics = cold.subscriptions.iter().map(|topic| topic.as_ref().into()).collect();
        if let Some(more) = &cold.more {
            saved.prefixes = more.prefixes.iter().map(|prefix| prefix.as_ref().into()).collect();
            let running = more.timers.iter().filter(|timer| timer.at != Tick::MAX);
            saved.timers = running.map(|timer| (timer.id, timer.at.saturating_sub(now))).collect();
        }
    }
    Ok((held.socket, saved))
}

impl<E: Engine, H: Handler> Core<E, H> {
    /// Forgets a connection that has moved.
    fn forget(&mut self, driver: &mut dyn Driver, mut link: Box<Link<E::Session, H::State>>) {
        self.shared.counters.open.sub(1);
        self.unsubscribe_all(&mut link);
        if let Some(handle) = link.cold.as_mut().and_then(|cold| cold.more.as_mut()?.handle.take()) {
            handle.end();
        }
        driver.give_away(link.token);
        self.drop_link(link);
    }

    fn restore(
        &mut self,
        driver: &mut dyn Driver,
        socket: OwnedFd,
        saved: Saved,
    ) -> io::Result<Restored<E::Session, H::State>> {
        let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let session = self.engine.restore(&saved.session.0).map_err(|error| invalid(error.to_string()))?;
        let mut decoder = Decoder::new(Role::Server, self.shared.config.limits.max_message);
        let mut out = Outbound::new(Role::Server);
        if let Some(params) = saved.deflate.map(DeflateParams::decode) {
            // The parameters were agreed upon with the peer; the rest is this process's choice.
            let config = self.shared.config.upgrade.deflate.unwrap_or_default();
            decoder = decoder.with_inflater(Inflater::new(&params, Role::Server, config.max_ratio));
            out.set_deflate(params, &config);
        }
        let decoder = DecoderState::decode(&saved.decoder).and_then(|state| decoder.import(&state));
        let mut decoder = decoder.map_err(|error| invalid(error.to_string()))?;
        decoder.set_streaming(self.shared.config.streaming);
        let encoder = EncoderState::decode(saved.encoder).map_err(|error| invalid(error.to_string()))?;
        let peer = match saved.peer.as_str() {
            "unix:" => Address::UnixUnnamed,
            peer => peer.parse().map_err(invalid)?,
        };
        let state = catch_unwind(AssertUnwindSafe(|| self.handler.restore_state(&saved.state)));
        let state = state.ok().flatten().ok_or_else(|| invalid("the handler does not restore its state".into()))?;
        let now = self.shared.now;
        let [heard, message] = saved.silent.map(|silent| now.saturating_sub(silent));
        out.restore(encoder, &saved).map_err(|error| invalid(error.to_string()))?;
        let mut wire = Wire::new();
        wire.sealed_mut().put(&saved.unsent);
        let mut carry = Buf::new();
        carry.put(&saved.received);
        let mut link = Link {
            // Last, since nothing can fail behind it.
            token: driver.adopt(socket)?,
            phase: Phase::Open,
            session,
            cost: HandshakeCost::Plain,
            decoder,
            held: !carry.is_empty(),
            queued: false,
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
            kernel: Handover::new(self.kernel_tls),
            answered: 0,
            ping_sent: saved.ping_sent,
            clock: Clock { heard, phase_end: message, ..Clock::default() },
        };
        if saved.subprotocol.is_some() {
            link.cold.get_or_insert_default().subprotocol = saved.subprotocol.map(String::into_boxed_str);
        }
        let Saved { topics, prefixes, timers, .. } = saved;
        Ok(Restored { link: self.batch_alloc.place(link), topics, prefixes, timers })
    }

    /// Begins a restored connection: its socket is read from now on.
    fn begin_link(&mut self, driver: &mut dyn Driver, restored: Restored<E::Session, H::State>) {
        let Restored { link, topics, prefixes, timers } = restored;
        self.shared.counters.connections.add(1);
        self.shared.counters.open.add(1);
        self.account.add_connection(self.memory_of(&link));
        self.admission.count_connection();
        self.visit_link(driver, link, |core, driver, link| {
            core.schedule(link);
            link.lend(Some(driver), &mut core.shared, |conn| {
                topics.iter().for_each(|topic| _ = conn.subscribe(topic));
                prefixes.iter().for_each(|prefix| _ = conn.subscribe_prefix(prefix));
                timers.iter().for_each(|(id, due)| conn.set_timer(Duration::from_millis(*due), *id));
                core.handler.on_restored(conn);
            });
        });
    }
}
