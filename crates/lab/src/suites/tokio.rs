use super::echo_case::{self, EchoRow, Shape, add_lines, cheapest};
use super::peer::Peer;
use super::{Check, Effort, Kind, Lab, Outcome, Servers, Subject, check};
use crate::rounds::Runs;
use crate::table::{Table, optional};
use crate::{Error, Metric, Target};
use std::time::Duration;

/// Small and large messages, and small ones with many in flight.
const SHAPES: [Shape; 3] = [Shape::of(64), Shape::of(65_536), Shape { pipeline: 16, ..Shape::of(64) }];

/// Peers named by the targets.
const JUDGED: [Peer; 2] = [Peer::Fastwebsockets, Peer::Yawc];

/// Greatest server CPU per message over the best peer on one thread, by shape.
const TARGETS: [f64; 3] = [0.9, 0.75, 0.2];

/// Time for the rounds.
const BUDGET: Duration = Duration::from_secs(300);

pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let kinds = kinds(lab.effort);
    let mut rows = echo_case::rows(&SHAPES, &kinds);
    let servers = Servers::start(lab, kinds)?;
    echo_case::measure(lab, &servers, &mut rows, BUDGET, 0.0..1.0)?;
    outcome.text = table(&rows);
    add_lines(outcome, &rows);
    check::report(outcome, checks(&rows));
    Ok(())
}

/// Every server on a current-thread runtime, and in a longer run also on two threads.
pub(super) fn kinds(effort: Effort) -> Vec<Kind> {
    let threads: &[usize] = if effort == Effort::Thorough { &[1, 2] } else { &[1] };
    threads.iter().flat_map(|&threads| Peer::TOKIO.into_iter().map(move |peer| Kind::Tokio(peer, threads))).collect()
}

/// The cheapest of the judged peers on one thread.
fn best(rows: &[EchoRow], shape: Shape) -> Option<&EchoRow> {
    cheapest(rows, shape, |kind| matches!(kind, Kind::Tokio(peer, 1) if JUDGED.contains(&peer)))
}

pub(super) fn table(rows: &[EchoRow]) -> String {
    let table = Table::of(rows.iter().map(|row| {
        let cpu = row.summary(Metric::ServerCpuPerMsg);
        let best = best(rows, row.subject.shape).filter(|best| best.subject.kind != row.subject.kind);
        let ratio = best.and_then(|best| row.cpu_over(best)).map(|ratio| ratio.summary);
        [
            ("<load", row.subject.shape.name()),
            ("<server, threads", row.subject.kind.full_name()),
            ("msg/s ", row.rate()),
            ("us/msg", optional(cpu.map(|summary| summary.median))),
            ("± %", optional(cpu.map(|summary| summary.spread() * 100.0))),
            ("x best", optional(ratio.map(|ratio| ratio.median))),
            ("95 %", ratio.map_or_else(String::new, |ratio| ratio.interval.to_string())),
        ]
    }));
    let names = JUDGED.map(Peer::name).join(" and ");
    format!(
        "Servers on tokio, over wss: {} connections, one message in flight on each or as said.\n\
         us/msg: server CPU. x best: us/msg over the best of {names} on one thread.\n\n{table}",
        SHAPES[0].connections
    )
}

/// Targets of our server on one thread.
pub(super) fn checks(rows: &[EchoRow]) -> Vec<Check> {
    let mut checks = Vec::new();
    for (shape, most) in SHAPES.into_iter().zip(TARGETS) {
        let Some(ours) = cheapest(rows, shape, |kind| kind == Kind::Tokio(Peer::Tautline, 1)) else { continue };
        let Some(theirs) = best(rows, shape) else { continue };
        let name = format!("{}: tautline on tokio over {}", shape.name(), theirs.subject.kind.name());
        let ratio = (Metric::RatioToPeer, ours.cpu_over(theirs));
        checks.extend(Check::ratio(name, ours.subject.case(), ratio, Target::AtMost(most)));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::WIDTH;

    #[test]
    fn every_target_is_checked_against_the_best_peer() {
        let mut rows = echo_case::rows(&SHAPES, &kinds(Effort::Thorough));
        for row in &mut rows {
            let cpu = match row.subject.kind {
                Kind::Tokio(Peer::Tautline, 1) => 4.0,
                Kind::Tokio(Peer::Yawc, 1) => 8.0,
                Kind::Tokio(_, 1) => 10.0,
                _ => 1.0,
            };
            row.samples.insert(Metric::ServerCpuPerMsg, vec![cpu; 3]);
            row.samples.insert(Metric::Throughput, vec![1_186_068.0; 3]);
        }
        let mut outcome = Outcome::of("tokio");
        check::report(&mut outcome, checks(&rows));
        assert_eq!(outcome.lines.iter().map(|line| line.value).collect::<Vec<_>>(), [0.5; 3]);
        assert_eq!(outcome.text.matches("missed").count(), 1, "{}", outcome.text);
        let text = table(&rows);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH) && text.contains("yawc-tuned 2"), "{text}");
    }
}
