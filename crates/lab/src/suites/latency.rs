//! Latencies under an open loop: at shares of what each server can do, and at one rate for all.
//!
//! A latency counts from the time at which its message was due, so a stall counts for every message that it delays.

use super::peer::Peer;
use super::{Check, ENGINES, Effort, Key, Kind, Lab, Outcome, Row, Servers, Subject, check, row};
use crate::rounds::{Plan, Runs};
use crate::stats::median;
use crate::table::{Table, number, optional};
use crate::{Case, Content, DriverKind, Error, Measured, Metric, Protocol, Span, Target, load};
use std::collections::HashMap;
use std::time::Duration;

/// Connections, and payload bytes of a message.
const LOAD: (usize, usize) = (100, 64);

/// Time for the rounds.
const BUDGET: Duration = Duration::from_secs(300);

/// The judged share of a server's capacity in percent, and its greatest p99.9 over that of the best peer.
const TARGET: (u32, f64) = (60, 1.0);

/// Share of the slowest server's capacity that is the rate for all, in percent.
const COMMON: u32 = 60;

/// Rate of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rate {
    /// As fast as the server answers, in a closed loop: its capacity.
    Full,
    /// This many percent of the server's capacity.
    Share(u32),
    /// One rate for all servers.
    Common,
}

impl Rate {
    fn name(self) -> String {
        match self {
            Self::Full => "full".to_owned(),
            Self::Share(percent) => format!("{percent} %"),
            Self::Common => "common".to_owned(),
        }
    }
}

/// One server at one rate.
struct LatencyCase {
    kind: Kind,
    rate: Rate,
    /// Whether the load had no CPU time left in some round.
    is_bounded: bool,
}

type LatencyRow = Row<LatencyCase>;

impl Subject for LatencyCase {
    fn name(&self) -> String {
        format!("{}, {}", self.kind.full_name(), self.rate.name())
    }

    fn case(&self) -> Case {
        let (connections, size) = LOAD;
        let case = self.kind.case().size(size).connections(connections);
        match self.rate {
            Rate::Full => case.pipeline(1),
            Rate::Share(percent) => case.setup(format!("rate={percent}%").as_str()),
            Rate::Common => case.setup("rate=common"),
        }
    }
}

pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let kinds = kinds(lab.effort, &lab.drivers, &lab.available(&Peer::ECHO));
    let mut rows = rows(lab.effort, &kinds);
    let servers = Servers::start(lab, kinds)?;
    let mut capacities: HashMap<usize, HashMap<String, f64>> = HashMap::new();
    // Its rows take longer than those of other suites.
    let plan = Plan { rounds: lab.effort.pick(5, 3, 1), ..lab.plan(BUDGET) };
    row::measure(lab, &mut rows, &plan, 0.0..1.0, |lab, case, step| {
        let round = capacities.entry(step.round).or_default();
        let (server, span) = (servers.of(case.kind)?.server()?, span(lab.effort, case.rate));
        let capacity = round.get(&case.kind.full_name()).copied();
        let rate = match case.rate {
            Rate::Full => None,
            Rate::Share(percent) => capacity.map(|rate| rate * f64::from(percent) / 100.0),
            Rate::Common => round.values().copied().reduce(f64::min).map(|least| least * f64::from(COMMON) / 100.0),
        };
        let (connections, size) = LOAD;
        let echo = load::Echo { server, connections, size, content: Content::Bytes, pipeline: 1, rate, span };
        let measured = echo.run(&mut |_| {})?;
        if case.rate == Rate::Full {
            round.insert(case.kind.full_name(), measured.rate());
        }
        case.is_bounded |= measured.is_bounded();
        Ok(metrics(&measured))
    })?;
    report(outcome, &rows);
    Ok(())
}

fn metrics(measured: &Measured) -> Vec<(Metric, f64)> {
    let mut metrics = vec![(Metric::Throughput, measured.rate())];
    metrics.extend(measured.latencies.metrics_with_max());
    metrics.extend(measured.server_cpu_each_us().map(|us| (Metric::ServerCpuPerMsg, us)));
    metrics
}

/// A p99.9 needs thousands of messages.
const fn span(effort: Effort, rate: Rate) -> Span {
    let (thorough, quick) = if let Rate::Full = rate { (400, 150) } else { (1000, 400) };
    effort.pick(Span::millis(100, thorough), Span::millis(50, quick), Span::millis(30, 60))
}

/// Our server on the drivers to be measured, in a thorough run on all that work here, and the peers, over wss.
fn kinds(effort: Effort, drivers: &[DriverKind], peers: &[Peer]) -> Vec<Kind> {
    let mut drivers = drivers.to_vec();
    if effort == Effort::Thorough {
        let more = DriverKind::ALL.into_iter().filter(|driver| *driver != DriverKind::Auto && driver.probe().is_ok());
        let more: Vec<_> = more.filter(|driver| !drivers.contains(driver)).collect();
        drivers.extend(more);
    }
    let ours = drivers.into_iter().map(|driver| Kind::Wss(ENGINES[0], Key::P256, driver));
    ours.chain(peers.iter().map(|&peer| Kind::Peer(peer, Protocol::Wss))).collect()
}

/// In each round every server's capacity comes first, since the rates follow from them.
fn rows(effort: Effort, kinds: &[Kind]) -> Vec<LatencyRow> {
    let rates: &[Rate] = match effort {
        Effort::Thorough => &[Rate::Full, Rate::Share(30), Rate::Share(60), Rate::Share(90), Rate::Common],
        Effort::Quick | Effort::Smoke => &[Rate::Full, Rate::Share(60), Rate::Common],
    };
    let row = |rate, kind| Row::new(LatencyCase { kind, rate, is_bounded: false });
    rates.iter().flat_map(|&rate| kinds.iter().map(move |&kind| row(rate, kind))).collect()
}

fn report(outcome: &mut Outcome, rows: &[LatencyRow]) {
    rows.iter().for_each(|row| outcome.add_row(row));
    outcome.text = table(rows);
    check::report(outcome, target(rows));
    if rows.iter().any(|row| row.subject.is_bounded && row.subject.rate != Rate::Full) {
        let what = "rows marked + had a load without CPU time to spare: their latencies are partly its own";
        outcome.warnings.push(what.to_owned());
    }
}

fn table(rows: &[LatencyRow]) -> String {
    let table = Table::of(rows.iter().map(|row| {
        let mark = if row.subject.is_bounded { '+' } else { ' ' };
        let us = |metric| optional(row.median(metric));
        [
            ("<rate", row.subject.rate.name()),
            ("<", row.subject.kind.name()),
            ("<driver", row.subject.kind.driver_name().to_owned()),
            ("msg/s ", format!("{}{mark}", optional(row.median(Metric::Throughput)))),
            ("p50 us", us(Metric::LatencyP50)),
            ("p99 us", us(Metric::LatencyP99)),
            ("p99.9 us", us(Metric::LatencyP999)),
            ("± %", optional(row.spread_percent(Metric::LatencyP999))),
            ("max us", us(Metric::LatencyMax)),
            ("us/msg", us(Metric::ServerCpuPerMsg)),
        ]
    }));
    let least = rows.iter().filter(|row| row.subject.rate == Rate::Common);
    let common: Vec<f64> = least.filter_map(|row| row.median(Metric::Throughput)).collect();
    let common = median(&common).map_or_else(|| "-".to_owned(), number);
    format!(
        "Latency: {} wss connections, echoes of {} B at fixed times; a latency counts from the time\n\
         at which its message was due. Rates are shares of what each server answers in a closed loop\n\
         (full); common: {COMMON} % of the slowest server's, {common} msg/s. ± %: of p99.9.\n\
         us/msg: server CPU.\n\n{table}",
        LOAD.0, LOAD.1
    )
}

/// The least p99.9 of ours at the judged share, over the least of the peers.
fn target(rows: &[LatencyRow]) -> Option<Check> {
    let (percent, most) = TARGET;
    let best = |is_peer: bool| {
        let is_it = |case: &LatencyCase| {
            case.rate == Rate::Share(percent) && matches!(case.kind, Kind::Peer(..)) == is_peer && !case.spins()
        };
        row::least(rows.iter().filter(|row| is_it(&row.subject)), Metric::LatencyP999)
    };
    let (ours, theirs) = (best(false)?, best(true)?);
    let names = [ours, theirs].map(|row| row.subject.kind.full_name());
    let name = format!("p99.9 at {percent} %: {} over {}", names[0], names[1]);
    let ratio = (Metric::RatioToPeer, ours.over(theirs, Metric::LatencyP999));
    Check::ratio(name, ours.subject.case(), ratio, Target::AtMost(most))
}

impl LatencyCase {
    /// Whether the server polls without sleeping, which no peer does.
    fn spins(&self) -> bool {
        matches!(self.kind.driver(), Some(DriverKind::Spin | DriverKind::UringSpin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::WIDTH;

    fn measured() -> Vec<LatencyRow> {
        let mut drivers = vec![DriverKind::Epoll, DriverKind::Spin];
        drivers.retain(|driver| driver.probe().is_ok());
        let mut rows = rows(Effort::Thorough, &kinds(Effort::Quick, &drivers, &Peer::ECHO));
        for row in &mut rows {
            let us = match row.subject.kind {
                Kind::Peer(Peer::Wtx, _) => 50.0,
                Kind::Peer(..) => 70.0,
                _ if row.subject.spins() => 5.0,
                _ => 40.0,
            };
            for metric in [Metric::Throughput, Metric::LatencyP50, Metric::LatencyP99, Metric::LatencyMax] {
                row.samples.insert(metric, vec![112_345.6; 3]);
            }
            row.samples.insert(Metric::LatencyP999, vec![us, us * 1.01, us * 0.99]);
        }
        rows
    }

    #[test]
    fn capacities_come_before_the_rates_that_follow_from_them() {
        let rows = measured();
        let last = rows.iter().rposition(|row| row.subject.rate == Rate::Full).unwrap();
        assert!(rows[..=last].iter().all(|row| row.subject.rate == Rate::Full));
        assert_eq!(rows.len(), 5 * (last + 1));
    }

    #[test]
    fn the_best_sleeping_driver_is_held_against_the_best_peer() {
        let mut outcome = Outcome::of("latency");
        report(&mut outcome, &measured());
        let judged: Vec<_> = outcome.lines.iter().filter(|line| line.target.is_some()).collect();
        assert_eq!((judged.len(), judged[0].metric), (1, Metric::RatioToPeer));
        assert!((judged[0].value - 0.8).abs() < 0.02, "{}", judged[0].value);
        assert_eq!(judged[0].case.setup.as_deref(), Some("rate=60%"));
        assert!(outcome.text.contains("wss fused epoll over wss wtx"), "{}", outcome.text);
        assert!(outcome.text.lines().all(|line| line.chars().count() <= WIDTH), "{}", outcome.text);
    }
}
