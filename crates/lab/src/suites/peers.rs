use super::echo_case::{self, EchoRow, Shape, add_lines, cheapest};
use super::peer::Peer;
use super::{Check, ENGINES, Effort, Kind, Lab, Outcome, Servers, Subject, check};
use crate::rounds::Runs;
use crate::table::{Table, optional};
use crate::{DriverKind, Error, Metric, Protocol, Target};
use std::time::Duration;

/// Small, medium and large messages, and small ones with many in flight.
const SHAPES: [Shape; 4] = [Shape::of(64), Shape::of(4096), Shape::of(65_536), Shape { pipeline: 16, ..Shape::of(64) }];

/// Peers named by the targets, configured as in their examples.
const JUDGED: [Peer; 2] = [Peer::Fastwebsockets, Peer::Yawc];

/// Greatest server CPU per message over the best peer, by shape. With many messages in flight it is a tenth: ten times
/// the messages per CPU second.
const TARGETS: [f64; 4] = [0.84, 0.66, 0.62, 0.1];

/// Time for the rounds.
const BUDGET: Duration = Duration::from_secs(300);

pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let kinds = kinds(lab.effort, &lab.drivers);
    let mut rows = echo_case::rows(&SHAPES, &kinds);
    let servers = Servers::start(lab, kinds)?;
    echo_case::measure(lab, &servers, &mut rows, BUDGET, 0.0..1.0)?;
    outcome.text = table(&rows);
    add_lines(outcome, &rows);
    check::report(outcome, checks(&rows));
    Ok(())
}

/// Limit, ws and wss on every driver, with other engines than the default on the first driver only. Peers over wss, and
/// in a thorough run also over ws.
pub(super) fn kinds(effort: Effort, drivers: &[DriverKind]) -> Vec<Kind> {
    let is_whole = effort == Effort::Thorough;
    let mut kinds: Vec<Kind> = echo_case::kinds(drivers);
    let is_other = |kind: &Kind| matches!(kind, Kind::Wss(engine, ..) if *engine != ENGINES[0]);
    kinds.retain(|kind| !is_other(kind) || kind.driver() == drivers.first().copied());
    kinds.retain(|kind| is_whole || !matches!(kind, Kind::Ws(_)));
    kinds.extend(Peer::ALL.map(|peer| Kind::Peer(peer, Protocol::Wss)));
    if is_whole {
        kinds.extend(Peer::ALL.map(|peer| Kind::Peer(peer, Protocol::Ws)));
    }
    kinds
}

/// The cheapest of the judged peers over wss.
fn best(rows: &[EchoRow], shape: Shape) -> Option<&EchoRow> {
    cheapest(rows, shape, |kind| matches!(kind, Kind::Peer(peer, Protocol::Wss) if JUDGED.contains(&peer)))
}

pub(super) fn table(rows: &[EchoRow]) -> String {
    let table = Table::of(rows.iter().map(|row| {
        let cpu = row.summary(Metric::ServerCpuPerMsg);
        let best = best(rows, row.subject.shape).filter(|best| best.subject.kind != row.subject.kind);
        let ratio = best.and_then(|best| row.cpu_over(best)).map(|ratio| ratio.summary);
        [
            ("<load", row.subject.shape.name()),
            ("<", row.subject.kind.full_name()),
            ("msg/s ", row.rate()),
            ("us/msg", optional(cpu.map(|summary| summary.median))),
            ("± %", optional(cpu.map(|summary| summary.spread() * 100.0))),
            ("msg/CPU s", optional(cpu.map(|summary| 1e6 / summary.median))),
            ("x best", optional(ratio.map(|ratio| ratio.median))),
            ("95 %", ratio.map_or_else(String::new, |ratio| ratio.interval.to_string())),
            ("x publ.", optional(row.over_published("peers"))),
        ]
    }));
    let names = JUDGED.map(Peer::name).join(" and ");
    format!(
        "Peers: {} connections, one message in flight on each or as said; one server thread.\n\
         us/msg: server CPU; msg/CPU s: messages per second of it. x best: us/msg over the best of\n\
         {names}, as their examples write them, over wss. yawc-tuned: with larger\n\
         buffers and answers in batches, as yawc's authors write it for their benchmarks.\n\
         x publ.: msg/s over the published of an inline server.\n\n{table}",
        SHAPES[0].connections
    )
}

/// Targets of the default engine on its cheapest driver, against the best peer.
pub(super) fn checks(rows: &[EchoRow]) -> Vec<Check> {
    let mut checks = Vec::new();
    for (shape, most) in SHAPES.into_iter().zip(TARGETS) {
        let Some(ours) = cheapest(rows, shape, |kind| kind.is_wss_by(ENGINES[0])) else { continue };
        let Some(theirs) = best(rows, shape) else { continue };
        let name = format!("{}: {} over {}", shape.name(), ours.subject.kind.full_name(), theirs.subject.kind.name());
        let ratio = (Metric::RatioToPeer, ours.cpu_over(theirs));
        checks.extend(Check::ratio(name, ours.subject.case(), ratio, Target::AtMost(most)));
        if shape.pipeline > 1 {
            let name = format!("{}: messages per CPU second, ours over theirs", shape.name());
            let ratio = (Metric::RatioToPeer, theirs.cpu_over(ours));
            checks.extend(Check::ratio(name, theirs.subject.case(), ratio, Target::AtLeast(1.0 / most)));
        }
    }
    checks
}
