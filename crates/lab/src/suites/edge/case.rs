//! The servers of the suite and their work.

use super::super::echo_case::Shape;
use super::super::running::BODY;
use super::super::{Key, Kind, Row, Subject, unique};
use super::program::Program;
use super::turn::Change;
use crate::{Case, DriverKind, Metric, Protocol};

/// Connections of requests and of the fixed rate, and messages per second at that rate.
pub(super) const CONNECTIONS: usize = 100;
pub(super) const RATE: f64 = 5_000.0;

/// Resumed handshakes per second beside established connections.
pub(super) const RETURNS: f64 = 2_000.0;

/// A server of the suite: a proxy, or one of ours without a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// Our proxy, or a server to compare with.
    Ours(Kind),
    /// Our proxy, which passes messages instead of bytes.
    Messages(DriverKind),
    Other(Program),
}

impl Who {
    /// Whether it is our proxy that passes bytes.
    pub(super) const fn is_our_proxy(self) -> bool {
        matches!(self, Self::Ours(Kind::Proxy(_)))
    }

    pub(super) fn name(self) -> String {
        match self {
            Self::Ours(Kind::Proxy(driver)) => format!("tautline {driver}"),
            Self::Messages(driver) => format!("tautline {driver}, messages"),
            Self::Ours(Kind::Tcp(_)) => "no proxy: tcp echo".to_owned(),
            Self::Ours(kind) => format!("no proxy: {}", kind.full_name()),
            Self::Other(program) => program.name().to_owned(),
        }
    }

    pub(super) fn case(self) -> Case {
        match self {
            Self::Ours(kind) => kind.case(),
            Self::Messages(driver) => Kind::Proxy(driver).case().setup("messages"),
            Self::Other(program) => {
                let tls = if program == Program::Caddy { "go" } else { "openssl" };
                Case::default().protocol(Protocol::Wss).tls(tls).peer(program.name())
            }
        }
    }
}

/// The work of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Messages as fast as they are answered.
    Echo(Shape),
    /// Requests over kept connections.
    Get,
    /// Messages of 64 B at a fixed rate.
    Rate,
    /// Connections opened and closed, with full handshakes or resumed ones.
    Handshake { resumed: bool },
    /// As `Rate`, while others return by resumed handshakes.
    Returns,
    /// As `Rate`, to a new process that changes meanwhile.
    Change(Change),
    /// Connections that do nothing, to a new process, after one echo on each.
    Idle(usize),
}

impl Work {
    /// Whether such a proxy has a way to do it.
    pub(super) fn is_known_to(self, who: Who) -> bool {
        match self {
            // Caddy can only end and begin anew.
            Self::Change(Change::Program) => who != Who::Other(Program::Caddy),
            _ => true,
        }
    }

    /// The metric by which servers are compared.
    pub(super) const fn judged(self) -> Metric {
        match self {
            Self::Echo(_) | Self::Get => Metric::ServerCpuPerMsg,
            Self::Rate | Self::Returns | Self::Change(_) => Metric::LatencyP99,
            Self::Handshake { .. } => Metric::ServerCpuPerHandshake,
            Self::Idle(_) => Metric::RssPerConnection,
        }
    }

    pub(super) fn name(self) -> String {
        match self {
            Self::Echo(shape) => shape.name(),
            Self::Get => "GET".to_owned(),
            Self::Rate => format!("{RATE} a second"),
            Self::Returns => format!("{RETURNS} returns a second"),
            Self::Handshake { resumed: false } => "full".to_owned(),
            Self::Handshake { resumed: true } => "resume".to_owned(),
            Self::Change(change) => change.name().to_owned(),
            Self::Idle(connections) => format!("{connections} idle"),
        }
    }
}

/// A server and its work.
pub(super) struct EdgeCase {
    pub(super) who: Who,
    pub(super) work: Work,
    /// Memory per connection before the echoes, by round.
    pub(super) unused: Vec<f64>,
}

impl Subject for EdgeCase {
    fn name(&self) -> String {
        format!("{}, {}", self.who.name(), self.work.name())
    }

    fn case(&self) -> Case {
        let case = self.who.case();
        match self.work {
            Work::Echo(Shape { size, connections, pipeline }) => {
                case.size(size).connections(connections).pipeline(pipeline)
            }
            Work::Get => case.size(BODY).connections(CONNECTIONS).setup("GET"),
            Work::Rate => case.size(64).connections(CONNECTIONS).setup(format!("rate={RATE}").as_str()),
            Work::Returns => case.size(64).connections(CONNECTIONS).resumed(true).setup("storm"),
            Work::Change(change) => case.size(64).connections(CONNECTIONS).setup(change.name()),
            Work::Handshake { resumed } => case.key(Key::P256.name()).resumed(resumed),
            Work::Idle(connections) => case.connections(connections).setup("one echo on each"),
        }
    }
}

pub(super) type EdgeRow = Row<EdgeCase>;

/// Every server once, in the order of their rows.
pub(super) fn everyone(rows: &[EdgeRow]) -> Vec<Who> {
    unique(rows.iter().map(|row| row.subject.who))
}
