use super::server::{Key, Kind, Process};
use super::{ENGINES, Lab, Outcome, Suite};
use crate::rounds::{Samples, interleave};
use crate::stats::Summary;
use crate::table::{Table, number, optional};
use crate::{Case, Error, Line, Metric, load, published};
use std::time::Duration;
use tautline::layers::io::Io;

/// Connections being made at a time: enough that the server always has one to work on, and that each finds a ticket.
const AT_ONCE: usize = 8;

/// Handshakes of one kind.
pub(super) struct HandshakeCase {
    kind: Kind,
    resumed: bool,
    samples: Samples,
    /// Handshakes that did not resume although they were to.
    full: u64,
}

impl HandshakeCase {
    const fn new(kind: Kind, resumed: bool) -> Self {
        Self { kind, resumed, samples: Samples::new(), full: 0 }
    }

    fn case(&self) -> Case {
        let key = if let Kind::Wss(_, key, _) = self.kind { Some(key.name().to_owned()) } else { None };
        Case {
            protocol: self.kind.protocol(),
            tls: self.kind.engine().map(str::to_owned),
            driver: self.kind.driver().map(|driver| driver.name().to_owned()),
            resumed: key.is_some().then_some(self.resumed),
            key,
            ..Case::default()
        }
    }

    fn name(&self) -> (&'static str, &'static str) {
        match (self.kind, self.resumed) {
            (Kind::Wss(_, key, _), false) => (key.name(), "full"),
            (Kind::Wss(_, key, _), true) => (key.name(), "resumed"),
            _ => ("-", "ws, no TLS"),
        }
    }

    fn summary(&self) -> Option<Summary> {
        Summary::of(self.samples.get(&Metric::ServerCpuPerHandshake)?)
    }

    fn published(&self) -> Option<f64> {
        match self.kind {
            Kind::Wss(_, key, _) => published(key, self.resumed),
            _ => None,
        }
    }
}

/// CPU time of server and client together in us, as a report on Go's TLS measured it.
pub(super) fn published(key: Key, resumed: bool) -> Option<f64> {
    let text = match (key, resumed) {
        (Key::Rsa2048, false) => "Go 1.8 RSA-2048 both sides one core full=yes tickets=no",
        (Key::Rsa2048, true) => "Go 1.8 RSA-2048 both sides one core full=no tickets=yes",
        _ => return None,
    };
    let is_it = |figure: &&published::Figure| figure.suite == "handshake" && figure.text == text;
    published::figures().iter().find(is_it).map(|figure| figure.value / 1e3)
}

/// Full and resumed handshakes with both kinds of key, by the default engine; the same without TLS.
pub(super) fn cases(driver: Io) -> Vec<HandshakeCase> {
    let [rsa, p256] = [Key::Rsa2048, Key::P256].map(|key| Kind::Wss(ENGINES[0], key, driver));
    vec![
        HandshakeCase::new(Kind::Ws(driver), false),
        HandshakeCase::new(rsa, false),
        HandshakeCase::new(rsa, true),
        HandshakeCase::new(p256, false),
        HandshakeCase::new(p256, true),
    ]
}

/// Measures all cases in interleaved rounds; `progress` goes on from `share` of the suite.
pub(super) fn measure(
    lab: &mut Lab<'_>,
    servers: &[Process],
    cases: &mut [HandshakeCase],
    budget: Duration,
    share: f64,
) -> Result<(), Error> {
    let (plan, span) = (lab.plan(budget), lab.span());
    let names: Vec<String> =
        cases.iter().map(|case| format!("handshakes: {} {}", case.name().0, case.name().1)).collect();
    let progress = &mut lab.progress;
    let samples = interleave(
        cases,
        &plan,
        |step| progress(share + (1.0 - share) * step.done as f64 / step.total as f64, &names[step.case]),
        |case, _| {
            let server = servers.iter().find(|server| server.kind == case.kind);
            let server =
                server.ok_or_else(|| Error::Failed(format!("no {} server runs", case.kind.full_name())))?.server()?;
            let (resumed, warmup, duration) = (case.resumed, span.warmup, span.duration);
            let shaken = load::Handshakes { server, at_once: AT_ONCE, resumed, may_refuse: false, warmup, duration }
                .run(&mut |_| {})?;
            let measured = shaken.measured;
            if case.resumed {
                case.full += measured.count - shaken.resumed.min(measured.count);
            }
            Ok(measured.handshake_metrics())
        },
    )?;
    for (case, samples) in cases.iter_mut().zip(samples) {
        case.samples = samples;
    }
    Ok(())
}

/// Lines and the table.
pub(super) fn report(outcome: &mut Outcome, suite: Suite, cases: &[HandshakeCase]) {
    let mut table = Table::new(&[
        "<key",
        "<handshake",
        "1/s",
        "p50 us",
        "server us",
        "± %",
        "both sides us",
        "published us",
        "x published",
    ]);
    for case in cases {
        let facts = case.case();
        for (&metric, runs) in &case.samples {
            let published = case.published().filter(|_| metric == Metric::CpuPerHandshake);
            let line = Line::new(suite.name(), &facts, metric, runs);
            outcome.lines.extend(line.map(|line| Line { published, ..line }));
        }
        let (key, kind) = case.name();
        let Some(summary) = case.summary() else { continue };
        if case.full > 0 {
            outcome.warnings.push(format!("{key} {kind}: {} of the handshakes were full", case.full));
        }
        let median =
            |metric| case.samples.get(&metric).and_then(|runs| Summary::of(runs)).map(|summary| summary.median);
        let both = median(Metric::CpuPerHandshake);
        let published = case.published();
        let compared = both.zip(published).map(|(ours, theirs)| ours / theirs);
        table.row([
            key.to_owned(),
            kind.to_owned(),
            optional(median(Metric::Handshakes)),
            optional(median(Metric::LatencyP50)),
            number(summary.median),
            number(summary.spread() * 100.0),
            optional(both),
            optional(published),
            optional(compared),
        ]);
    }
    let names: Vec<String> = cases.iter().map(|case| format!("{} {}", case.name().0, case.name().1)).collect();
    outcome.warn_if_noisy(names.iter().map(String::as_str).zip(cases.iter().map(HandshakeCase::summary)));
    outcome.text += &format!(
        "\nHandshakes: connect, upgrade, close, {AT_ONCE} at a time, TLS {}, {}.\n\
         Published: Go 1.8, both sides, in memory, without TCP and upgrade.\n\n{table}",
        ENGINES[0],
        cases.first().map_or("-", |case| case.kind.driver_name())
    );
}

/// How much cheaper full handshakes are with P-256 than with RSA-2048, in server CPU.
pub(super) fn rsa_over_p256(cases: &[HandshakeCase]) -> Option<f64> {
    let full = |key: &str| cases.iter().find(|case| case.name() == (key, "full")).and_then(HandshakeCase::summary);
    Some(full("rsa2048")?.median / full("p256")?.median)
}
