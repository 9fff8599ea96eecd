use super::super::handshake_case::published;
use super::super::signature::Signer;
use super::super::{ENGINES, Effort, Execution, Key, Kind, Lab, Metrics, Row, Servers, Subject};
use crate::load::{Echo, Handshakes, Storm};
use crate::{Case, DriverKind, Error, Metric, Span};
use tautline::{Capabilities, KeyExchange, TlsEngine};

/// Connections being opened at a time.
pub(super) const AT_ONCE: usize = 8;

/// Messages per second over the open connections: a tenth of what one loop can do.
pub(super) const RATE: f64 = 10_000.0;

/// Open connections during a storm.
pub(super) const ESTABLISHED: usize = 100;

/// Work of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Connections with their handshakes.
    Connect { kind: Kind, resumed: bool, group: KeyExchange },
    /// A signature alone.
    Sign(Key),
    /// Messages on open connections, while this number of newcomers connects at a time.
    Storm { kind: Kind, newcomers: usize },
}

/// A row's work, with the key that it signs with.
pub(super) struct Load {
    pub(super) work: Work,
    signer: Option<Signer>,
}

impl Work {
    const fn row(self) -> Row<Load> {
        Row::new(Load { work: self, signer: None })
    }
}

impl Load {
    /// The server that it needs.
    pub(super) const fn kind(&self) -> Option<Kind> {
        match self.work {
            Work::Connect { kind, .. } | Work::Storm { kind, .. } => Some(kind),
            Work::Sign(_) => None,
        }
    }

    /// Published CPU time of both ends in us, for the kind of key exchange in the report.
    pub(super) fn published(&self) -> Option<f64> {
        match self.work {
            Work::Connect { kind: Kind::Handshake(_, key, ..), resumed, group: KeyExchange::Classical } => {
                published(key, resumed)
            }
            _ => None,
        }
    }

    /// Measures once.
    pub(super) fn run(&mut self, lab: &Lab<'_>, servers: &Servers) -> Result<Metrics, Error> {
        match self.work {
            Work::Connect { kind, resumed, group } => connect(lab, servers, (kind, resumed, group)),
            Work::Sign(key) => {
                let signer = match &mut self.signer {
                    Some(signer) => signer,
                    none => none.insert(Signer::new(key)?),
                };
                Ok(vec![(Metric::CpuPerSignature, signer.measure(lab.span().duration / 4)?)])
            }
            Work::Storm { kind, newcomers } => storm(lab, servers, kind, newcomers),
        }
    }
}

fn connect(
    lab: &Lab<'_>,
    servers: &Servers,
    (kind, resumed, group): (Kind, bool, KeyExchange),
) -> Result<Metrics, Error> {
    let mut server = servers.of(kind)?.server()?;
    server.tls.key_exchange = group;
    if let Some(engine) = kind.engine() {
        // Both ends use one library, so that the cost of the client is that of the library too.
        server.engine = engine.parse().map_err(Error::Usage)?;
    }
    let handshakes = Handshakes { server, at_once: AT_ONCE, resumed, may_refuse: true, rate: None, span: lab.span() };
    let counts = handshakes.run(&mut |_| {})?;
    let count = counts.measured.count;
    if resumed && counts.resumed < count {
        log::warn!("{}: {} of {count} handshakes were full", kind.full_name(), count - counts.resumed);
    }
    let mut metrics = counts.measured.handshake_metrics();
    metrics.push((Metric::Refused, counts.refused_rate()));
    Ok(metrics)
}

fn storm(lab: &Lab<'_>, servers: &Servers, kind: Kind, newcomers: usize) -> Result<Metrics, Error> {
    let Span { warmup, duration } = lab.span();
    // A smoke run must also pass in slow builds on busy machines.
    let (duration, rate) = if lab.effort == Effort::Smoke { (duration, RATE / 20.0) } else { (4 * duration, RATE) };
    let span = Span { warmup: 2 * warmup, duration };
    let echo = Echo::small(servers.of(kind)?.server()?, ESTABLISHED, Some(rate), span);
    let storm = Storm { echo, newcomers, returning: None }.run()?;
    let latencies = &storm.messages.latencies;
    Ok(vec![
        (Metric::LatencyP50, latencies.quantile_us(0.5)),
        (Metric::LatencyP99, storm.p99),
        (Metric::LatencyP999, latencies.quantile_us(0.999)),
        (Metric::Throughput, storm.messages.rate()),
        (Metric::Handshakes, storm.handshakes),
        (Metric::Refused, storm.refused),
    ])
}

impl Subject for Load {
    fn name(&self) -> String {
        match self.work {
            Work::Connect { kind, resumed, group } => {
                let session = if resumed { "resumed" } else { "full" };
                format!("{}, {session}, {}", kind.full_name(), group_name(group))
            }
            Work::Sign(key) => format!("{} signature", key.name()),
            Work::Storm { kind, newcomers } => format!("{}, {newcomers} newcomers", kind.full_name()),
        }
    }

    fn case(&self) -> Case {
        match self.work {
            Work::Connect { kind, resumed, group } => {
                let tls = kind.engine();
                kind.case().resumed(tls.map(|_| resumed)).group(tls.map(|_| group_name(group)))
            }
            Work::Sign(key) => Case::default().key(key.name()).strategy("signature"),
            Work::Storm { kind, newcomers } => {
                kind.case().connections(ESTABLISHED).size(64).setup(if newcomers == 0 { "quiet" } else { "storm" })
            }
        }
    }
}

const fn group_name(group: KeyExchange) -> &'static str {
    match group {
        KeyExchange::Classical => "x25519",
        _ => "x25519mlkem768",
    }
}

/// Connections without TLS, signatures, and handshakes by every engine: kinds of key, groups, places of execution, full
/// and resumed, as far as the engine supports them.
pub(super) fn connects(driver: DriverKind, effort: Effort) -> Vec<Row<Load>> {
    let mut works = vec![Work::Connect { kind: Kind::Ws(driver), resumed: false, group: KeyExchange::All }];
    works.extend(Key::ALL.map(Work::Sign));
    let is_wanted = if effort == Effort::Thorough { is_distinct } else { is_typical };
    for &engine in ENGINES.iter() {
        let can = engine.parse::<TlsEngine>().ok().map(TlsEngine::capabilities);
        let can = |has: fn(&Capabilities) -> bool| can.is_some_and(has);
        for key in Key::ALL.into_iter().filter(|key| *key != Key::Ed25519 || can(|it| it.ed25519)) {
            let groups = [KeyExchange::Classical, KeyExchange::All].into_iter();
            for group in groups.filter(|group| *group == KeyExchange::Classical || can(|it| it.post_quantum)) {
                for execution in Execution::ALL {
                    let kind = Kind::Handshake(engine, key, driver, execution);
                    let sessions = [false, true].into_iter().filter(|resumed| !resumed || can(|it| it.resumes_tls13));
                    let connects = sessions.map(|resumed| (kind, resumed, group)).filter(|it| is_wanted(*it));
                    works.extend(connects.map(|(kind, resumed, group)| Work::Connect { kind, resumed, group }));
                }
            }
        }
    }
    works.into_iter().map(Work::row).collect()
}

/// Whether no other row shows the cost of these connections.
///
/// Cheap signatures stay in the loop, and so do resumed sessions with any key. The group costs the same with any key. The
/// default engine is measured in full.
fn is_distinct((kind, resumed, group): (Kind, bool, KeyExchange)) -> bool {
    let Kind::Handshake(engine, key, _, execution) = kind else { return true };
    let (is_classical, is_inline) = (group == KeyExchange::Classical, execution == Execution::Inline);
    match (key, resumed) {
        _ if engine == ENGINES[0] => true,
        (Key::Rsa2048, false) => is_classical || is_inline,
        (Key::Rsa2048, true) => is_inline,
        (Key::Rsa4096, false) => is_classical,
        // Mbed TLS signs so slowly that it leaves the loop.
        (Key::P256, false) => is_inline || (engine == "mbedtls" && is_classical),
        (Key::Ed25519, false) => is_inline && is_classical,
        (_, true) => false,
    }
}

/// Whether these connections are measured in a short run: the most different ones of the default engine, and the most
/// common ones of the others.
fn is_typical((kind, resumed, group): (Kind, bool, KeyExchange)) -> bool {
    let Kind::Handshake(engine, key, _, execution) = kind else { return true };
    let (is_classical, is_inline) = (group == KeyExchange::Classical, execution == Execution::Inline);
    match (engine == ENGINES[0], resumed) {
        (true, false) => is_classical || !is_inline,
        (true, true) => (is_classical && !is_inline) || (key == Key::Rsa2048 && is_classical == is_inline),
        (false, _) => is_classical && is_inline && (key == Key::Rsa2048 || (key == Key::P256 && !resumed)),
    }
}

/// A quiet server, then storms beside the loop and in it.
pub(super) fn storms(driver: DriverKind) -> Vec<Row<Load>> {
    let kind = |execution| Kind::Handshake(ENGINES[0], Key::Rsa2048, driver, execution);
    let storm = |execution, newcomers| Work::Storm { kind: kind(execution), newcomers }.row();
    vec![storm(Execution::Offload, 0), storm(Execution::Offload, AT_ONCE), storm(Execution::Inline, AT_ONCE)]
}
