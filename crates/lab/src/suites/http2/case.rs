//! The servers of the suite and their work.

use super::super::echo_case::Shape;
use super::super::peer::Peer;
use super::super::running::BODY;
use super::super::{ENGINES, Extra, Key, Kind, Row, Subject, unique};
use super::program::Program;
use crate::{Case, DriverKind, Metric, Protocol};

/// WebSockets on a connection that several share.
pub(super) const SHARED: usize = 10;

/// Requests in flight on one connection.
pub(super) const IN_FLIGHT: usize = 32;

/// The protocol that carries WebSockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Http1,
    /// HTTP/2, with this number of streams on each connection.
    Http2(usize),
}

impl Over {
    /// Streams on each connection of HTTP/2.
    pub(super) const fn streams(self) -> Option<usize> {
        match self {
            Self::Http1 => None,
            Self::Http2(streams) => Some(streams),
        }
    }

    fn name(self) -> String {
        self.streams().map_or_else(|| "h1".to_owned(), |streams| format!("h2 x{streams}"))
    }
}

/// A server of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// A server that the lab starts: ours, or one of the peers in Rust.
    Ours(Kind),
    Other(Program),
}

impl Who {
    pub(super) const AXUM: Self = Self::Ours(Kind::PeerWith(Extra::Http2, Peer::Axum));

    /// Our server: without HTTP/2 for clients over HTTP/1.1.
    pub(super) fn ours(over: Over, driver: DriverKind) -> Self {
        match over {
            Over::Http1 => Self::Ours(Kind::Wss(ENGINES[0], Key::P256, driver)),
            Over::Http2(_) => Self::Ours(Kind::Http2(driver)),
        }
    }

    pub(super) fn is_ours(self) -> bool {
        matches!(self, Self::Ours(kind) if kind.peer().is_none())
    }

    pub(super) fn name(self) -> String {
        match self {
            Self::Ours(kind) if kind.peer().is_none() => format!("tautline {}", kind.driver_name()),
            Self::Ours(kind) => kind.peer().map_or("", Peer::name).to_owned(),
            Self::Other(program) => program.name().to_owned(),
        }
    }

    pub(super) fn case(self) -> Case {
        match self {
            Self::Ours(kind) => kind.case(),
            Self::Other(program) => Case::default().protocol(Protocol::Wss).tls("openssl").peer(program.name()),
        }
    }
}

/// The work of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Messages as fast as they are answered.
    Echo(Shape, Over),
    /// Requests in flight on one connection of HTTP/2.
    Get,
    /// WebSockets that do nothing, to a new process, after one echo on each.
    Idle(usize, Over),
}

impl Work {
    /// The metric by which servers are compared.
    pub(super) const fn judged(self) -> Metric {
        match self {
            Self::Echo(..) | Self::Get => Metric::ServerCpuPerMsg,
            Self::Idle(..) => Metric::RssPerConnection,
        }
    }

    pub(super) fn name(self) -> String {
        match self {
            Self::Echo(shape, over) => format!("{} {}", shape.name(), over.name()),
            Self::Get => format!("GET x{IN_FLIGHT}"),
            Self::Idle(connections, over) => format!("{connections} idle {}", over.name()),
        }
    }
}

/// A server and its work.
pub(super) struct Http2Case {
    pub(super) who: Who,
    pub(super) work: Work,
}

impl Subject for Http2Case {
    fn name(&self) -> String {
        format!("{}, {}", self.who.name(), self.work.name())
    }

    fn case(&self) -> Case {
        let case = self.who.case();
        match self.work {
            Work::Echo(Shape { size, connections, pipeline }, over) => {
                let setup = over.name();
                case.size(size).connections(connections).pipeline(pipeline).setup(&*setup)
            }
            Work::Get => case.size(BODY).connections(1).pipeline(IN_FLIGHT).setup("h2 GET"),
            Work::Idle(connections, over) => {
                let setup = format!("{}, one echo on each", over.name());
                case.connections(connections).setup(&*setup)
            }
        }
    }
}

pub(super) type Http2Row = Row<Http2Case>;

/// Every server once, in the order of their rows.
pub(super) fn everyone(rows: &[Http2Row]) -> Vec<Who> {
    unique(rows.iter().map(|row| row.subject.who))
}
