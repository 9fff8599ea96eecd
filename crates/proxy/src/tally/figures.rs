use super::count::{Count, Spread};
use super::{CLASSES, RULES, RouteTally, ServerTally, Tallies};
use crate::balance::{QueueCounts, Server};
use crate::plan::{NO_ROUTE, Plan};
use crate::rates::{Limit, Source};
use std::collections::HashSet;
use std::time::Instant;

/// The counts of all loops for the routes and servers of a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// The routes, each name once, and requests without a route as `-`.
    pub routes: Vec<RouteFigures>,
    /// The backends.
    pub backends: Vec<BackendFigures>,
    /// The limits of sources.
    pub limits: Vec<LimitFigures>,
}

/// The figures of a limit of sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitFigures {
    /// Its key in the configuration.
    pub key: &'static str,
    /// Requests or connections that were refused.
    pub refused: u64,
}

impl LimitFigures {
    fn of(keys: [&'static str; 2], source: Source, refused: u64) -> Self {
        let [host, network] = keys;
        Self { key: if source == Source::Host { host } else { network }, refused }
    }
}

/// The figures of a route.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteFigures {
    /// Its name.
    pub name: String,
    /// Requests by the class of their status, as in [`CLASSES`].
    pub statuses: [u64; CLASSES.len()],
    /// Bytes of bodies and tunnels from clients.
    pub received: u64,
    /// Bytes of bodies and tunnels to clients.
    pub sent: u64,
    /// Messages from clients.
    pub messages_received: u64,
    /// Messages to clients, with those that are dropped.
    pub messages_sent: u64,
    /// Messages that were dropped because their client did not read.
    pub dropped: u64,
    /// WebSockets that were closed by a rule of `messages`, as in [`RULES`].
    pub closed: [u64; RULES.len()],
}

/// The figures of a backend.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackendFigures {
    /// Its name.
    pub name: String,
    /// Its servers.
    pub servers: Vec<ServerFigures>,
    /// Requests that wait for one of them, or have waited.
    pub queue: QueueCounts,
}

/// The figures of a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerFigures {
    /// Its address.
    pub name: String,
    /// Whether its active checks pass, or it has none.
    pub is_healthy: bool,
    /// Whether it is out for a time, after failures in a row.
    pub is_out: bool,
    /// Whether it gets nothing new.
    pub is_drained: bool,
    /// Attempts to connect that go on.
    pub connecting: u64,
    /// Requests that it has, without those that wait for a connection.
    pub requests: u64,
    /// Tunnels.
    pub tunnels: u64,
    /// Connections that are kept for further requests.
    pub idle: u64,
    /// Requests by the class of the server's status, as in [`CLASSES`].
    pub statuses: [u64; CLASSES.len()],
    /// Bytes of bodies and tunnels to the server.
    pub sent: u64,
    /// Bytes of bodies and tunnels from the server.
    pub received: u64,
    /// Messages to the server.
    pub messages_sent: u64,
    /// Messages from the server.
    pub messages_received: u64,
    /// Requests that were sent again, here or to another server.
    pub retries: u64,
    /// Connections that were not made, and responses that did not come.
    pub failures: u64,
    /// Times that failures took it out.
    pub ejections: u64,
    /// Times from the attempt to the connection.
    pub connect: Spread,
    /// Times from the request to the head of the response.
    pub head: Spread,
}

impl ServerFigures {
    /// Whether it gets new requests.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        self.is_healthy && !self.is_out
    }

    fn of(server: &Server, now: Instant) -> Self {
        let mut figures = Self {
            name: server.name.clone(),
            is_healthy: server.is_healthy(),
            is_out: server.is_out(now),
            is_drained: server.is_drained,
            ejections: server.ejections(),
            ..Self::default()
        };
        let mut open = 0;
        server.tallies().each(|tally: &ServerTally| {
            add(&mut figures.statuses, &tally.statuses);
            figures.sent += tally.sent.get();
            figures.received += tally.received.get();
            figures.messages_sent += tally.messages_sent.get();
            figures.messages_received += tally.messages_received.get();
            figures.connecting += tally.connecting.get();
            figures.tunnels += tally.tunnels.get();
            figures.retries += tally.retries.get();
            figures.failures += tally.failures.get();
            figures.connect.add(&tally.connect);
            figures.head.add(&tally.head);
            open += tally.connections.get();
        });
        // The counts are not all of one instant.
        figures.requests = (server.connections() as u64).saturating_sub(figures.connecting + figures.tunnels);
        figures.idle = open.saturating_sub(figures.requests + figures.tunnels);
        figures
    }
}

impl RouteFigures {
    fn of(name: &str, tallies: &Tallies<RouteTally>) -> Self {
        let mut figures = Self { name: name.to_owned(), ..Self::default() };
        tallies.each(|tally| {
            add(&mut figures.statuses, &tally.statuses);
            figures.received += tally.received.get();
            figures.sent += tally.sent.get();
            figures.messages_received += tally.messages_received.get();
            figures.messages_sent += tally.messages_sent.get();
            figures.dropped += tally.dropped.get();
            add(&mut figures.closed, &tally.closed);
        });
        figures
    }
}

fn add<const N: usize>(sums: &mut [u64; N], counts: &[Count; N]) {
    sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count.get());
}

impl Figures {
    /// The counts for this plan.
    #[must_use]
    pub fn of(plan: &Plan, now: Instant) -> Self {
        let mut names = HashSet::from([NO_ROUTE]);
        let mut routes = vec![RouteFigures::of(NO_ROUTE, &plan.unrouted)];
        // Routes with one name share their counts.
        let named = plan.routes.iter().filter(|route| names.insert(route.name.as_str()));
        routes.extend(named.map(|route| RouteFigures::of(&route.name, &route.tallies)));
        let backends = plan.backends.iter().map(|backend| {
            let servers = backend.group.servers().iter().map(|server| ServerFigures::of(server, now)).collect();
            BackendFigures { name: backend.name.clone(), servers, queue: backend.group.queue().counts() }
        });
        let of = |keys, limit: &Limit| LimitFigures::of(keys, limit.source(), limit.refused());
        let requests = plan.limits.iter().map(|limit| of(["requests", "requests-of-network"], limit));
        let handshakes = plan.handshakes.iter().map(|limit| of(["handshakes-of-host", "handshakes-of-network"], limit));
        let keys = ["connections-of-host", "connections-of-network"];
        let caps = plan.caps.iter().map(|cap| LimitFigures::of(keys, cap.source(), cap.refused()));
        let limits = requests.chain(caps).chain(handshakes);
        Self { routes, backends: backends.collect(), limits: limits.collect() }
    }
}
