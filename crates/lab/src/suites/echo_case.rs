use super::server::{Key, Kind, Process, Way};
use super::{ENGINES, Lab, Outcome, Span, Suite};
use crate::baselines::Model;
use crate::records::Work;
use crate::rounds::{Samples, interleave};
use crate::stats::{Ratio, Summary};
use crate::{Case, Error, Line, Measured, Metric, limit, load};
use std::time::Duration;
use tautline::DeflateConfig;
use tautline::layers::io::Io;

/// Above this share of its CPU the load generator bounds the rate.
const BUSY: f64 = 0.95;

/// How messages are sent, whatever carries them. A broadcast delivers each to all connections.
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

    /// In tables: `64 B`, with the connections where they are not a hundred, and the messages in flight.
    pub(super) fn name(self) -> String {
        let mut name = crate::table::bytes(self.size as u64);
        if self.connections != 100 {
            name += &format!(", {}", self.connections);
        }
        if self.pipeline > 1 {
            name += &format!(", x{}", self.pipeline);
        }
        name
    }
}

/// One composition under one shape of load.
pub(super) struct EchoCase {
    pub(super) kind: Kind,
    pub(super) shape: Shape,
    pub(super) samples: Samples,
    /// Whether the generator was the bottleneck in some round.
    pub(super) is_bounded: bool,
}

impl EchoCase {
    pub(super) const fn new(kind: Kind, shape: Shape) -> Self {
        Self { kind, shape, samples: Samples::new(), is_bounded: false }
    }

    /// As written in results.
    pub(super) fn case(&self) -> Case {
        let Shape { size, connections, pipeline } = self.shape;
        let case = Case {
            protocol: self.kind.protocol(),
            tls: self.kind.engine().map(str::to_owned),
            driver: self.kind.driver().map(|driver| driver.name().to_owned()),
            peer: self.kind.peer().map(|peer| peer.name().to_owned()),
            size: Some(size as u64),
            ..Case::default()
        };
        let case = match self.kind {
            Kind::Model(way) => model_case(way, case),
            _ => case,
        };
        match self.kind {
            Kind::Aead => Case { strategy: Some("aead".to_owned()), ..case },
            Kind::Broadcast(_, deflate, _) => Case {
                subscribers: Some(connections as u64),
                pipeline: Some(pipeline as u64),
                setup: deflate.then(|| "permessage-deflate".to_owned()),
                ..case
            },
            _ => Case { connections: Some(connections as u64), pipeline: Some(pipeline as u64), ..case },
        }
    }

    pub(super) fn summary(&self, metric: Metric) -> Option<Summary> {
        Summary::of(self.samples.get(&metric)?)
    }

    pub(super) fn median(&self, metric: Metric) -> Option<f64> {
        Some(self.summary(metric)?.median)
    }

    /// CPU per message in us, round by round: the server's, or this thread's where there is none.
    pub(super) fn cpu(&self) -> Option<&[f64]> {
        let metric = if self.kind == Kind::Aead { Metric::CpuPerMsg } else { Metric::ServerCpuPerMsg };
        self.samples.get(&metric).map(Vec::as_slice)
    }

    /// Its median.
    pub(super) fn median_cpu(&self) -> Option<f64> {
        Some(Summary::of(self.cpu()?)?.median)
    }

    /// This case's CPU per message over another's, round by round.
    pub(super) fn cpu_over(&self, other: &Self) -> Option<Ratio> {
        Ratio::paired(self.cpu()?, other.cpu()?)
    }
}

/// The limit, plain WebSocket, and TLS by every engine, each on every driver.
pub(super) fn kinds(drivers: &[Io]) -> Vec<Kind> {
    let wss = ENGINES.iter().flat_map(|&engine| drivers.iter().map(move |&io| Kind::Wss(engine, Key::P256, io)));
    let tcp = drivers.iter().map(|&driver| Kind::Tcp(driver));
    tcp.chain(drivers.iter().map(|&driver| Kind::Ws(driver))).chain(wss).collect()
}

/// Every shape with every kind.
pub(super) fn cases(shapes: &[Shape], kinds: &[Kind]) -> Vec<EchoCase> {
    shapes.iter().flat_map(|&shape| kinds.iter().map(move |&kind| EchoCase::new(kind, shape))).collect()
}

/// Measures all cases in interleaved rounds; `progress` goes from `from` to `to` of the suite.
pub(super) fn measure(
    lab: &mut Lab<'_>,
    servers: &[Process],
    cases: &mut [EchoCase],
    budget: Duration,
    (from, to): (f64, f64),
) -> Result<(), Error> {
    let (plan, span) = (lab.plan(budget), lab.span());
    let names: Vec<String> =
        cases.iter().map(|case| format!("{}, {}", case.kind.full_name(), case.shape.name())).collect();
    let progress = &mut lab.progress;
    let samples = interleave(
        cases,
        &plan,
        |step| progress(from + step.done as f64 / step.total as f64 * (to - from), &names[step.case]),
        |case, step| {
            let named = |error| in_case(&names[step.case], error);
            if case.kind == Kind::Aead {
                let us = Work::aead(case.shape.size)?.measure(span.duration / 10).map_err(named)?;
                return Ok(vec![(Metric::CpuPerMsg, us)]);
            }
            let server = servers.iter().find(|server| server.kind == case.kind);
            let server = server.ok_or_else(|| Error::Failed(format!("no {} server runs", case.kind.full_name())))?;
            let measured = once(server, case.shape, span).map_err(named)?;
            case.is_bounded |= measured.own_share() > BUSY;
            Ok(measured.message_metrics(case.shape.size))
        },
    )?;
    for (case, samples) in cases.iter_mut().zip(samples) {
        case.samples = samples;
    }
    Ok(())
}

/// What a model says of itself.
pub(super) fn model_case(way: Way, case: Case) -> Case {
    let execution = match (way.model, way.shared_from) {
        (Model::AlwaysOffload, _) => "always-offload",
        (_, Some(_)) => "gated",
        _ => "inline",
    };
    let model = (way.model != Model::AlwaysOffload).then(|| way.model.name().to_owned());
    Case { execution: Some(execution.to_owned()), model, threads: Some(way.threads as u64), ..case }
}

/// Large answers by a model, thrown away unread.
pub(super) fn bulk_case(way: Way, connections: usize, size: usize) -> Case {
    let kind = Kind::Model(way);
    let case = Case {
        protocol: kind.protocol(),
        tls: kind.engine().map(str::to_owned),
        size: Some(size as u64),
        connections: Some(connections as u64),
        direction: Some("write".to_owned()),
        ..Case::default()
    };
    model_case(way, case)
}

/// Says which case failed.
pub(super) fn in_case(name: &str, error: Error) -> Error {
    match error {
        Error::WrongReply(what) => Error::WrongReply(format!("{name}: {what}")),
        Error::Failed(what) => Error::Failed(format!("{name}: {what}")),
        Error::Network(what) => Error::Network(format!("{name}: {what}")),
        Error::Usage(what) => Error::Usage(format!("{name}: {what}")),
    }
}

fn once(server: &Process, shape: Shape, span: Span) -> Result<Measured, Error> {
    let Shape { size, connections, pipeline } = shape;
    let Span { warmup, duration } = span;
    match server.kind {
        Kind::Tcp(_) => {
            let (address, server_pid) = (server.address, Some(server.pid()));
            limit::Load { address, connections, size, pipeline, warmup, duration, server_pid }.run()
        }
        Kind::Broadcast(_, deflate, _) => {
            let mut server = server.server()?;
            server.target.deflate = deflate.then(DeflateConfig::default);
            load::Broadcast { server, subscribers: connections, size, pipeline, warmup, duration }.run(&mut |_| {})
        }
        _ => {
            let server = server.server()?;
            load::Echo { server, connections, size, pipeline, rate: None, warmup, duration }.run(&mut |_| {})
        }
    }
}

/// The cheapest of the cases under the same load that `is_wanted` names.
pub(super) fn cheapest(cases: &[EchoCase], shape: Shape, is_wanted: impl Fn(Kind) -> bool) -> Option<&EchoCase> {
    let wanted = cases.iter().filter(|case| case.shape == shape && is_wanted(case.kind));
    let known = wanted.filter_map(|case| Some((case.median_cpu()?, case)));
    known.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, case)| case)
}

/// What the case is judged by: the cheapest bare TCP echo under the same load, whatever its driver.
pub(super) fn limit_of<'a>(cases: &'a [EchoCase], case: &EchoCase) -> Option<&'a EchoCase> {
    let is_above = !matches!(case.kind, Kind::Tcp(_) | Kind::Aead);
    cheapest(cases, case.shape, |kind| matches!(kind, Kind::Tcp(_))).filter(|_| is_above)
}

/// The same composition without TLS.
pub(super) fn plain_of<'a>(cases: &'a [EchoCase], case: &EchoCase) -> Option<&'a EchoCase> {
    let plain = match case.kind {
        Kind::Wss(_, _, driver) => Kind::Ws(driver),
        Kind::Peer(peer, crate::Protocol::Wss) => Kind::Peer(peer, crate::Protocol::Ws),
        _ => return None,
    };
    cases.iter().find(|other| other.kind == plain && other.shape == case.shape)
}

/// Lines of every case: what was measured, then the ratios to limit and plain.
pub(super) fn add_lines(outcome: &mut Outcome, suite: Suite, cases: &[EchoCase]) {
    for case in cases {
        let facts = case.case();
        outcome.add_samples(suite, &facts, &case.samples);
        let others = [(limit_of(cases, case), Metric::RatioToLimit), (plain_of(cases, case), Metric::RatioToPlain)];
        for (other, metric) in others {
            if let Some(ratio) = other.and_then(|other| case.cpu_over(other)) {
                outcome.lines.extend(Line::new(suite.name(), &facts, metric, &ratio.runs));
            }
        }
    }
    let name = |case: &EchoCase| format!("{} {}", case.kind.full_name(), case.shape.name());
    let names: Vec<String> = cases.iter().map(name).collect();
    let summaries = cases.iter().map(|case| case.summary(Metric::ServerCpuPerMsg));
    outcome.warn_if_noisy(names.iter().map(String::as_str).zip(summaries));
    if cases.iter().any(|case| case.is_bounded) {
        let what = "rates marked + are at least that: the load generator had no CPU time left; CPU per message holds";
        outcome.warnings.push(what.to_owned());
    }
}

/// A rate, marked where the generator bounded it.
pub(super) fn rate(case: &EchoCase) -> String {
    let mark = if case.is_bounded { '+' } else { ' ' };
    format!("{}{mark}", crate::table::optional(case.median(Metric::Throughput)))
}
