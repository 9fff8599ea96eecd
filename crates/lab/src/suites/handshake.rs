//! What connections cost, and what a storm of them does to those that stand.

use super::check::{self, Check};
use super::server::{Execution, Key, Kind, Process};
use super::signature::Signer;
use super::{ENGINES, Lab, Outcome, Pace, Suite};
use crate::load::{Echo, Handshakes, Storm};
use crate::rounds::{Plan, Samples, interleave};
use crate::stats::{Ratio, Summary};
use crate::table::{Table, number, optional};
use crate::{Case, Error, Metric, Target, published};
use std::time::Duration;
use tautline::KeyExchange;
use tautline::layers::io::Io;

/// What the rounds of the first and of the second part may take.
const BUDGETS: [Duration; 2] = [Duration::from_secs(150), Duration::from_secs(60)];

/// Rounds of storms for one of connections: a stall of the whole machine, which a p99 shows at once, spoils one of many.
const STORM_ROUNDS: usize = 5;

/// Connections being made at a time.
const AT_ONCE: usize = 8;

/// Messages per second over the connections that stand: a tenth of what one loop can do.
const RATE: f64 = 10_000.0;

const ESTABLISHED: usize = 100;

/// What one row measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Connections, with their handshakes.
    Connect { kind: Kind, resumed: bool, group: KeyExchange },
    /// A signature alone.
    Sign(Key),
    /// Messages of others, with so many newcomers at a time.
    Storm { kind: Kind, newcomers: usize },
}

struct Row {
    what: What,
    signer: Option<Signer>,
    samples: Samples,
}

impl Row {
    const fn new(what: What) -> Self {
        Self { what, signer: None, samples: Samples::new() }
    }

    fn case(&self) -> Case {
        let name = |kind: Kind| Case {
            protocol: kind.protocol(),
            tls: kind.engine().map(str::to_owned),
            driver: kind.driver().map(|driver| driver.name().to_owned()),
            key: kind.engine().map(|_| kind.key().name().to_owned()),
            execution: execution(kind).map(str::to_owned),
            ..Case::default()
        };
        match self.what {
            What::Connect { kind, resumed, group } => Case {
                resumed: kind.engine().map(|_| resumed),
                group: kind.engine().map(|_| group_name(group).to_owned()),
                ..name(kind)
            },
            What::Sign(key) => {
                Case { key: Some(key.name().to_owned()), strategy: Some("signature".to_owned()), ..Case::default() }
            }
            What::Storm { kind, newcomers } => Case {
                connections: Some(ESTABLISHED as u64),
                size: Some(64),
                setup: Some(if newcomers == 0 { "quiet" } else { "storm" }.to_owned()),
                ..name(kind)
            },
        }
    }

    fn runs(&self, metric: Metric) -> &[f64] {
        self.samples.get(&metric).map_or(&[], Vec::as_slice)
    }

    fn median(&self, metric: Metric) -> Option<f64> {
        Summary::of(self.runs(metric)).map(|summary| summary.median)
    }
}

const fn group_name(group: KeyExchange) -> &'static str {
    match group {
        KeyExchange::All => "x25519mlkem768",
        KeyExchange::Classical => "x25519",
    }
}

const fn execution(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Shakes(_, _, _, Execution::Inline) => Some("inline"),
        Kind::Shakes(_, _, _, Execution::Offload) => Some("gated"),
        _ => None,
    }
}

pub(super) fn run(lab: &mut Lab<'_>) -> Result<Outcome, Error> {
    let driver = lab.drivers[0];
    let mut connects = connects(driver);
    let mut storms = storms(driver);
    let mut kinds: Vec<Kind> = Vec::new();
    for row in connects.iter().chain(&storms) {
        if let What::Connect { kind, .. } | What::Storm { kind, .. } = row.what
            && !kinds.contains(&kind)
        {
            kinds.push(kind);
        }
    }
    let servers = lab.servers(&kinds)?;
    let plan = lab.plan(BUDGETS[0]);
    measure(lab, &servers, &mut connects, &plan, (0.0, 0.7))?;
    let plan = lab.plan(BUDGETS[1]);
    let rounds = if lab.pace == Pace::Glance { 1 } else { STORM_ROUNDS * plan.rounds };
    measure(lab, &servers, &mut storms, &Plan { rounds, ..plan }, (0.7, 1.0))?;
    let mut outcome = Outcome { text: connect_table(&connects) + &storm_table(&storms), ..Outcome::default() };
    for row in connects.iter().chain(&storms) {
        outcome.add_samples(Suite::Handshake, &row.case(), &row.samples);
    }
    check::report(&mut outcome, Suite::Handshake, checks(&connects, &storms));
    Ok(outcome)
}

/// Every kind of key by the default engine, those that servers have by the others.
fn connects(driver: Io) -> Vec<Row> {
    use Execution::{Inline, Offload};
    use KeyExchange::{All, Classical};
    let row = |engine, key, execution, resumed, group| {
        Row::new(What::Connect { kind: Kind::Shakes(engine, key, driver, execution), resumed, group })
    };
    let plain = What::Connect { kind: Kind::Ws(driver), resumed: false, group: All };
    let keys = [Key::Rsa2048, Key::Rsa4096, Key::P256, Key::Ed25519];
    let mut rows = vec![Row::new(plain)];
    rows.extend(keys.map(|key| Row::new(What::Sign(key))));
    for key in keys {
        rows.push(row(ENGINES[0], key, Offload, false, All));
        rows.push(row(ENGINES[0], key, Offload, false, Classical));
        if matches!(key, Key::Rsa2048 | Key::Rsa4096) {
            rows.push(row(ENGINES[0], key, Inline, false, Classical));
        }
        if matches!(key, Key::Rsa2048 | Key::P256) {
            rows.push(row(ENGINES[0], key, Offload, true, All));
            rows.push(row(ENGINES[0], key, Offload, true, Classical));
        }
    }
    for engine in &ENGINES[1..] {
        for key in [Key::Rsa2048, Key::P256] {
            rows.extend([false, true].map(|resumed| row(engine, key, Offload, resumed, Classical)));
        }
    }
    rows
}

fn storms(driver: Io) -> Vec<Row> {
    let kind = |execution| Kind::Shakes(ENGINES[0], Key::Rsa2048, driver, execution);
    let storm = |execution, newcomers| Row::new(What::Storm { kind: kind(execution), newcomers });
    vec![storm(Execution::Offload, 0), storm(Execution::Offload, AT_ONCE), storm(Execution::Inline, AT_ONCE)]
}

fn measure(
    lab: &mut Lab<'_>,
    servers: &[Process],
    rows: &mut [Row],
    plan: &Plan,
    (from, to): (f64, f64),
) -> Result<(), Error> {
    let (span, pace) = (lab.span(), lab.pace);
    let names: Vec<String> = rows.iter().map(|row| format!("{:?}", row.what)).collect();
    let progress = &mut lab.progress;
    let server = |kind: Kind| {
        let server = servers.iter().find(|server| server.kind == kind);
        server.ok_or_else(|| Error::Failed(format!("no {} server runs", kind.full_name())))?.server()
    };
    let samples = interleave(
        rows,
        plan,
        |step| progress(from + (to - from) * step.done as f64 / step.total as f64, &names[step.case]),
        |row, _| match row.what {
            What::Connect { kind, resumed, group } => {
                let mut server = server(kind)?;
                server.tls.key_exchange = group;
                let (warmup, duration) = (span.warmup, span.duration);
                let shaken = Handshakes { server, at_once: AT_ONCE, resumed, may_refuse: true, warmup, duration }
                    .run(&mut |_| {})?;
                if resumed && shaken.resumed < shaken.measured.count {
                    let full = shaken.measured.count - shaken.resumed;
                    log::warn!("{}: {full} of {} handshakes were full", kind.full_name(), shaken.measured.count);
                }
                let mut metrics = shaken.measured.handshake_metrics();
                metrics.push((Metric::Refused, shaken.refused_rate()));
                Ok(metrics)
            }
            What::Sign(key) => {
                let signer = match &mut row.signer {
                    Some(signer) => signer,
                    none => none.insert(Signer::new(key)?),
                };
                Ok(vec![(Metric::CpuPerSignature, signer.measure(span.duration / 4)?)])
            }
            What::Storm { kind, newcomers } => {
                // A glance is for slow builds on busy machines too.
                let (duration, rate) =
                    if pace == Pace::Glance { (span.duration, RATE / 20.0) } else { (2 * span.duration, RATE) };
                let echo = Echo {
                    server: server(kind)?,
                    connections: ESTABLISHED,
                    size: 64,
                    pipeline: 1,
                    rate: Some(rate),
                    warmup: 2 * span.warmup,
                    duration,
                };
                let stormed = Storm { echo, newcomers }.run()?;
                let latencies = &stormed.messages.latencies;
                let quantile = |q| latencies.quantile_us(q);
                Ok(vec![
                    (Metric::LatencyP50, quantile(0.5)),
                    (Metric::LatencyP99, quantile(0.99)),
                    (Metric::LatencyP999, quantile(0.999)),
                    (Metric::Throughput, stormed.messages.rate()),
                    (Metric::Handshakes, stormed.handshakes),
                    (Metric::Refused, stormed.refused),
                ])
            }
        },
    )?;
    for (row, samples) in rows.iter_mut().zip(samples) {
        row.samples = samples;
    }
    Ok(())
}

fn signature(rows: &[Row], key: Key) -> Option<&Row> {
    rows.iter().find(|row| row.what == What::Sign(key))
}

fn connect_table(rows: &[Row]) -> String {
    let mut table = Table::new(&[
        "<",
        "<key",
        "<group",
        "<handshake",
        "<signs",
        "1/s",
        "p50 us",
        "p99 us",
        "server us",
        "x signature",
    ]);
    for row in rows {
        let What::Connect { kind, resumed, group } = row.what else { continue };
        let signature = signature(rows, kind.key()).filter(|_| kind.engine().is_some() && !resumed);
        let over = signature.and_then(|signature| {
            Some(row.median(Metric::ServerCpuPerHandshake)? / signature.median(Metric::CpuPerSignature)?)
        });
        let secure = |text: &str| if kind.engine().is_some() { text.to_owned() } else { "-".to_owned() };
        table.row([
            kind.engine().unwrap_or("ws, no TLS").to_owned(),
            secure(kind.key().name()),
            secure(if group == KeyExchange::All { "hybrid" } else { "x25519" }),
            secure(if resumed { "resumed" } else { "full" }),
            secure(execution(kind).unwrap_or("-")),
            optional(row.median(Metric::Handshakes)),
            optional(row.median(Metric::LatencyP50)),
            optional(row.median(Metric::LatencyP99)),
            optional(row.median(Metric::ServerCpuPerHandshake)),
            optional(over),
        ]);
    }
    let mut text = format!(
        "Connections: connect, TLS, upgrade, close, {AT_ONCE} at a time. server: CPU of the whole process for each; x\n\
         signature: over that of the signature alone; gated: expensive signatures beside the loop; hybrid:\n\
         X25519MLKEM768.\n\n{table}\n"
    );
    for row in rows {
        if let (What::Connect { kind, .. }, Some(refused)) =
            (row.what, row.median(Metric::Refused).filter(|rate| *rate > 0.0))
        {
            text += &format!("{} refused {} more connections a second\n", kind.full_name(), number(refused));
        }
        if let (What::Sign(key), Some(us)) = (row.what, row.median(Metric::CpuPerSignature)) {
            text +=
                &format!("{} signature alone: {} us, {} a second and CPU\n", key.name(), number(us), number(1e6 / us));
        }
    }
    for (text_of, resumed) in [("full=yes tickets=no", false), ("full=no tickets=yes", true)] {
        let wanted = format!("Go 1.8 RSA-2048 both sides one core {text_of}");
        let figure = published::figures().iter().find(|figure| figure.suite == "handshake" && figure.text == wanted);
        let ours = find(rows, Key::Rsa2048, Execution::Offload, resumed, KeyExchange::Classical);
        if let (Some(figure), Some(ours)) = (figure, ours.and_then(|row| row.median(Metric::ServerCpuPerHandshake))) {
            text += &format!(
                "published, {text_of}: {} us, both sides in memory; ours: {} us, server and socket\n",
                number(figure.value / 1e3),
                number(ours)
            );
        }
    }
    text
}

fn storm_table(rows: &[Row]) -> String {
    let mut table = Table::new(&["<", "<signs", "p50 us", "p99 us", "p99.9 us", "msg/s", "handshakes/s", "refused/s"]);
    for row in rows {
        let What::Storm { kind, newcomers } = row.what else { continue };
        table.row([
            if newcomers == 0 { "quiet" } else { "storm" }.to_owned(),
            execution(kind).unwrap_or("-").to_owned(),
            optional(row.median(Metric::LatencyP50)),
            optional(row.median(Metric::LatencyP99)),
            optional(row.median(Metric::LatencyP999)),
            optional(row.median(Metric::Throughput)),
            optional(row.median(Metric::Handshakes)),
            optional(row.median(Metric::Refused)),
        ]);
    }
    format!(
        "\nA storm: {ESTABLISHED} connections send {} messages of 64 B a second while {AT_ONCE} others at a time shake\n\
         hands in full with RSA-2048, over and over; their client runs while that of the messages sleeps.\n\
         Latency from when a message was due. refused: newcomers that the server had no time for.\n\n{table}",
        number(RATE)
    )
}

fn find(rows: &[Row], key: Key, execution: Execution, resumed: bool, group: KeyExchange) -> Option<&Row> {
    rows.iter().find(|row| {
        matches!(row.what, What::Connect { kind: Kind::Shakes(engine, of, _, how), resumed: is, group: by }
            if engine == ENGINES[0] && of == key && how == execution && is == resumed && by == group)
    })
}

fn checks(connects: &[Row], storms: &[Row]) -> Vec<Check> {
    use Metric::{CpuPerSignature, LatencyP99, RatioToQuiet, RatioToResumed, RatioToSignature, ServerCpuPerHandshake};
    let find = |execution, resumed| find(connects, Key::Rsa2048, execution, resumed, KeyExchange::Classical);
    let ratio = |over: Option<&Row>, under: Option<&Row>, (of, to)| Ratio::paired(over?.runs(of), under?.runs(to));
    let (full, inline) = (find(Execution::Offload, false), find(Execution::Inline, false));
    let case = |row: Option<&Row>| row.map(Row::case).unwrap_or_default();
    // Without newcomers there was no storm.
    let storm = storms.get(1).filter(|row| row.median(Metric::Handshakes).is_some_and(|rate| rate > 0.0));
    let cpu = ServerCpuPerHandshake;
    let signature = signature(connects, Key::Rsa2048);
    [
        Check::ratio(
            "RSA-2048: full over resumed".to_owned(),
            case(full),
            (RatioToResumed, ratio(full, find(Execution::Offload, true), (cpu, cpu))),
            Target::AtLeast(4.0),
        ),
        Check::ratio(
            "RSA-2048: full inline over the signature".to_owned(),
            case(inline),
            (RatioToSignature, ratio(inline, signature, (cpu, CpuPerSignature))),
            Target::AtMost(1.35),
        ),
        Check::ratio(
            "RSA-2048: full beside the loop over the signature".to_owned(),
            case(full),
            (RatioToSignature, ratio(full, signature, (cpu, CpuPerSignature))),
            Target::AtMost(1.35),
        ),
        Check::ratio(
            "storm, beside the loop: p99 over quiet".to_owned(),
            case(storms.get(1)),
            (RatioToQuiet, ratio(storm, storms.first(), (LatencyP99, LatencyP99))),
            Target::AtMost(2.0),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}
