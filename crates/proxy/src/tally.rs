//! The counts of a proxy, for its metrics.
//!
//! Each loop has counts of its own for each route and server, which it alone writes. A scrape adds them up. So bytes that pass
//! cost two plain additions, and no loop waits for another one. Routes and servers that a reload keeps go on with their counts.

mod count;
mod figures;
mod flow;

use self::count::{Count, Times};
pub use self::count::{ENDS, Spread};
pub use self::figures::{BackendFigures, Figures, LimitFigures, RouteFigures, ServerFigures};
pub use self::flow::EndMeter;
pub(crate) use self::flow::Flow;
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::time::Duration;
use tautline::http::StatusCode;

/// The classes of statuses by which requests are counted: `none` if there was no response.
pub const CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// The rules of `messages` by which WebSockets are closed, as the configuration names them.
pub const RULES: [&str; 5] = ["rate", "rate-by-address", "rate-in-all", "max-size", "slow"];

/// A rule of `messages` by which a WebSocket is closed, in the order of [`RULES`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    /// The rate of its client's connection.
    Rate,
    /// The rate of its client's address.
    RateByAddress,
    /// The rate of its route.
    RateInAll,
    /// The longest message.
    MaxSize,
    /// The policy for clients that do not read.
    Slow,
}

/// The place of a status in [`CLASSES`].
fn class(status: Option<StatusCode>) -> usize {
    status.map_or(0, |status| usize::from(status.as_u16() / 100).min(CLASSES.len() - 1))
}

/// The counts of all loops for one route or server.
#[derive(Debug)]
pub(crate) struct Tallies<T>(Arc<ArcSwap<Vec<Arc<T>>>>);

impl<T> Clone for Tallies<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Tallies<T> {
    fn default() -> Self {
        Self(Arc::new(ArcSwap::from_pointee(Vec::new())))
    }
}

impl<T> Tallies<T> {
    /// Those of the loop with this number. `new` makes them if there are none.
    pub(crate) fn of(&self, shard: u32, new: impl Fn() -> T) -> Arc<T> {
        let at = shard as usize;
        if let Some(known) = self.0.load().get(at) {
            return known.clone();
        }
        self.0.rcu(|all| {
            let mut more = Vec::clone(all);
            more.resize_with(more.len().max(at + 1), || Arc::new(new()));
            more
        });
        self.0.load().get(at).cloned().unwrap_or_else(|| Arc::new(new()))
    }

    /// Calls `add` for the counts of each loop.
    fn each(&self, add: impl FnMut(&T)) {
        self.0.load().iter().map(Arc::as_ref).for_each(add);
    }
}

/// The counts of one loop for a route.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct RouteTally {
    name: Box<str>,
    statuses: [Count; CLASSES.len()],
    received: Count,
    sent: Count,
    messages_received: Count,
    messages_sent: Count,
    dropped: Count,
    closed: [Count; RULES.len()],
}

impl RouteTally {
    /// Those of the route of this name.
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// A request is answered, or its client has gone.
    pub(crate) fn answered(&self, status: Option<StatusCode>) {
        self.statuses[class(status)].add(1);
    }
}

/// The counts of one loop for a server.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ServerTally {
    name: Box<str>,
    statuses: [Count; CLASSES.len()],
    sent: Count,
    received: Count,
    messages_sent: Count,
    messages_received: Count,
    connections: Count,
    connecting: Count,
    tunnels: Count,
    retries: Count,
    failures: Count,
    connect: Times,
    head: Times,
}

impl ServerTally {
    /// Those of the server of this name.
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The server has answered a request, or did not.
    pub(crate) fn answered(&self, status: Option<StatusCode>) {
        self.statuses[class(status)].add(1);
    }

    /// A request of this server is sent again.
    pub(crate) fn retried(&self) {
        self.retries.add(1);
    }

    /// No connection was made, or no response came in time.
    pub(crate) fn failed(&self) {
        self.failures.add(1);
    }

    pub(crate) fn connected(&self, time: Duration) {
        self.connect.add(time);
    }

    pub(crate) fn head_came(&self, time: Duration) {
        self.head.add(time);
    }
}

/// A present number that a [`Present`] is one of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Gauge {
    /// Connections to the server.
    Connections,
    /// Attempts to connect.
    Connecting,
    /// Tunnels.
    Tunnels,
}

/// One of a present number, while it lives.
#[derive(Debug)]
pub(crate) struct Present(Arc<ServerTally>, Gauge);

impl Present {
    pub(crate) fn new(of: &Arc<ServerTally>, gauge: Gauge) -> Self {
        let one = Self(of.clone(), gauge);
        one.count().add(1);
        one
    }

    fn count(&self) -> &Count {
        match self.1 {
            Gauge::Connections => &self.0.connections,
            Gauge::Connecting => &self.0.connecting,
            Gauge::Tunnels => &self.0.tunnels,
        }
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.count().remove(1);
    }
}

#[cfg(test)]
mod tests {
    use super::{CLASSES, Gauge, Present, RouteTally, ServerTally, Tallies, class};
    use std::sync::Arc;
    use std::thread;
    use tautline::http::StatusCode;

    #[test]
    fn each_status_has_a_class() {
        let of = |code| CLASSES[class(StatusCode::from_u16(code).ok())];
        assert_eq!([of(101), of(200), of(304), of(404), of(503), of(999)], ["1xx", "2xx", "3xx", "4xx", "5xx", "5xx"]);
        assert_eq!(CLASSES[class(None)], "none");
    }

    #[test]
    fn loops_that_begin_at_once_lose_no_count() {
        let tallies = Tallies::<RouteTally>::default();
        thread::scope(|scope| {
            for shard in 0..8 {
                let tallies = &tallies;
                scope.spawn(move || {
                    (0..100).for_each(|_| tallies.of(shard, RouteTally::default).answered(Some(StatusCode::OK)))
                });
            }
        });
        let mut sum = 0;
        tallies.each(|tally| sum += tally.statuses[2].get());
        assert_eq!(sum, 800);
    }

    #[test]
    fn present_numbers_go_back_when_their_parts_end() {
        let server = Arc::new(ServerTally::default());
        let two = [Gauge::Tunnels, Gauge::Tunnels].map(|gauge| Present::new(&server, gauge));
        assert_eq!(server.tunnels.get(), 2);
        drop(two);
        assert_eq!(server.tunnels.get(), 0);
    }
}
