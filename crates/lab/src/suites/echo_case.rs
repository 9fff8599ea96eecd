use super::server::{Kind, Process};
use super::{ENGINES, Lab, Outcome, Span, Suite};
use crate::rounds::{Samples, interleave};
use crate::stats::{Ratio, Summary};
use crate::{Case, Error, Line, Measured, Metric, Protocol, limit, load};
use std::time::Duration;

/// Above this share of its CPU the load generator bounds the rate.
const BUSY: f64 = 0.95;

/// How messages are sent, whatever carries them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) size: usize,
    pub(super) connections: usize,
    pub(super) pipeline: usize,
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
    /// As written in results.
    pub(super) fn case(&self) -> Case {
        let is_ours = self.kind != Kind::Tcp;
        Case {
            protocol: Some(self.kind.protocol()),
            tls: self.kind.engine().map(str::to_owned),
            driver: is_ours.then(|| "epoll".to_owned()),
            size: Some(self.shape.size as u64),
            connections: Some(self.shape.connections as u64),
            pipeline: Some(self.shape.pipeline as u64),
            ..Case::default()
        }
    }

    pub(super) fn summary(&self, metric: Metric) -> Option<Summary> {
        Summary::of(self.samples.get(&metric)?)
    }

    pub(super) fn median(&self, metric: Metric) -> Option<f64> {
        Some(self.summary(metric)?.median)
    }

    /// This case's server CPU per message over another's, round by round.
    pub(super) fn cpu_over(&self, other: &Self) -> Option<Ratio> {
        let metric = Metric::ServerCpuPerMsg;
        Ratio::paired(self.samples.get(&metric)?, other.samples.get(&metric)?)
    }
}

/// Every shape with every composition: limit (where wanted), ws, and wss with each engine.
pub(super) fn cases(shapes: &[Shape], with_limit: bool) -> Vec<EchoCase> {
    let case = |kind, shape| EchoCase { kind, shape, samples: Samples::new(), is_bounded: false };
    shapes.iter().flat_map(|&shape| kinds(with_limit).into_iter().map(move |kind| case(kind, shape))).collect()
}

/// The compositions that [`cases`] needs servers for.
pub(super) fn kinds(with_limit: bool) -> Vec<Kind> {
    let mut kinds = vec![Kind::Tcp, Kind::Ws];
    kinds.retain(|&kind| with_limit || kind != Kind::Tcp);
    kinds.extend(ENGINES.map(|engine| Kind::Wss(engine, super::server::Key::P256)));
    kinds
}

/// Measures all cases in interleaved rounds; `progress` counts up to `share` of the suite.
pub(super) fn measure(
    lab: &mut Lab<'_>,
    servers: &[Process],
    cases: &mut [EchoCase],
    budget: Duration,
    share: f64,
) -> Result<(), Error> {
    let (plan, span) = (lab.plan(budget), lab.span());
    let names: Vec<String> = cases.iter().map(|case| format!("{}, {} B", case.kind.name(), case.shape.size)).collect();
    let progress = &mut lab.progress;
    let samples = interleave(
        cases,
        &plan,
        |step| progress(step.done as f64 / step.total as f64 * share, &names[step.case]),
        |case, _| {
            let server = servers.iter().find(|server| server.kind == case.kind);
            let server = server.ok_or_else(|| Error::Failed(format!("no {} server runs", case.kind.name())))?;
            let measured = once(server, case.shape, span)?;
            case.is_bounded |= measured.own_share() > BUSY;
            Ok(measured.message_metrics(case.shape.size))
        },
    )?;
    for (case, samples) in cases.iter_mut().zip(samples) {
        case.samples = samples;
    }
    Ok(())
}

fn once(server: &Process, shape: Shape, span: Span) -> Result<Measured, Error> {
    let Shape { size, connections, pipeline } = shape;
    let Span { warmup, duration } = span;
    if server.kind == Kind::Tcp {
        let (address, server_pid) = (server.address, Some(server.pid()));
        return limit::Load { address, connections, size, pipeline, warmup, duration, server_pid }.run();
    }
    load::Echo { server: server.server()?, connections, size, pipeline, rate: None, warmup, duration }.run(&mut |_| {})
}

/// The case of another composition under the same load.
pub(super) fn beside<'a>(cases: &'a [EchoCase], case: &EchoCase, protocol: Protocol) -> Option<&'a EchoCase> {
    let is_wanted = |other: &&EchoCase| other.kind.protocol() == protocol && other.shape == case.shape;
    cases.iter().find(is_wanted).filter(|_| case.kind.protocol() > protocol)
}

/// Lines of every case: what was measured, then the ratios to limit and plain.
pub(super) fn add_lines(outcome: &mut Outcome, suite: Suite, cases: &[EchoCase]) {
    for case in cases {
        let facts = case.case();
        outcome.add_samples(suite, &facts, &case.samples);
        for (protocol, metric) in [(Protocol::Tcp, Metric::RatioToLimit), (Protocol::Ws, Metric::RatioToPlain)] {
            if let Some(ratio) = beside(cases, case, protocol).and_then(|other| case.cpu_over(other)) {
                outcome.lines.extend(Line::new(suite.name(), &facts, metric, &ratio.runs));
            }
        }
        if let Some(summary) = case.summary(Metric::ServerCpuPerMsg) {
            let Shape { size, connections, .. } = case.shape;
            let name = format!("{}, {size} B, {connections} connections", case.kind.name());
            outcome.warn_if_noisy(&name, &summary);
        }
    }
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
