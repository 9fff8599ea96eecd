//! What the probe itself costs a server.

use super::super::check::Check;
use super::super::echo_case::in_case;
use super::super::server::{Kind, Process};
use super::super::{Certificates, ENGINES, Lab, Outcome, Pace, Span, Suite};
use crate::load::Echo;
use crate::rounds::{Plan, Runs, Samples, interleave};
use crate::stats::Ratio;
use crate::table::{Table, number, optional};
use crate::{Case, Error, Metric, Protocol, Target};
use std::time::Duration;
use tautline::layers::io::Io;

/// What the rounds may take.
const BUDGET: Duration = Duration::from_secs(90);

/// Rounds, where they are not only to show that it works. Single rounds of two servers that are the same differ by some
/// hundredths; the median of so many differs by one at most.
const ROUNDS: usize = 45;

/// The longest of them: many short rounds tell more than a few long ones.
const SPAN: Span = Span { warmup: Duration::from_millis(60), duration: Duration::from_millis(200) };

/// Each message is read alone, as one is in flight on each of many connections: the dearest case, as one read is stamped for one
/// message.
const SIZE: usize = 64;
const CONNECTIONS: usize = 100;

/// What a message may cost with the probe, in CPU time of one without.
const MOST: f64 = 1.03;

/// An echo server, with the probe or without.
pub(super) struct Row {
    io: Io,
    probed: bool,
    samples: Samples,
}

impl Row {
    const fn new(io: Io, probed: bool) -> Self {
        Self { io, probed, samples: Samples::new() }
    }

    fn name(&self) -> String {
        format!("{} {}, probe {}", ENGINES[0], self.io, if self.probed { "on" } else { "off" })
    }

    fn case(&self) -> Case {
        Case {
            protocol: Some(Protocol::Wss),
            tls: Some(ENGINES[0].to_owned()),
            driver: Some(self.io.name().to_owned()),
            size: Some(SIZE as u64),
            connections: Some(CONNECTIONS as u64),
            pipeline: Some(1),
            setup: Some(if self.probed { "probe on" } else { "probe off" }.to_owned()),
            ..Case::default()
        }
    }

    /// A new server for each round: where its memory lies moves it by as much as the probe does.
    fn measure(&self, lab: &Lab<'_>, certificates: &Certificates, span: Span) -> Result<Vec<(Metric, f64)>, Error> {
        let process = Process::start(lab, Kind::Probed(self.probed, self.io), certificates)?;
        let echo = Echo {
            server: process.server()?,
            connections: CONNECTIONS,
            size: SIZE,
            pipeline: 1,
            rate: None,
            warmup: span.warmup,
            duration: span.duration,
        };
        let measured = echo.run(&mut |_| {}).map_err(|error| in_case(&self.name(), error))?;
        Ok(measured.message_metrics(SIZE))
    }

    fn over(&self, other: &Self) -> Option<Ratio> {
        let metric = Metric::ServerCpuPerMsg;
        Ratio::paired(self.samples.runs(metric), other.samples.runs(metric))
    }
}

/// Servers with and without, side by side.
fn rows(drivers: &[Io]) -> Vec<Row> {
    drivers.iter().flat_map(|&io| [false, true].map(|probed| Row::new(io, probed))).collect()
}

/// Measures servers with the probe and without in turns.
pub(super) fn measure(lab: &mut Lab<'_>, certificates: &Certificates, from: f64) -> Result<Vec<Row>, Error> {
    let drivers: Vec<Io> = [Io::Epoll, Io::Uring].into_iter().filter(|io| io.probe().is_ok()).collect();
    let mut rows = rows(&drivers);
    let plan = lab.plan(BUDGET);
    let (rounds, span) = if lab.pace == Pace::Glance { (plan.rounds, lab.span()) } else { (ROUNDS, SPAN) };
    let mut pairs: Vec<&mut [Row]> = rows.chunks_exact_mut(2).collect();
    interleave(
        &mut pairs,
        &Plan { rounds, ..plan },
        |_| {},
        |pair, step| {
            (lab.progress)(from + (1.0 - from) * step.done as f64 / step.total as f64, &pair[1].name());
            let mut measured = [Vec::new(), Vec::new()];
            for turn in turns(step.round) {
                measured[turn] = pair[turn].measure(lab, certificates, span)?;
            }
            // A machine that stood still for one of them says nothing of the pair.
            if measured.iter().all(|metrics| metrics.iter().any(|(metric, _)| *metric == Metric::ServerCpuPerMsg)) {
                for (row, metrics) in pair.iter_mut().zip(measured) {
                    for (metric, value) in metrics {
                        row.samples.entry(metric).or_default().push(value);
                    }
                }
            }
            Ok(Vec::new())
        },
    )?;
    Ok(rows)
}

/// Which of a pair is measured first, and which then: neither always, so that a machine that slows down favours none.
const fn turns(round: usize) -> [usize; 2] {
    if round.is_multiple_of(2) { [0, 1] } else { [1, 0] }
}

pub(super) fn add_lines(outcome: &mut Outcome, rows: &[Row]) {
    for row in rows {
        outcome.add_samples(Suite::Stages, &row.case(), &row.samples);
    }
}

pub(super) fn table(rows: &[Row]) -> String {
    let mut table = Table::new(&["<driver", "us/msg off", "us/msg on", "x", "95 %"]);
    for pair in rows.chunks_exact(2) {
        let ratio = pair[1].over(&pair[0]).map(|ratio| ratio.summary);
        let interval =
            |ratio: &crate::stats::Summary| format!("{}-{}", number(ratio.interval.low), number(ratio.interval.high));
        table.row([
            pair[0].io.name().to_owned(),
            optional(pair[0].samples.median(Metric::ServerCpuPerMsg)),
            optional(pair[1].samples.median(Metric::ServerCpuPerMsg)),
            optional(ratio.as_ref().map(|ratio| ratio.median)),
            ratio.as_ref().map_or_else(String::new, interval),
        ]);
    }
    format!(
        "\nThe probe's own cost: server CPU for each echo of {SIZE} B, {CONNECTIONS} connections with one message in\n\
         flight, `{}`, without the probe and with it, every message counted; servers in turns.\n\n{table}",
        ENGINES[0]
    )
}

pub(super) fn checks(rows: &[Row]) -> Vec<Check> {
    let check = |pair: &[Row]| {
        let what = format!("{} x off: server CPU", pair[1].name());
        let ratio = (Metric::RatioToUnprobed, pair[1].over(&pair[0]));
        Check::ratio(what, pair[1].case(), ratio, Target::AtMost(MOST))
    };
    rows.chunks_exact(2).filter_map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::check;
    use super::*;
    use crate::table::WIDTH;

    #[test]
    fn neither_of_a_pair_is_always_the_first() {
        assert_eq!([0, 1, 2, 3].map(turns), [[0, 1], [1, 0], [0, 1], [1, 0]]);
    }

    #[test]
    fn a_server_with_the_probe_is_judged_by_one_without() {
        let mut rows = rows(&[Io::Epoll, Io::Uring]);
        for (row, us) in rows.iter_mut().zip([4.0, 4.1, 4.0, 4.4]) {
            row.samples.insert(Metric::ServerCpuPerMsg, vec![us; 3]);
        }
        let mut outcome = Outcome { text: table(&rows), ..Outcome::default() };
        add_lines(&mut outcome, &rows);
        check::report(&mut outcome, Suite::Stages, checks(&rows));
        assert!(outcome.text.lines().all(|line| line.chars().count() <= WIDTH), "{}", outcome.text);
        let judged: Vec<_> = outcome.lines.iter().filter(|line| line.metric == Metric::RatioToUnprobed).collect();
        let met: Vec<_> = judged.iter().map(|line| line.target.map(|target| target.is_met_by(line.value))).collect();
        assert_eq!(met, [Some(true), Some(false)]);
        assert_eq!(judged[0].case.setup.as_deref(), Some("probe on"));
        assert!(outcome.text.contains("1.02") && outcome.text.contains("1.1"), "{}", outcome.text);
    }
}
