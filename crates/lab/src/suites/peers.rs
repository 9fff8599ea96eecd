use super::check::{self, Check};
use super::echo_case::{self, EchoCase, Shape, add_lines, cheapest, rate};
use super::peer::Peer;
use super::server::Kind;
use super::{ENGINES, Lab, Outcome, Pace, Suite};
use crate::table::{Table, number, optional};
use crate::{Error, Metric, Protocol, Target, published};
use std::time::Duration;
use tautline::layers::io::Io;

/// Small, medium and large messages, and small ones with many in flight.
const SHAPES: [Shape; 4] = [Shape::of(64), Shape::of(4096), Shape::of(65_536), Shape { pipeline: 16, ..Shape::of(64) }];

/// Peers in the order of the table.
const PEERS: [Peer; 4] = [Peer::Fastwebsockets, Peer::Yawc, Peer::YawcTuned, Peer::Tungstenite];

/// Those that the targets name, as their examples write them.
const JUDGED: [Peer; 2] = [Peer::Fastwebsockets, Peer::Yawc];

/// Server CPU per message over the best of them that is wanted at most, by shape. With many in flight it is a tenth: ten
/// times the messages per CPU second.
const TARGETS: [f64; 4] = [0.84, 0.66, 0.62, 0.1];

/// What the rounds may take.
const BUDGET: Duration = Duration::from_secs(300);

pub(super) fn run(lab: &mut Lab<'_>) -> Result<Outcome, Error> {
    let kinds = kinds(lab.pace, &lab.drivers);
    let servers = lab.servers(&kinds)?;
    let mut cases = echo_case::cases(&SHAPES, &kinds);
    echo_case::measure(lab, &servers, &mut cases, BUDGET, (0.0, 1.0))?;
    let mut outcome = Outcome { text: table(&cases), ..Outcome::default() };
    add_lines(&mut outcome, Suite::Peers, &cases);
    check::report(&mut outcome, Suite::Peers, checks(&cases));
    Ok(outcome)
}

/// Limit, ws and wss on every driver, engines other than the default on the first; the peers over wss, and with time also
/// over ws.
pub(super) fn kinds(pace: Pace, drivers: &[Io]) -> Vec<Kind> {
    let is_whole = pace == Pace::Thorough;
    let mut kinds: Vec<Kind> = echo_case::kinds(drivers);
    let is_other = |kind: &Kind| matches!(kind, Kind::Wss(engine, ..) if *engine != ENGINES[0]);
    kinds.retain(|kind| !is_other(kind) || kind.driver() == drivers.first().copied());
    kinds.retain(|kind| is_whole || !matches!(kind, Kind::Ws(_)));
    kinds.extend(PEERS.map(|peer| Kind::Peer(peer, Protocol::Wss)));
    if is_whole {
        kinds.extend(PEERS.map(|peer| Kind::Peer(peer, Protocol::Ws)));
    }
    kinds
}

/// The cheapest peer of these over wss.
fn best<'a>(cases: &'a [EchoCase], shape: Shape, peers: &[Peer]) -> Option<&'a EchoCase> {
    let is_one = |kind| matches!(kind, Kind::Peer(peer, Protocol::Wss) if peers.contains(&peer));
    cheapest(cases, shape, is_one)
}

pub(super) fn table(cases: &[EchoCase]) -> String {
    let mut table = Table::new(&["<load", "<", "msg/s ", "us/msg", "± %", "msg/CPU s", "x best", "95 %", "x publ."]);
    for case in cases {
        let cpu = case.summary(Metric::ServerCpuPerMsg);
        let ratio = best(cases, case.shape, &JUDGED).filter(|best| best.kind != case.kind);
        let ratio = ratio.and_then(|best| case.cpu_over(best)).map(|ratio| ratio.summary);
        let interval = |ratio: crate::stats::Summary| format!("{:.2}-{:.2}", ratio.interval.low, ratio.interval.high);
        let published =
            published::lookup("peers", &case.case(), Metric::Throughput).filter(|_| case.shape.pipeline == 1);
        let compared = case.median(Metric::Throughput).zip(published).map(|(ours, theirs)| ours / theirs);
        table.row([
            case.shape.name(),
            case.kind.full_name(),
            rate(case),
            optional(cpu.map(|summary| summary.median)),
            optional(cpu.map(|summary| summary.spread() * 100.0)),
            optional(cpu.map(|summary| 1e6 / summary.median)),
            ratio.map_or_else(|| "-".to_owned(), |ratio| number(ratio.median)),
            ratio.map_or_else(String::new, interval),
            optional(compared),
        ]);
    }
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

/// The default engine on its better driver against the best peer.
pub(super) fn checks(cases: &[EchoCase]) -> Vec<Check> {
    let mut checks = Vec::new();
    for (shape, most) in SHAPES.into_iter().zip(TARGETS) {
        let Some(ours) = cheapest(cases, shape, |kind| kind.is_wss_by(ENGINES[0])) else { continue };
        let Some(theirs) = best(cases, shape, &JUDGED) else { continue };
        let what = format!("{}: {} over {}", shape.name(), ours.kind.full_name(), theirs.kind.name());
        let ratio = (Metric::RatioToPeer, ours.cpu_over(theirs));
        checks.extend(Check::ratio(what, ours.case(), ratio, Target::AtMost(most)));
        if shape.pipeline > 1 {
            let what = format!("{}: messages per CPU second, ours over theirs", shape.name());
            let ratio = (Metric::RatioToPeer, theirs.cpu_over(ours));
            checks.extend(Check::ratio(what, theirs.case(), ratio, Target::AtLeast(1.0 / most)));
        }
    }
    checks
}
