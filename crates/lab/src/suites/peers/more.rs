//! Rows of the comparison beside echoes: handshakes, latency at a common rate, broadcasts, and memory.

use super::super::{ENGINES, Extra, Key, Kind, Lab, Metrics, Row, Servers, Subject};
use crate::load::{Broadcast, Echo, Handshakes, Idle};
use crate::{Case, DriverKind, Error, Metric, Protocol, Span};
use std::time::Duration;
use tautline::KeyExchange;

/// Connections that take part in a broadcast.
pub(super) const SUBSCRIBERS: usize = 1000;

/// Share of the slowest server's rate at which latencies are measured.
pub(super) const COMMON: f64 = 0.6;

/// Payload bytes of a broadcast, and of a message at the common rate.
const SIZE: usize = 64;

/// Connections at the common rate.
const CONNECTIONS: usize = 100;

/// Connections being opened at a time.
const AT_ONCE: usize = 8;

/// Share of handshakes that must have resumed, of those that should. The first ones have no ticket yet.
const RESUMED: f64 = 0.9;

/// Something to measure of every server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Handshake { resumed: bool },
    CommonRate,
    Broadcast,
    Idle,
}

/// One server under one kind of work.
pub(super) struct MoreCase {
    pub(super) kind: Kind,
    pub(super) work: Work,
    /// Messages per second at the common rate; connections of the memory.
    pub(super) amount: f64,
}

impl MoreCase {
    pub(super) const fn row(kind: Kind, work: Work, amount: f64) -> Row<Self> {
        Row::new(Self { kind, work, amount })
    }

    /// Measures once.
    pub(super) fn measure(&self, lab: &Lab<'_>, servers: &Servers) -> Result<Metrics, Error> {
        let mut server = servers.of(self.kind)?.server()?;
        let span = lab.span();
        match self.work {
            Work::Handshake { resumed } => {
                // Not every library has the hybrid group, which costs both ends more.
                server.tls.key_exchange = KeyExchange::Classical;
                let load = Handshakes { server, at_once: AT_ONCE, resumed, may_refuse: false, rate: None, span };
                let counts = load.run(&mut |_| {})?;
                if resumed && (counts.resumed as f64) < RESUMED * counts.measured.count as f64 {
                    return Err(Error::Failed(format!(
                        "{} of {} handshakes resumed a session",
                        counts.resumed, counts.measured.count
                    )));
                }
                Ok(counts.measured.handshake_metrics())
            }
            Work::CommonRate => {
                // A p99.9 needs thousands of messages, and the common rate is that of a slow server.
                let span = lab.effort.pick(Span::millis(100, 2000), Span::millis(50, 700), Span::millis(30, 60));
                let small = Echo::small(server, CONNECTIONS, Some(self.amount), span);
                Ok(Echo { size: SIZE, ..small }.run(&mut |_| {})?.latencies.metrics_with_max())
            }
            Work::Broadcast => {
                let load = Broadcast { server, subscribers: SUBSCRIBERS, size: SIZE, pipeline: 1, span };
                Ok(load.run(&mut |_| {})?.answer_metrics(SIZE))
            }
            Work::Idle => {
                let load = Idle { server, connections: self.connections(), duration: Duration::ZERO, echo: false };
                let memory = load.run(&mut |_| {})?;
                Ok(memory.rss_per_connection().map(|bytes| (Metric::RssPerConnection, bytes)).into_iter().collect())
            }
        }
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of connections")]
    const fn connections(&self) -> usize {
        self.amount as usize
    }
}

impl Subject for MoreCase {
    fn name(&self) -> String {
        let work = match self.work {
            Work::Handshake { resumed: false } => "full handshakes",
            Work::Handshake { resumed: true } => "resumed handshakes",
            Work::CommonRate => "common rate",
            Work::Broadcast => "broadcast",
            Work::Idle => "idle connections",
        };
        format!("{}, {work}", self.kind.full_name())
    }

    fn case(&self) -> Case {
        let case = self.kind.case();
        match self.work {
            Work::Handshake { resumed } => case.key(Key::P256.name()).group("x25519").resumed(resumed),
            Work::CommonRate => case.size(SIZE).connections(CONNECTIONS).setup("rate=common"),
            Work::Broadcast => case.size(SIZE).subscribers(SUBSCRIBERS),
            Work::Idle => case.connections(self.connections()),
        }
    }
}

/// Our servers with the default engine, and these peers.
pub(super) fn servers(drivers: &[DriverKind], peers: &[super::Peer]) -> Vec<Kind> {
    let ours = drivers.iter().map(|&driver| Kind::Wss(ENGINES[0], Key::P256, driver));
    ours.chain(peers.iter().map(|&peer| Kind::Peer(peer, Protocol::Wss))).collect()
}

/// The server of the same project that sends messages to everyone; `None` if it has none.
pub(super) const fn broadcaster(kind: Kind) -> Option<Kind> {
    match kind {
        Kind::Wss(engine, _, driver) => Some(Kind::Broadcast(engine, false, driver)),
        Kind::Peer(peer, Protocol::Wss) if peer.can_broadcast() => Some(Kind::PeerWith(Extra::Broadcast, peer)),
        _ => None,
    }
}
