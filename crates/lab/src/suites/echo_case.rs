use super::{ENGINES, Effort, Key, Kind, Lab, Metrics, Outcome, Process, Row, Servers, Subject, row};
use crate::published::lookup;
use crate::records::Work;
use crate::rounds::Runs;
use crate::stats::{Ratio, Summary};
use crate::table::{bytes, optional};
use crate::{Case, Content, DriverKind, Error, Measured, Metric, Protocol, Span};
use crate::{limit, load};
use std::ops::Range;
use std::time::Duration;
use tautline::DeflateConfig;

/// Load of messages on any server. A broadcast delivers each message to all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) size: usize,
    pub(super) connections: usize,
    pub(super) pipeline: usize,
}

impl Shape {
    /// One message in flight on each of a hundred connections.
    pub(super) const fn of(size: usize) -> Self {
        Self { size, connections: 100, pipeline: 1 }
    }

    /// Name in tables: `64 B`, then the connections if they are not a hundred, then the messages in flight.
    pub(super) fn name(self) -> String {
        let mut name = bytes(self.size as u64);
        if self.connections != 100 {
            name += &format!(", {}", self.connections);
        }
        if self.pipeline > 1 {
            name += &format!(", x{}", self.pipeline);
        }
        name
    }
}

/// Sizes from where the kernel costs most to where the bytes do, then 64 B with many messages in flight.
pub(super) const SHAPES: [Shape; 6] = [
    Shape::of(64),
    Shape::of(1024),
    Shape::of(4096),
    Shape::of(16_384),
    Shape::of(65_536),
    Shape { pipeline: 16, ..Shape::of(64) },
];

/// These shapes, without two of the sizes unless the run is thorough.
pub(super) fn shapes(effort: Effort) -> Vec<Shape> {
    let is_quick = |shape: &Shape| !matches!(shape.size, 1024 | 16_384);
    SHAPES.into_iter().filter(|shape| effort == Effort::Thorough || is_quick(shape)).collect()
}

/// One composition under one shape of load.
pub(super) struct EchoCase {
    pub(super) kind: Kind,
    pub(super) shape: Shape,
    /// Whether the generator limited the rate in some round.
    pub(super) is_bounded: bool,
}

pub(super) type EchoRow = Row<EchoCase>;

impl EchoCase {
    pub(super) const fn row(kind: Kind, shape: Shape) -> EchoRow {
        Row::new(Self { kind, shape, is_bounded: false })
    }

    /// CPU time per message: the server's, or that of this thread if there is no server.
    pub(super) const fn cpu_metric(&self) -> Metric {
        if matches!(self.kind, Kind::Aead(_)) { Metric::CpuPerMsg } else { Metric::ServerCpuPerMsg }
    }
}

impl Subject for EchoCase {
    fn name(&self) -> String {
        format!("{} {}", self.kind.full_name(), self.shape.name())
    }

    fn case(&self) -> Case {
        let Shape { size, connections, pipeline } = self.shape;
        let case = self.kind.case().size(size);
        match self.kind {
            Kind::Aead(_) => case,
            Kind::Broadcast(_, deflate, _) => {
                case.subscribers(connections).pipeline(pipeline).setup(deflate.then_some("permessage-deflate"))
            }
            _ => case.connections(connections).pipeline(pipeline),
        }
    }
}

impl EchoRow {
    /// CPU per message in us, round by round.
    pub(super) fn cpu(&self) -> &[f64] {
        self.runs(self.subject.cpu_metric())
    }

    /// This row's CPU per message over another's, round by round.
    pub(super) fn cpu_over(&self, other: &Self) -> Option<Ratio> {
        Ratio::paired(self.cpu(), other.cpu())
    }

    /// Median of [`cpu_over`](Self::cpu_over).
    pub(super) fn cpu_times(&self, other: Option<&Self>) -> Option<f64> {
        Some(self.cpu_over(other?)?.summary.median)
    }

    /// Messages per second, marked if the generator limited them.
    pub(super) fn rate(&self) -> String {
        let mark = if self.subject.is_bounded { '+' } else { ' ' };
        format!("{}{mark}", optional(self.median(Metric::Throughput)))
    }

    /// The published rate for this case, if it has one message in flight on each connection.
    pub(super) fn published(&self, suite: &str) -> Option<f64> {
        lookup(suite, &self.subject.case(), Metric::Throughput).filter(|_| self.subject.shape.pipeline == 1)
    }

    /// The rate over the published one.
    pub(super) fn over_published(&self, suite: &str) -> Option<f64> {
        Some(self.median(Metric::Throughput)? / self.published(suite)?)
    }
}

/// Limit, plain WebSocket, and TLS by every engine, each on every driver.
pub(super) fn kinds(drivers: &[DriverKind]) -> Vec<Kind> {
    let wss = ENGINES.iter().flat_map(|&engine| drivers.iter().map(move |&io| Kind::Wss(engine, Key::P256, io)));
    let tcp = drivers.iter().map(|&driver| Kind::Tcp(driver));
    tcp.chain(drivers.iter().map(|&driver| Kind::Ws(driver))).chain(wss).collect()
}

/// Every shape with every kind.
pub(super) fn rows(shapes: &[Shape], kinds: &[Kind]) -> Vec<EchoRow> {
    shapes.iter().flat_map(|&shape| kinds.iter().map(move |&kind| EchoCase::row(kind, shape))).collect()
}

/// Measures all rows in interleaved rounds.
pub(super) fn measure(
    lab: &mut Lab<'_>,
    servers: &Servers,
    rows: &mut [EchoRow],
    budget: Duration,
    share: Range<f64>,
) -> Result<(), Error> {
    row::measure(lab, rows, &lab.plan(budget), share, |lab, case, _| measure_one(lab, servers, case))
}

/// Measures one row once.
pub(super) fn measure_one(lab: &Lab<'_>, servers: &Servers, case: &mut EchoCase) -> Result<Metrics, Error> {
    let span = lab.span();
    if let Kind::Aead(provider) = case.kind {
        let us = Work::aead(provider, case.shape.size)?.measure(span.duration / 10)?;
        return Ok(vec![(Metric::CpuPerMsg, us)]);
    }
    let measured = once(case, servers.of(case.kind)?, span)?;
    case.is_bounded |= measured.is_bounded();
    Ok(measured.message_metrics(case.shape.size))
}

fn once(case: &EchoCase, process: &Process, span: Span) -> Result<Measured, Error> {
    let Shape { size, connections, pipeline } = case.shape;
    match case.kind {
        Kind::Tcp(_) => {
            let (address, server_pid) = (process.address, Some(process.pid()));
            limit::Load { address, connections, size, pipeline, span, server_pid }.run()
        }
        Kind::Broadcast(_, deflate, _) => {
            let mut server = process.server()?;
            server.target.deflate = deflate.then(DeflateConfig::default);
            load::Broadcast { server, subscribers: connections, size, pipeline, span }.run(&mut |_| {})
        }
        _ => {
            let server = process.server()?;
            load::Echo { server, connections, size, content: Content::Bytes, pipeline, rate: None, span }
                .run(&mut |_| {})
        }
    }
}

/// The cheapest row under the same load among those that `is_wanted` accepts.
pub(super) fn cheapest(rows: &[EchoRow], shape: Shape, is_wanted: impl Fn(Kind) -> bool) -> Option<&EchoRow> {
    let wanted = rows.iter().filter(|row| row.subject.shape == shape && is_wanted(row.subject.kind));
    let known = wanted.filter_map(|row| Some((Summary::of(row.cpu())?.median, row)));
    known.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, row)| row)
}

/// The limit of a row: the cheapest bare TCP echo under the same load, on any driver.
pub(super) fn limit_of<'a>(rows: &'a [EchoRow], row: &EchoRow) -> Option<&'a EchoRow> {
    let is_above = !matches!(row.subject.kind, Kind::Tcp(_) | Kind::Aead(_));
    cheapest(rows, row.subject.shape, |kind| matches!(kind, Kind::Tcp(_))).filter(|_| is_above)
}

/// The row with this composition without TLS.
pub(super) fn plain_of<'a>(rows: &'a [EchoRow], row: &EchoRow) -> Option<&'a EchoRow> {
    let plain = match row.subject.kind {
        Kind::Wss(_, _, driver) => Kind::Ws(driver),
        Kind::Peer(peer, Protocol::Wss) => Kind::Peer(peer, Protocol::Ws),
        _ => return None,
    };
    rows.iter().find(|other| other.subject.kind == plain && other.subject.shape == row.subject.shape)
}

/// Adds lines of every row: its metrics, then its ratios to limit and plain.
pub(super) fn add_lines(outcome: &mut Outcome, rows: &[EchoRow]) {
    for row in rows {
        outcome.add_row(row);
        let others = [(limit_of(rows, row), Metric::RatioToLimit), (plain_of(rows, row), Metric::RatioToPlain)];
        for (other, metric) in others {
            if let Some(ratio) = other.and_then(|other| row.cpu_over(other)) {
                outcome.add(&row.subject.case(), metric, &ratio.runs);
            }
        }
    }
    outcome.warn_if_noisy(rows, |_| Metric::ServerCpuPerMsg);
    if rows.iter().any(|row| row.subject.is_bounded) {
        let what = "rates marked + are at least that: the load generator had no CPU time left; CPU per message holds";
        outcome.warnings.push(what.to_owned());
    }
}
