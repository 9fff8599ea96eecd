use super::key::Key;
use super::queue::Queue;
use crate::tally::{ServerTally, Tallies};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The rule by which failed requests take a server out for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passive {
    /// Failures in a row; 0 takes no server out.
    pub failures: u32,
    /// The time for which it is out.
    pub time: Duration,
}

impl Default for Passive {
    fn default() -> Self {
        Self { failures: 3, time: Duration::from_secs(10) }
    }
}

/// The state of a server. A reload keeps it where the server stays.
#[derive(Debug)]
struct State {
    connections: AtomicUsize,
    /// Failures since the last success.
    failures: AtomicU32,
    /// The end of the time out, in milliseconds since `born`.
    out_until: AtomicU64,
    born: Instant,
    /// Whether its active checks fail.
    is_sick: AtomicBool,
    /// Times that failures took it out.
    ejections: AtomicU64,
    tallies: Tallies<ServerTally>,
}

/// One server of a group.
#[derive(Debug)]
pub struct Server {
    /// The number in its group.
    pub number: usize,
    /// The address.
    pub name: String,
    /// The value of the cookie that binds a client to it: a hash of its address.
    pub cookie: String,
    pub(super) seed: u64,
    /// Most connections of all loops. Default: any number.
    pub max_connections: usize,
    /// The rule for failures.
    pub passive: Passive,
    /// Whether it gets nothing new, but for clients whose cookie binds them to it.
    pub is_drained: bool,
    /// The requests that wait for it or for another one of its group. The end of its connections wakes them.
    pub queue: Arc<Queue>,
    state: Arc<State>,
}

impl Server {
    /// A server with this number in its group. Its name is its address: in all processes it gets the same keys and cookies.
    #[must_use]
    pub fn new(number: usize, name: &str, now: Instant) -> Self {
        let state = State {
            connections: AtomicUsize::new(0),
            failures: AtomicU32::new(0),
            out_until: AtomicU64::new(0),
            born: now,
            is_sick: AtomicBool::new(false),
            ejections: AtomicU64::new(0),
            tallies: Tallies::default(),
        };
        let seed = Key::new(name.as_bytes()).hash();
        Self {
            number,
            name: name.to_owned(),
            cookie: format!("{seed:016x}"),
            seed,
            max_connections: usize::MAX,
            passive: Passive::default(),
            is_drained: false,
            state: Arc::new(state),
            queue: Arc::default(),
        }
    }

    /// Goes on with the counts and the health of the server that had its place before a reload.
    pub fn go_on_from(&mut self, before: &Self) {
        self.state = before.state.clone();
    }

    /// Connections and requests of this process that have a lease.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// Whether its active checks pass, or it has none.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        !self.state.is_sick.load(Ordering::Relaxed)
    }

    /// Stores the result of its active checks.
    /// One whose checks pass again is not out for failures of before.
    pub fn set_healthy(&self, is_healthy: bool) {
        let was_sick = self.state.is_sick.swap(!is_healthy, Ordering::Relaxed);
        if is_healthy && was_sick {
            self.state.failures.store(0, Ordering::Relaxed);
            self.state.out_until.store(0, Ordering::Relaxed);
        }
        if is_healthy {
            self.queue.wake_first();
        }
    }

    /// Whether it is out for a time, after failures in a row.
    #[must_use]
    pub fn is_out(&self, now: Instant) -> bool {
        self.since_born(now) < self.state.out_until.load(Ordering::Relaxed)
    }

    /// Times that failures in a row took it out.
    #[must_use]
    pub fn ejections(&self) -> u64 {
        self.state.ejections.load(Ordering::Relaxed)
    }

    /// The counts of all loops.
    pub(crate) fn tallies(&self) -> &Tallies<ServerTally> {
        &self.state.tallies
    }

    /// The counts of one loop.
    pub(crate) fn tally(&self, shard: u32) -> Arc<ServerTally> {
        self.state.tallies.of(shard, || ServerTally::named(&self.name))
    }

    pub(super) fn takes_new(&self) -> bool {
        !self.is_drained && self.is_healthy()
    }

    /// Counts one more connection, unless it has as many as it may have.
    pub(super) fn lease(server: &Arc<Self>) -> Option<Lease> {
        let one_more = |count: usize| (count < server.max_connections).then_some(count.saturating_add(1));
        // A request that begins to wait and a lease that ends must not miss each other, so one order holds for both.
        let counted = server.state.connections.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more);
        counted.ok().map(|_| Lease(server.clone()))
    }

    /// Counts a connection that it has already.
    pub(super) fn lease_again(server: &Arc<Self>) -> Lease {
        server.state.connections.fetch_add(1, Ordering::Relaxed);
        Lease(server.clone())
    }

    fn since_born(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.state.born).as_millis()).unwrap_or(u64::MAX)
    }
}

/// One connection or request of a server. The server may have another one when this is dropped.
#[derive(Debug)]
pub struct Lease(Arc<Server>);

impl Lease {
    /// The server.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.0
    }

    /// The server has answered, whatever the status.
    pub fn succeeded(&self) {
        // Most are successes after successes, and write nothing.
        if self.0.state.failures.load(Ordering::Relaxed) != 0 {
            self.0.state.failures.store(0, Ordering::Relaxed);
        }
    }

    /// No connection was made, or no answer came. Returns whether this takes the server out now.
    pub fn failed(&self, now: Instant) -> bool {
        let Server { passive, state, .. } = &*self.0;
        let failures = state.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if passive.failures == 0 || failures < passive.failures {
            return false;
        }
        // After its time it is tried once, and one more failure takes it out again.
        state.failures.store(passive.failures - 1, Ordering::Relaxed);
        let until = self.0.since_born(now).saturating_add(u64::try_from(passive.time.as_millis()).unwrap_or(u64::MAX));
        let was_out = self.0.is_out(now);
        state.out_until.fetch_max(until, Ordering::Relaxed);
        state.ejections.fetch_add(u64::from(!was_out), Ordering::Relaxed);
        !was_out
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.state.connections.fetch_sub(1, Ordering::SeqCst);
        self.0.queue.wake_first();
    }
}
