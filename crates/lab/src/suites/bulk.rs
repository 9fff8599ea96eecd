//! Large answers of a server, which the load discards.

use super::{Kind, Lab, Process, Row, Servers, Subject, Topology, row};
use crate::load::Sink;
use crate::rounds::Plan;
use crate::table::bytes;
use crate::{Case, Error};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

/// Bytes of an answer when loops are compared. A rate of bytes does not depend on it.
pub(super) const SIZE: usize = 256 << 10;

/// A server that sends large answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bulk {
    pub(super) topology: Topology,
    pub(super) connections: usize,
    pub(super) size: usize,
    /// Interval at which the load looks for answers, instead of being woken by them.
    pub(super) interval: Option<Duration>,
}

impl Bulk {
    /// The load on these addresses of the server.
    pub(super) fn sink(&self, lab: &Lab<'_>, process: &Process, addresses: &[SocketAddr]) -> Result<Sink, Error> {
        let Self { connections, size, interval, .. } = *self;
        let (server, addresses) = (process.server()?, addresses.to_vec());
        Ok(Sink { server, addresses, connections, size, interval, span: lab.span() })
    }
}

impl Subject for Bulk {
    fn name(&self) -> String {
        let (kind, size) = (Kind::Model(self.topology), bytes(self.size as u64));
        format!("{}, {} connections, answers of {size}", kind.name(), self.connections)
    }

    fn case(&self) -> Case {
        Kind::Model(self.topology).case().size(self.size).connections(self.connections).direction("write")
    }
}

/// Measures all rows in interleaved rounds.
pub(super) fn measure<'a>(
    lab: &mut Lab<'_>,
    rows: impl IntoIterator<Item = &'a mut Row<Bulk>>,
    plan: &Plan,
    share: Range<f64>,
) -> Result<(), Error> {
    let rows: Vec<_> = rows.into_iter().collect();
    let servers = Servers::start(lab, rows.iter().map(|row| Kind::Model(row.subject.topology)))?;
    row::measure(lab, rows, plan, share, |lab, bulk, _| {
        let process = servers.of(Kind::Model(bulk.topology))?;
        Ok(bulk.sink(lab, process, &process.addresses)?.run()?.answer_metrics(bulk.size))
    })
}
