//! The numbers of connections that all loops of a server have together, their budget of memory, and a loop's part of them.

use crate::accept::waiting::{First, Waiting};
use crate::config::Limits;
use crate::link::state::Link;
use crate::memory::budget::{Membership, MemoryBudget};
use crate::threads::remote::ShardHandle;
use crate::threads::sync::{AtomicBool, AtomicUsize, Ordering};
use crate::turn::timer::Tick;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use tautline_conn::gate::Place;
use tautline_io::{Address, Token};

/// Least milliseconds between two log lines about a limit. At the limit, every new connection meets it.
const NEWS: Tick = 10_000;

/// How often a loop that waits for other loops looks again, in milliseconds: for the end of connections while it does not
/// accept, and for unused buffers while memory is short.
pub(crate) const RETRY: Tick = 10;

/// Time for which a handshake gives way to none, in milliseconds, unless half of all connections are handshakes.
///
/// After a restart, many honest clients can come from one address, such as that of a NAT. Each completes its handshake at once.
/// If the oldest gave way at once too, a storm of them would cut off its own members just before they are through, and they
/// would come again. A silent connection only costs memory meanwhile, which has a [budget](Limits::memory).
pub(crate) const GRACE: Tick = 1_000;

/// As [`GRACE`], where the server has `max_connections` and nobody else is accepted meanwhile.
///
/// A client that sends its hello at once is through within two round trips. If none had any time, clients of one address that
/// connect again and again would cut each other off.
pub(crate) const GRACE_AT_FULL: Tick = 250;

/// A reason why no connection gives way.
pub(crate) enum Stays {
    /// The limit is not passed.
    WithinLimit,
    /// Other shards have more than their parts.
    OthersTurn,
    /// The first one has not waited for long enough. It has at this tick.
    Until(Tick),
}

/// The connections and the memory of all shards of a server, for its [`Limits`]. Clones share them.
///
/// Several servers of one process can share it too. Their limits then hold for all of them together, and the budget of memory
/// is that of the first.
///
/// A shard whose limits are not [shared](crate::Shard::share_limits) has the limits for itself.
#[derive(Clone, Debug, Default)]
pub struct SharedLimits(Arc<Totals>);

#[derive(Debug, Default)]
struct Totals {
    shards: AtomicUsize,
    connections: AtomicUsize,
    handshakes: AtomicUsize,
    http: AtomicUsize,
    /// Whether a shard wants descriptors for new connections, and has no connection that gives way.
    wants_descriptors: AtomicBool,
    /// The budget of [`Limits::memory`], unless [`Limits::shared_memory`] takes its place.
    memory: OnceLock<MemoryBudget>,
}

/// The kinds of connections that wait without a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Handshake,
    Http,
}

impl Kind {
    /// The limit of all shards together. Open WebSockets keep a quarter of all connections.
    pub(crate) fn limit(self, limits: &Limits) -> usize {
        match self {
            Self::Handshake => limits.max_handshakes.min(limits.max_connections / 2).max(1),
            Self::Http => limits.max_http.min(limits.max_connections / 4).max(1),
        }
    }

    /// The limit of all shards together that holds at once. Up to it, handshakes give way only after [`GRACE`].
    fn most(self, limits: &Limits) -> usize {
        match self {
            Self::Handshake => (limits.max_connections / 2).max(self.limit(limits)),
            Self::Http => self.limit(limits),
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Handshake => "limits.max_handshakes",
            Self::Http => "limits.max_http",
        }
    }
}

/// A shard's part of the server's connections.
pub(crate) struct Admission {
    totals: SharedLimits,
    pub(crate) membership: Membership,
    connections: usize,
    handshakes: Waiting,
    http: Waiting,
    /// Whether a limit may be passed since the last look.
    pub(crate) due: bool,
    /// Whether a connection began to wait here since the last look.
    pub(crate) grew: bool,
    pub(crate) paused: bool,
    /// When the limits are to be looked at again, whatever happens; `Tick::MAX` if they are not.
    pub(crate) look_at: Tick,
    /// Requests that wait for the application's answer.
    pub(crate) unanswered: usize,
    /// The number of the next ticket for such a request.
    pub(crate) next_ticket: u64,
    /// When each limit may be logged again.
    news: [Tick; 7],
    /// The places of connections behind the gate, if there is one.
    places: HashMap<Token, Place>,
}

impl Admission {
    pub(crate) fn new(totals: SharedLimits, limits: &Limits, handle: ShardHandle) -> Self {
        totals.0.shards.fetch_add(1, Ordering::Relaxed);
        let own = || totals.0.memory.get_or_init(|| MemoryBudget::new(limits.memory));
        let membership = limits.shared_memory.as_ref().unwrap_or_else(own).join(handle);
        Self {
            totals,
            membership,
            connections: 0,
            handshakes: Waiting::default(),
            http: Waiting::default(),
            due: false,
            grew: false,
            paused: false,
            look_at: Tick::MAX,
            unanswered: 0,
            next_ticket: 0,
            news: [0; 7],
            places: HashMap::new(),
        }
    }

    /// Keeps the place of a connection until that ends.
    pub(crate) fn keep_place(&mut self, token: Token, place: Option<Place>) {
        if let Some(place) = place {
            self.places.insert(token, place);
        }
    }

    /// Whether a connection has a place behind the gate.
    pub(crate) fn has_place(&self, token: Token) -> bool {
        self.places.contains_key(&token)
    }

    /// Gives the place of a connection back.
    pub(crate) fn leave_place(&mut self, token: Token) {
        self.places.remove(&token);
    }

    /// Whether accepting pauses until a connection ends, which may be another shard's.
    pub(crate) fn waits_for_others(&self) -> bool {
        self.paused && self.totals.0.shards.load(Ordering::Relaxed) > 1
    }

    pub(crate) fn count_connection(&mut self) {
        self.connections += 1;
        self.totals.0.connections.fetch_add(1, Ordering::Relaxed);
        // A descriptor was there, so nobody has to give way any more. Mostly nobody had to.
        if self.totals.0.wants_descriptors.load(Ordering::Relaxed) {
            self.totals.0.wants_descriptors.store(false, Ordering::Relaxed);
        }
    }

    pub(crate) fn uncount_connection(&mut self) {
        self.connections -= 1;
        self.totals.0.connections.fetch_sub(1, Ordering::Relaxed);
        self.due |= self.paused;
    }

    /// Looks at the limits at the end of this turn.
    pub(crate) const fn check(&mut self) {
        self.due = true;
    }

    pub(crate) const fn waiting(&mut self, kind: Kind) -> &mut Waiting {
        match kind {
            Kind::Handshake => &mut self.handshakes,
            Kind::Http => &mut self.http,
        }
    }

    /// The connections of this shard that wait for their peer.
    pub(crate) const fn waits(&self) -> usize {
        self.handshakes.len() + self.http.len()
    }

    fn total(&self, kind: Kind) -> &AtomicUsize {
        match kind {
            Kind::Handshake => &self.totals.0.handshakes,
            Kind::Http => &self.totals.0.http,
        }
    }

    pub(crate) fn insert<S, T>(&mut self, kind: Kind, link: &Link<S, T>, now: Tick) {
        self.total(kind).fetch_add(1, Ordering::Relaxed);
        self.waiting(kind).insert(&link.info.peer, link.token, now);
        self.due = true;
        self.grew = true;
    }

    pub(crate) fn remove<S, T>(&mut self, kind: Kind, link: &Link<S, T>) {
        if self.waiting(kind).remove(&link.info.peer, link.token) {
            self.total(kind).fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The client of a connection is known. If the connection waits, it does so as one of the client's from now on.
    pub(crate) fn set_client<S, T>(&mut self, link: &mut Link<S, T>, client: Address, now: Tick) {
        let before = std::mem::replace(&mut link.info.peer, client);
        for waiting in [&mut self.handshakes, &mut self.http] {
            if waiting.remove(&before, link.token) {
                waiting.insert(&link.info.peer, link.token, now);
            }
        }
    }

    /// A connection that gives way.
    pub(crate) fn surplus(&mut self, kind: Kind, limits: &Limits, now: Tick) -> Result<First, Stays> {
        let limit = kind.limit(limits);
        let total = self.total(kind).load(Ordering::Relaxed);
        if total <= limit {
            return Err(Stays::WithinLimit);
        }
        let part = limit / self.totals.0.shards.load(Ordering::Relaxed).max(1);
        let is_excess = total > kind.most(limits);
        let waiting = self.waiting(kind);
        if waiting.len() <= part {
            return Err(Stays::OthersTurn);
        }
        let first = waiting.first().ok_or(Stays::WithinLimit)?;
        let end = if kind == Kind::Handshake && !is_excess { first.at + GRACE } else { 0 };
        if now < end { Err(Stays::Until(end)) } else { Ok(first) }
    }

    /// A connection that gives way for its place, since accepting pauses. One that was answered already waits for less.
    pub(crate) fn place(&self, now: Tick) -> Result<(Kind, First), Stays> {
        if !self.paused {
            return Err(Stays::WithinLimit);
        }
        if let Some(first) = self.http.first() {
            return Ok((Kind::Http, first));
        }
        let first = self.handshakes.first().ok_or(Stays::OthersTurn)?;
        let end = first.at + GRACE_AT_FULL;
        if now < end { Err(Stays::Until(end)) } else { Ok((Kind::Handshake, first)) }
    }

    /// This shard has no connection that gives way for its descriptor.
    pub(crate) fn want_descriptors(&self) {
        self.totals.0.wants_descriptors.store(true, Ordering::Relaxed);
    }

    /// Whether another shard wants descriptors. It is answered once.
    pub(crate) fn take_wanted_descriptors(&self) -> bool {
        let wanted = &self.totals.0.wants_descriptors;
        wanted.load(Ordering::Relaxed) && self.waits() > 0 && wanted.swap(false, Ordering::Relaxed)
    }

    /// Whether the server has all the connections that it may have.
    pub(crate) fn is_full(&self, limits: &Limits) -> bool {
        self.totals.0.connections.load(Ordering::Relaxed) >= limits.max_connections
    }

    /// The connections of all shards, and how many of them are in their handshake.
    pub(crate) fn of_all_shards(&self) -> (usize, usize) {
        let Totals { connections, handshakes, .. } = &*self.totals.0;
        (connections.load(Ordering::Relaxed), handshakes.load(Ordering::Relaxed))
    }

    /// The memory of the tables by source, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.handshakes.memory() + self.http.memory()
    }

    /// The budget of memory.
    pub(crate) const fn budget(&self) -> &MemoryBudget {
        &self.membership.budget
    }

    /// Whether it is time for a log line about a limit.
    pub(crate) fn is_news(&mut self, which: usize, now: Tick) -> bool {
        let news = now >= self.news[which];
        if news {
            self.news[which] = now + NEWS;
        }
        news
    }
}

/// A shard that ends, also by a panic, leaves its part to the others.
impl Drop for Admission {
    fn drop(&mut self) {
        let totals = &self.totals.0;
        totals.shards.fetch_sub(1, Ordering::Relaxed);
        totals.connections.fetch_sub(self.connections, Ordering::Relaxed);
        totals.handshakes.fetch_sub(self.handshakes.len(), Ordering::Relaxed);
        totals.http.fetch_sub(self.http.len(), Ordering::Relaxed);
    }
}
