//! The table and the targets of the suite.

use super::super::check::{self, Check};
use super::super::{Outcome, Subject as _};
use super::case::{FleetRow, RATE, ROOM, Shape, Who};
use crate::load::FLEET_TEXT;
use crate::rounds::{Runs as _, Samples};
use crate::stats::Ratio;
use crate::table::{Table, bytes, optional};
use crate::{Metric, Target};

/// Greatest ratios to Centrifugo.
const CPU: f64 = 0.5;
const MEMORY: f64 = 0.25;

pub(super) fn report(outcome: &mut Outcome, rows: &[FleetRow], versions: &[String]) {
    for row in rows {
        outcome.add_row(row);
        let case = row.subject.everyone_case();
        for (&metric, runs) in &row.subject.everyone {
            outcome.add(&case, metric, runs);
        }
    }
    outcome.text = format!(
        "Fleet: subscribers of processes that share topics by a broker, plain WebSockets, {} of text.\n\
         us: CPU time of all servers for a delivery. p50, p99: us from publishing to a delivery.\n\
         {RATE} deliveries a second: to rooms of {ROOM}, and to all. B/sub: memory of the servers for a\n\
         subscriber of a room. The servers share one CPU, load and broker the other.\n\n{}",
        bytes(FLEET_TEXT as u64),
        table(rows)
    );
    if !versions.is_empty() {
        outcome.text += &format!("\nWith: {}.\n", versions.join(", "));
    }
    outcome.warn_if_noisy(rows, |_| Metric::ServerCpuPerMsg);
    check::report(outcome, checks(rows));
}

fn table(rows: &[FleetRow]) -> Table {
    Table::of(rows.iter().map(|row| {
        let Shape { processes, subscribers, .. } = row.subject.shape;
        let of = |metric| optional(row.median(metric));
        let all = |metric| optional(row.subject.everyone.median(metric));
        [
            ("<topics", row.subject.shape.topics()),
            ("procs", processes.to_string()),
            ("subs", subscribers.to_string()),
            ("<server", row.subject.who.name().to_owned()),
            ("us", of(Metric::ServerCpuPerMsg)),
            ("p50", of(Metric::LatencyP50)),
            ("p99", of(Metric::LatencyP99)),
            ("all: us", all(Metric::ServerCpuPerMsg)),
            ("p50", all(Metric::LatencyP50)),
            ("p99", all(Metric::LatencyP99)),
            ("B/sub", of(Metric::RssPerConnection)),
        ]
    }))
}

/// Ours beside Centrifugo with the most subscribers that were measured.
fn checks(rows: &[FleetRow]) -> Vec<Check> {
    let most = rows.iter().map(|row| row.subject.shape.subscribers).max();
    let ours = rows.iter().filter(|row| row.subject.who == Who::Ours && Some(row.subject.shape.subscribers) == most);
    let mut checks = Vec::new();
    for ours in ours {
        let is_other = |row: &&FleetRow| row.subject.who != Who::Ours && row.subject.shape == ours.subject.shape;
        let Some(other) = rows.iter().find(is_other) else { continue };
        let Shape { processes, .. } = ours.subject.shape;
        let name = |what: &str| format!("{what}: {}, {processes} over centrifugo", ours.subject.shape.topics());
        let ratio = |of: &Samples, other: &Samples, metric| Ratio::paired(of.runs(metric), other.runs(metric));
        let of = |what, ratio, most| {
            let metric = (Metric::RatioToPeer, ratio);
            Check::ratio(name(what), ours.subject.case(), metric, Target::AtMost(most))
        };
        checks.extend(of("rooms", ratio(&ours.samples, &other.samples, Metric::ServerCpuPerMsg), CPU));
        let (all, beside) = (&ours.subject.everyone, &other.subject.everyone);
        checks.extend(of("all", ratio(all, beside, Metric::ServerCpuPerMsg), CPU));
        checks.extend(of("memory", ratio(&ours.samples, &other.samples, Metric::RssPerConnection), MEMORY));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::super::case::{Broker, rows};
    use super::*;
    use crate::suites::Effort;
    use crate::table::WIDTH;

    #[test]
    fn the_largest_fleets_are_judged_by_centrifugo_where_it_can_do_the_same() {
        let mut rows = rows(Effort::Thorough, &Who::ALL, &[Broker::Nats, Broker::Redis]);
        assert_eq!(rows.len(), 3 * 2 * (3 * 2 + 1));
        for row in &mut rows {
            let (cpu, memory) = if row.subject.who == Who::Ours { (2.0, 12_345.6) } else { (8.0, 123_456.7) };
            for samples in [&mut row.samples, &mut row.subject.everyone] {
                samples.insert(Metric::ServerCpuPerMsg, vec![cpu; 3]);
                samples.insert(Metric::LatencyP50, vec![112_345.6; 3]);
                samples.insert(Metric::LatencyP99, vec![1_112_345.6; 3]);
            }
            row.samples.insert(Metric::RssPerConnection, vec![memory]);
        }
        let mut outcome = Outcome::of("fleet");
        report(&mut outcome, &rows, &["nats-server 2.11.4".to_owned()]);
        assert!(outcome.text.lines().all(|line| line.chars().count() <= WIDTH), "{}", outcome.text);
        let judged: Vec<_> = outcome.lines.iter().filter(|line| line.target.is_some()).collect();
        // NATS, Redis, and Redis with history, each with one process and with three: rooms, all, memory.
        assert_eq!(judged.len(), 3 * 2 * 3);
        assert!(judged.iter().all(|line| line.target.unwrap().is_met_by(line.value)));
        assert!(judged.iter().all(|line| line.case.subscribers == Some(15_000)));
    }
}
