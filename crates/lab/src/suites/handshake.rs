//! What connections cost, and what a storm of them does to those that stand.

mod report;

use super::server::{Execution, Key, Kind, Process};
use super::signature::Signer;
use super::{ENGINES, Lab, Outcome, Pace};
use crate::load::{Echo, Handshakes, Storm};
use crate::rounds::{Plan, Samples, interleave};
use crate::{Case, Error, Metric};
use std::time::Duration;
use tautline::layers::io::Io;
use tautline::{Capabilities, KeyExchange};

/// What the rounds of the first and of the second part may take.
const BUDGETS: [Duration; 2] = [Duration::from_secs(270), Duration::from_secs(90)];

/// Rounds of storms for one of connections: a p99 wants many.
const STORM_ROUNDS: usize = 3;

/// Connections being made at a time.
const AT_ONCE: usize = 8;

/// Messages per second over the connections that stand: a tenth of what one loop can do.
const RATE: f64 = 10_000.0;

const ESTABLISHED: usize = 100;

const KEYS: [Key; 4] = [Key::Rsa2048, Key::Rsa4096, Key::P256, Key::Ed25519];

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
    let mut connects = connects(driver, lab.pace);
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
    Ok(report::report(&connects, &storms))
}

/// Kinds of key, groups, where it is done, full and resumed, by every engine as far as it can: all of it by the default one,
/// and of the others what is not the same as another row. Where time is short, that by the default engine which differs most,
/// and of the others what servers do most.
fn connects(driver: Io, pace: Pace) -> Vec<Row> {
    let plain = What::Connect { kind: Kind::Ws(driver), resumed: false, group: KeyExchange::All };
    let mut rows = vec![Row::new(plain)];
    rows.extend(KEYS.map(|key| Row::new(What::Sign(key))));
    for &engine in ENGINES.iter() {
        let can = Capabilities::of(engine);
        for key in KEYS.into_iter().filter(|key| *key != Key::Ed25519 || can.is_some_and(|can| can.ed25519)) {
            for group in [KeyExchange::Classical, KeyExchange::All] {
                if group == KeyExchange::All && !can.is_some_and(|can| can.post_quantum) {
                    continue;
                }
                for execution in [Execution::Inline, Execution::Offload] {
                    let kind = Kind::Shakes(engine, key, driver, execution);
                    for resumed in [false, true] {
                        if resumed && !can.is_some_and(|can| can.resumes_tls13) {
                            continue;
                        }
                        let wanted = if pace == Pace::Thorough { is_its_own } else { is_telling };
                        if wanted((kind, resumed, group)) {
                            rows.push(Row::new(What::Connect { kind, resumed, group }));
                        }
                    }
                }
            }
        }
    }
    rows
}

/// Whether these connections cost what no other row tells. Cheap signatures stay in the loop, and so do all sessions that are
/// resumed, whatever the key; the group costs the same beside any key.
fn is_its_own((kind, resumed, group): (Kind, bool, KeyExchange)) -> bool {
    let Kind::Shakes(engine, key, _, execution) = kind else { return true };
    let (is_classical, is_inline) = (group == KeyExchange::Classical, execution == Execution::Inline);
    match (key, resumed) {
        _ if engine == ENGINES[0] => true,
        (Key::Rsa2048, false) => is_classical || is_inline,
        (Key::Rsa2048, true) => is_inline,
        (Key::Rsa4096, false) => is_classical,
        // Mbed TLS takes so long for it that it leaves the loop.
        (Key::P256, false) => is_inline || (engine == "mbedtls" && is_classical),
        (Key::Ed25519, false) => is_inline && is_classical,
        (_, true) => false,
    }
}

/// Whether these connections are measured where time is short.
fn is_telling((kind, resumed, group): (Kind, bool, KeyExchange)) -> bool {
    let Kind::Shakes(engine, key, _, execution) = kind else { return true };
    let (is_classical, is_inline) = (group == KeyExchange::Classical, execution == Execution::Inline);
    match (engine == ENGINES[0], resumed) {
        (true, false) => is_classical || !is_inline,
        (true, true) => (is_classical && !is_inline) || (key == Key::Rsa2048 && is_classical == is_inline),
        (false, _) => is_classical && is_inline && (key == Key::Rsa2048 || (key == Key::P256 && !resumed)),
    }
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
                if let Some(engine) = kind.engine() {
                    // What a client costs is told by the same library.
                    server.engine = engine.parse().map_err(Error::Usage)?;
                }
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
                    if pace == Pace::Glance { (span.duration, RATE / 20.0) } else { (4 * span.duration, RATE) };
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
                    (Metric::LatencyP99, stormed.p99),
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
