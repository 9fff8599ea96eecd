//! The numbers of connections that all loops of a server have together, and a loop's part of them.

use crate::config::Limits;
use crate::link::Link;
use crate::timer::Tick;
use crate::waiting::Waiting;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tautline_io::Token;

/// Least milliseconds between two log lines about a limit. At the limit, every new connection meets it.
const NEWS: Tick = 10_000;

/// How often a loop that does not accept looks whether another loop's connections have ended, in milliseconds.
pub(crate) const RETRY: Tick = 10;

/// The numbers of connections of all shards of a server, for its [`Limits`]. Clones share them.
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
    connections: usize,
    handshakes: Waiting,
    http: Waiting,
    /// Whether a limit may be passed since the last look.
    pub(crate) due: bool,
    pub(crate) paused: bool,
    /// When each limit may be logged again.
    news: [Tick; 3],
}

impl Admission {
    pub(crate) fn new(totals: SharedLimits) -> Self {
        totals.0.shards.fetch_add(1, Ordering::Relaxed);
        Self {
            totals,
            connections: 0,
            handshakes: Waiting::default(),
            http: Waiting::default(),
            due: false,
            paused: false,
            news: [0; 3],
        }
    }

    /// Whether accepting pauses until a connection ends, which may be another shard's.
    pub(crate) fn waits_for_others(&self) -> bool {
        self.paused && self.totals.0.shards.load(Ordering::Relaxed) > 1
    }

    pub(crate) fn count_connection(&mut self) {
        self.connections += 1;
        self.totals.0.connections.fetch_add(1, Ordering::Relaxed);
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

    fn total(&self, kind: Kind) -> &AtomicUsize {
        match kind {
            Kind::Handshake => &self.totals.0.handshakes,
            Kind::Http => &self.totals.0.http,
        }
    }

    pub(crate) fn insert<S, T>(&mut self, kind: Kind, link: &Link<S, T>) {
        self.total(kind).fetch_add(1, Ordering::Relaxed);
        self.waiting(kind).insert(&link.info.peer, link.token);
        self.due = true;
    }

    pub(crate) fn remove<S, T>(&mut self, kind: Kind, link: &Link<S, T>) {
        if self.waiting(kind).remove(&link.info.peer, link.token) {
            self.total(kind).fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A connection that gives way, with the number of its host's and of its network's that wait here.
    ///
    /// `Err` if the limit is passed, but other shards have more than their parts.
    pub(crate) fn surplus(&mut self, kind: Kind, limits: &Limits) -> Result<Option<(Token, usize, usize)>, ()> {
        let limit = kind.limit(limits);
        if self.total(kind).load(Ordering::Relaxed) <= limit {
            return Ok(None);
        }
        let part = limit / self.totals.0.shards.load(Ordering::Relaxed).max(1);
        let waiting = self.waiting(kind);
        if waiting.len() <= part { Err(()) } else { Ok(waiting.first()) }
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
