//! Balancing: a [`Group`] of servers that answer the same requests, and the choice of one of them.
//!
//! A group has no clock and no socket. All loops of a process share it, so its counts are those of all loops. A [`Lease`] is one
//! connection or request of a server while it lives.
//!
//! A server takes new work unless it is drained, its active checks fail, it failed several times in a row a short while ago, or it
//! has as many connections as it may have. Servers that only failed lately are better than none, so they are used if no other is
//! left.
//!
//! If all are full, a request may wait in the group's [`Queue`].

mod key;
mod queue;
mod server;

pub use self::key::Key;
use self::key::mix;
pub use self::queue::{Place, Queue, QueueCounts, Wake};
pub use self::server::{Lease, Passive, Server};
use crate::tally::ServerTally;
use serde::Deserialize;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// The way in which a server is chosen.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Balance {
    /// Each in turn.
    #[default]
    RoundRobin,
    /// The one with the fewest connections of this process; among equals each in turn.
    LeastConnections,
    /// By the hash of a key of the request (rendezvous hashing). If a server comes or goes, only its own keys move.
    /// A request without the key gets a server in turn. A configuration names the key and not this.
    #[serde(skip)]
    Hash,
}

/// The reason why a group has no server for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// All usable servers have as many connections as they may have.
    Full,
    /// All servers are drained, or their checks fail.
    Down,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "all servers have as many connections as max-connections allows",
            Self::Down => "all servers are drained, or their health checks fail",
        })
    }
}

/// A wish for a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wish<'a> {
    /// The key for [`Balance::Hash`].
    pub key: Option<Key>,
    /// The value of the group's cookie, which names a server.
    pub sticky: Option<&'a str>,
    /// Servers that this request has tried, by their numbers.
    pub tried: &'a [usize],
}

/// Servers that answer the same requests.
#[derive(Debug)]
pub struct Group {
    balance: Balance,
    servers: Vec<Arc<Server>>,
    /// Requests that wait for one of them.
    queue: Arc<Queue>,
    /// Counts choices, for all loops.
    turn: AtomicUsize,
}

impl Group {
    /// A group of these servers. Requests that wait for one of them are in `queue`, which the servers wake.
    #[must_use]
    pub fn new(balance: Balance, servers: Vec<Arc<Server>>, queue: Arc<Queue>) -> Self {
        Self { balance, servers, queue, turn: AtomicUsize::new(0) }
    }

    /// The requests that wait. A reload keeps it where the group stays.
    #[must_use]
    pub const fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// The servers, in the order of the configuration.
    #[must_use]
    pub fn servers(&self) -> &[Arc<Server>] {
        &self.servers
    }

    /// Chooses a server, and counts its connection.
    ///
    /// # Errors
    /// If no server may have one more connection now.
    pub fn choose(&self, wish: &Wish<'_>, now: Instant) -> Result<Lease, Unavailable> {
        // A drained server keeps those that its cookie binds to it.
        if let Some(bound) = wish.sticky.and_then(|cookie| self.bound(cookie, wish.tried))
            && bound.is_healthy()
            && !bound.is_out(now)
            && let Some(lease) = Server::lease(bound)
        {
            return Ok(lease);
        }
        let order = self.order(wish.key);
        let may = |at: &&usize| !wish.tried.contains(at) && self.servers[**at].takes_new();
        let usable: Vec<usize> = order.iter().filter(may).copied().collect();
        if usable.is_empty() {
            return Err(Unavailable::Down);
        }
        let (inside, out): (Vec<usize>, Vec<usize>) = usable.iter().partition(|at| !self.servers[**at].is_out(now));
        let mut leases = inside.iter().map(|at| Server::lease(&self.servers[*at]));
        if let Some(lease) = leases.find_map(|lease| lease) {
            return Ok(lease);
        }
        // One that is full is better than one that fails.
        if !inside.is_empty() {
            return Err(Unavailable::Full);
        }
        out.iter().find_map(|at| Server::lease(&self.servers[*at])).ok_or(Unavailable::Full)
    }

    /// Counts a connection that a server has already, whatever its bounds: another process had it before. `None` if there is no
    /// server of this name.
    #[must_use]
    pub fn lease_again(&self, name: &str) -> Option<Lease> {
        self.servers.iter().find(|server| server.name == name).map(Server::lease_again)
    }

    /// The counts of one loop for the server of this name. If there is none, they are nobody's.
    pub(crate) fn tally_of(&self, name: &str, shard: u32) -> Arc<ServerTally> {
        let server = self.servers.iter().find(|server| server.name == name);
        server.map_or_else(|| Arc::new(ServerTally::named(name)), |server| server.tally(shard))
    }

    /// The server that a cookie names.
    fn bound(&self, cookie: &str, tried: &[usize]) -> Option<&Arc<Server>> {
        let mut servers = self.servers.iter().filter(|server| !tried.contains(&server.number));
        servers.find(|server| server.cookie == cookie)
    }

    /// All servers, the preferred first.
    fn order(&self, key: Option<Key>) -> Vec<usize> {
        let count = self.servers.len();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut order: Vec<usize> = (0..count).map(|at| turn.wrapping_add(at) % count).collect();
        match (self.balance, key) {
            (Balance::LeastConnections, _) => order.sort_by_key(|at| self.servers[*at].connections()),
            (Balance::Hash, Some(key)) => {
                order.sort_by_key(|at| core::cmp::Reverse(mix(key.hash() ^ self.servers[*at].seed)));
            }
            (Balance::RoundRobin | Balance::Hash, _) => {}
        }
        order
    }
}

/// The fate of a request that got no answer from its server.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// Whether any byte of the request may have reached the server.
    pub was_sent: bool,
    /// Whether the connection had served another request before.
    pub was_reused: bool,
    /// Whether any byte of an answer came.
    pub has_answer: bool,
    /// Whether the method is idempotent (RFC 9110, 9.2.2).
    pub is_idempotent: bool,
    /// Whether the request has a body.
    pub has_body: bool,
    /// Attempts that were repeats after something had been sent.
    pub repeats: u32,
}

impl Attempt {
    /// Whether the request may be sent again.
    ///
    /// It may if nothing of it was sent. Once it may too if the connection was an old one, which the server may just have closed,
    /// and if a second execution does no harm (RFC 9110, 9.2.2). A body has passed through and is gone.
    #[must_use]
    pub const fn may_repeat(&self) -> bool {
        if !self.was_sent {
            return true;
        }
        self.was_reused && !self.has_answer && self.is_idempotent && !self.has_body && self.repeats == 0
    }
}

#[cfg(test)]
mod tests;
