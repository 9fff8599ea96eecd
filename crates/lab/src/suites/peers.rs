use super::echo_case::{self, EchoRow, Shape, add_lines, cheapest};
use super::peer::Peer;
use super::{Check, ENGINES, Effort, Kind, Lab, Outcome, Servers, Subject, check};
use crate::rounds::Runs;
use crate::table::{Table, number, optional};
use crate::{DriverKind, Error, Metric, Protocol, Target};
use std::time::Duration;

/// Small to large messages, and small ones with many in flight.
const SHAPES: [Shape; 6] = [
    Shape::of(64),
    Shape::of(1024),
    Shape::of(4096),
    Shape::of(16_384),
    Shape::of(65_536),
    Shape { pipeline: 16, ..Shape::of(64) },
];

/// Peers named by the targets, configured as in their examples. The last one has targets of its own.
const JUDGED: [Peer; 3] = [Peer::Fastwebsockets, Peer::Yawc, Peer::Wtx];

/// Greatest server CPU per message over the best of the first two judged peers, and over the best of all, by shape. With
/// many messages in flight it is a tenth: ten times the messages per CPU second.
const TARGETS: [(Option<f64>, Option<f64>); 6] = [
    (Some(0.84), Some(0.85)),
    (None, Some(0.85)),
    (Some(0.66), Some(0.75)),
    (None, Some(0.62)),
    (Some(0.62), Some(0.7)),
    (Some(0.1), None),
];

/// Time for the rounds.
const BUDGET: Duration = Duration::from_secs(300);

pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let kinds = kinds(lab.effort, &lab.drivers, &lab.available(&Peer::ECHO));
    let mut rows = echo_case::rows(&shapes(lab.effort), &kinds);
    let servers = Servers::start(lab, kinds)?;
    echo_case::measure(lab, &servers, &mut rows, BUDGET, 0.0..1.0)?;
    outcome.text = table(&rows);
    add_lines(outcome, &rows);
    check::report(outcome, checks(&rows));
    outcome.text += &kernel_alone(&rows);
    Ok(())
}

/// All shapes; quick runs leave out two sizes.
fn shapes(effort: Effort) -> Vec<Shape> {
    let is_quick = |shape: &Shape| !matches!(shape.size, 1024 | 16_384);
    SHAPES.into_iter().filter(|shape| effort == Effort::Thorough || is_quick(shape)).collect()
}

/// Limit, ws and wss on every driver, with other engines than the default on the first driver only. Peers over wss, and
/// in a thorough run also over ws.
pub(super) fn kinds(effort: Effort, drivers: &[DriverKind], peers: &[Peer]) -> Vec<Kind> {
    let is_whole = effort == Effort::Thorough;
    let mut kinds: Vec<Kind> = echo_case::kinds(drivers);
    let is_other = |kind: &Kind| matches!(kind, Kind::Wss(engine, ..) if *engine != ENGINES[0]);
    kinds.retain(|kind| !is_other(kind) || kind.driver() == drivers.first().copied());
    kinds.retain(|kind| is_whole || !matches!(kind, Kind::Ws(_)));
    kinds.extend(peers.iter().map(|&peer| Kind::Peer(peer, Protocol::Wss)));
    if is_whole {
        kinds.extend(peers.iter().map(|&peer| Kind::Peer(peer, Protocol::Ws)));
    }
    kinds
}

/// The cheapest of these peers over wss.
fn best<'a>(rows: &'a [EchoRow], shape: Shape, peers: &[Peer]) -> Option<&'a EchoRow> {
    cheapest(rows, shape, |kind| matches!(kind, Kind::Peer(peer, Protocol::Wss) if peers.contains(&peer)))
}

pub(super) fn table(rows: &[EchoRow]) -> String {
    let table = Table::of(rows.iter().map(|row| {
        let cpu = row.summary(Metric::ServerCpuPerMsg);
        let best = best(rows, row.subject.shape, &JUDGED).filter(|best| best.subject.kind != row.subject.kind);
        let ratio = best.and_then(|best| row.cpu_over(best)).map(|ratio| ratio.summary);
        [
            ("<load", row.subject.shape.name()),
            ("<", row.subject.kind.full_name()),
            ("msg/s ", row.rate()),
            ("us/msg", optional(cpu.map(|summary| summary.median))),
            ("± %", optional(cpu.map(|summary| summary.spread() * 100.0))),
            ("user", optional(row.median(Metric::ServerUserPerMsg))),
            ("kernel", optional(row.median(Metric::ServerKernelPerMsg))),
            ("x best", optional(ratio.map(|ratio| ratio.median))),
            ("95 %", ratio.map_or_else(String::new, |ratio| ratio.interval.to_string())),
            ("x publ.", optional(row.over_published("peers"))),
        ]
    }));
    let names = JUDGED.map(Peer::name).join(", ");
    format!(
        "Peers: {} connections, one message in flight on each or as said; one server thread.\n\
         us/msg: server CPU; user, kernel: its parts. x best: us/msg over the best of\n\
         {names}, as their examples write them, over wss. yawc-tuned: with\n\
         larger buffers and answers in batches, as yawc's authors write it for their benchmarks.\n\
         x publ.: msg/s over the published of an inline server.\n\n{table}",
        SHAPES[0].connections
    )
}

/// Targets of the default engine on its cheapest driver, against the best of the first two judged peers and of all.
pub(super) fn checks(rows: &[EchoRow]) -> Vec<Check> {
    let mut checks = Vec::new();
    for (shape, (most_of_two, most_of_all)) in SHAPES.into_iter().zip(TARGETS) {
        let Some(ours) = cheapest(rows, shape, |kind| kind.is_wss_by(ENGINES[0])) else { continue };
        let has_all = rows.iter().any(|row| matches!(row.subject.kind, Kind::Peer(peer, _) if peer == JUDGED[2]));
        for (peers, most) in [(&JUDGED[..2], most_of_two), (&JUDGED[..], most_of_all.filter(|_| has_all))] {
            let (Some(most), Some(theirs)) = (most, best(rows, shape, peers)) else { continue };
            let names = [ours.subject.kind.full_name(), theirs.subject.kind.name()];
            let of = format!("best of {}", peers.len());
            let name = format!("{}: {} over {} ({of})", shape.name(), names[0], names[1]);
            let case = ours.subject.case().setup(of.as_str());
            let ratio = (Metric::RatioToPeer, ours.cpu_over(theirs));
            checks.extend(Check::ratio(name, case, ratio, Target::AtMost(most)));
            if shape.pipeline > 1 {
                let name = format!("{}: messages per CPU second, ours over theirs", shape.name());
                let ratio = (Metric::RatioToPeer, theirs.cpu_over(ours));
                checks.extend(Check::ratio(name, theirs.subject.case(), ratio, Target::AtLeast(1.0 / most)));
            }
        }
    }
    checks
}

/// The part of our server's time that the kernel takes, over all of the best peer's: a target below it is out of reach
/// without fewer or cheaper system calls.
fn kernel_alone(rows: &[EchoRow]) -> String {
    let mut parts = Vec::new();
    for shape in SHAPES {
        let Some(ours) = cheapest(rows, shape, |kind| kind.is_wss_by(ENGINES[0])) else { continue };
        let Some(theirs) = best(rows, shape, &JUDGED) else { continue };
        let kernel = ours.median(Metric::ServerKernelPerMsg).zip(theirs.median(Metric::ServerCpuPerMsg));
        parts.extend(kernel.map(|(kernel, all)| format!("{} {}", shape.name(), number(kernel / all))));
    }
    if parts.is_empty() {
        return String::new();
    }
    format!("\nThe kernel's part of ours alone, over all of the best peer's: {}\n", parts.join("; "))
}
