//! Cost of the probe itself for a server.

use super::super::{Certificates, Check, ENGINES, Effort, Kind, Lab, Metrics, Process, Row, Subject, row};
use crate::load::Echo;
use crate::rounds::{Plan, Runs, interleave};
use crate::table::{Table, number, optional};
use crate::{Case, DriverKind, Error, Metric, Span, Target};
use std::ops::Range;
use std::time::Duration;

/// Time for the rounds.
const BUDGET: Duration = Duration::from_secs(90);

/// Rounds, except in a smoke run. Single rounds of two equal servers differ by some hundredths; the medians of 45 rounds
/// differ by at most one.
const ROUNDS: usize = 45;

/// Length of each measurement: many short rounds tell more than a few long ones.
const SPAN: Span = Span::millis(60, 200);

/// Load that makes the probe most expensive: one message in flight on each of many connections, so that each read is
/// stamped for a single message.
const SIZE: usize = 64;
const CONNECTIONS: usize = 100;

/// Greatest CPU time per message with the probe, over that without.
const MOST: f64 = 1.03;

/// An echo server, with the probe or without.
pub(super) struct Probed {
    io: DriverKind,
    is_probed: bool,
}

impl Probed {
    fn kind(&self) -> Kind {
        Kind::Probed(self.is_probed, self.io)
    }

    /// Measures a new server, because the place of its memory matters as much as the probe does.
    fn measure(&self, lab: &Lab<'_>, certificates: &Certificates, span: Span) -> Result<Metrics, Error> {
        let process = Process::start(lab, self.kind(), certificates, None)?;
        let echo = Echo { size: SIZE, ..Echo::small(process.server()?, CONNECTIONS, None, span) };
        let measured = echo.run(&mut |_| {}).map_err(|error| error.in_case(&self.name()))?;
        Ok(measured.message_metrics(SIZE))
    }
}

impl Subject for Probed {
    fn name(&self) -> String {
        format!("{} {}, probe {}", ENGINES[0], self.io, if self.is_probed { "on" } else { "off" })
    }

    fn case(&self) -> Case {
        let setup = if self.is_probed { "probe on" } else { "probe off" };
        self.kind().case().size(SIZE).connections(CONNECTIONS).pipeline(1).setup(setup)
    }
}

/// For each driver, a server without the probe and one with it.
fn rows(drivers: &[DriverKind]) -> Vec<Row<Probed>> {
    drivers.iter().flat_map(|&io| [false, true].map(|is_probed| Row::new(Probed { io, is_probed }))).collect()
}

/// Measures servers with the probe and without in turns.
pub(super) fn measure(
    lab: &mut Lab<'_>,
    certificates: &Certificates,
    share: Range<f64>,
) -> Result<Vec<Row<Probed>>, Error> {
    let mut rows = rows(&lab.drivers);
    let plan = lab.plan(BUDGET);
    let (rounds, span) = if lab.effort == Effort::Smoke { (plan.rounds, lab.span()) } else { (ROUNDS, SPAN) };
    let stop = lab.stop;
    interleave(rows.as_chunks_mut::<2>().0, &Plan { rounds, ..plan }, stop, |pair, step| {
        (lab.progress)(step.within(&share), &pair[1].subject.name());
        let mut measured = [Vec::new(), Vec::new()];
        for turn in turns(step.round) {
            measured[turn] = pair[turn].subject.measure(lab, certificates, span)?;
        }
        // If the machine stalled during one of them, the round says nothing about the pair.
        if measured.iter().all(|metrics| metrics.iter().any(|(metric, _)| *metric == Metric::ServerCpuPerMsg)) {
            pair.iter_mut().zip(measured).for_each(|(row, metrics)| row::add(&mut row.samples, metrics));
        }
        Ok(())
    })?;
    Ok(rows)
}

/// Order of a pair in a round. It alternates, so that a machine that slows down favours neither.
const fn turns(round: usize) -> [usize; 2] {
    if round.is_multiple_of(2) { [0, 1] } else { [1, 0] }
}

pub(super) fn table(rows: &[Row<Probed>]) -> String {
    let table = Table::of(rows.as_chunks().0.iter().map(|[off, on]| {
        let ratio = on.over(off, Metric::ServerCpuPerMsg).map(|ratio| ratio.summary);
        [
            ("<driver", off.subject.io.name().to_owned()),
            ("us/msg off", optional(off.median(Metric::ServerCpuPerMsg))),
            ("us/msg on", optional(on.median(Metric::ServerCpuPerMsg))),
            ("x", optional(ratio.map(|ratio| ratio.median))),
            (
                "95 %",
                ratio
                    .map_or_else(String::new, |it| format!("{}-{}", number(it.interval.low), number(it.interval.high))),
            ),
        ]
    }));
    format!(
        "\nThe probe's own cost: server CPU for each echo of {SIZE} B, {CONNECTIONS} connections with one message in\n\
         flight, `{}`, without the probe and with it, every message counted; servers in turns.\n\n{table}",
        ENGINES[0]
    )
}

pub(super) fn checks(rows: &[Row<Probed>]) -> Vec<Check> {
    let check = |[off, on]: &[Row<Probed>; 2]| {
        let name = format!("{} x off: server CPU", on.subject.name());
        let ratio = (Metric::RatioToUnprobed, on.over(off, Metric::ServerCpuPerMsg));
        Check::ratio(name, on.subject.case(), ratio, Target::AtMost(MOST))
    };
    rows.as_chunks().0.iter().filter_map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::Outcome;
    use super::super::super::check;
    use super::*;
    use crate::table::WIDTH;

    #[test]
    fn the_order_of_a_pair_alternates() {
        assert_eq!([0, 1, 2, 3].map(turns), [[0, 1], [1, 0], [0, 1], [1, 0]]);
    }

    #[test]
    fn a_server_with_the_probe_is_judged_by_one_without() {
        let mut rows = rows(&[DriverKind::Epoll, DriverKind::Uring]);
        for (row, us) in rows.iter_mut().zip([4.0, 4.1, 4.0, 4.4]) {
            row.samples.insert(Metric::ServerCpuPerMsg, vec![us; 3]);
        }
        let mut outcome = Outcome { text: table(&rows), ..Outcome::of("stages") };
        rows.iter().for_each(|row| outcome.add_row(row));
        check::report(&mut outcome, checks(&rows));
        assert!(outcome.text.lines().all(|line| line.chars().count() <= WIDTH), "{}", outcome.text);
        let judged: Vec<_> = outcome.lines.iter().filter(|line| line.metric == Metric::RatioToUnprobed).collect();
        let met: Vec<_> = judged.iter().map(|line| line.target.map(|target| target.is_met_by(line.value))).collect();
        assert_eq!(met, [Some(true), Some(false)]);
        assert_eq!(judged[0].case.setup.as_deref(), Some("probe on"));
        assert!(outcome.text.contains("1.02") && outcome.text.contains("1.1"), "{}", outcome.text);
    }
}
