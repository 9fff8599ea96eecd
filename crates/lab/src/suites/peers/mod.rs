//! Servers of other projects beside ours: echoes, handshakes, latency at a common rate, broadcasts, and memory.

mod check;
mod more;
mod table;

use super::check::report as report_targets;
use super::echo_case::{self, EchoCase, EchoRow, SHAPES, Shape, add_lines, cheapest, measure_one, shapes};
use super::peer::Peer;
use super::row::{self, Row};
use super::{Check, ENGINES, Effort, Kind, Lab, Outcome, Servers, Subject};
use crate::rounds::{Plan, Runs};
use crate::table::number;
use crate::{DriverKind, Error, Metric, Protocol, Target};
use more::{MoreCase, Work};
use std::time::Duration;
use table::table;
use tautline::layers::tls_records::aead::Provider;

pub use check::{PeerCheck, check_peers};

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

/// Greatest server CPU for each handshake, full or resumed, over the best peer's.
const HANDSHAKE: f64 = 0.9;

/// Time for the rounds of each part.
const BUDGET: Duration = Duration::from_secs(300);

/// Measures part after part. A peer that fails in one is named, and the others go on.
pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let mut failures = Failures::default();
    let mut peers = lab.available(Peer::SIDE_BY_SIDE);
    let echoing = kinds(lab.effort, &lab.drivers, &peers);
    let servers = Servers::start_each(lab, echoing.iter().copied(), |kind, error| failures.add(kind, error))?;
    peers.retain(|&peer| failures.spare(Kind::Peer(peer, Protocol::Wss)));
    for (number, &peer) in peers.iter().enumerate() {
        let kind = Kind::Peer(peer, Protocol::Wss);
        (lab.progress)(0.1 * number as f64 / peers.len() as f64, &format!("checking {}", peer.name()));
        if let Err(error) = servers.of(kind).and_then(check::echo) {
            failures.add(kind, error)?;
        }
    }
    peers.retain(|&peer| failures.spare(Kind::Peer(peer, Protocol::Wss)));
    let mut echoes = echo_case::rows(&shapes(lab.effort), &echoing);
    echoes.retain(|row| failures.spare(row.subject.kind));
    echoes.extend(aead_rows(lab.effort));
    let plan = lab.plan(BUDGET);
    row::measure_tolerant(lab, &mut echoes, &plan, 0.1..0.5, |lab, case, _| measure_one(lab, &servers, case))?;

    let all = more::servers(&lab.drivers, &peers);
    let mut more = Vec::new();
    for resumed in [false, true] {
        more.extend(all.iter().map(|&kind| MoreCase::row(kind, Work::Handshake { resumed }, 0.0)));
    }
    row::measure_tolerant(lab, &mut more, &plan, 0.5..0.65, |lab, case, _| case.measure(lab, &servers))?;
    if let Some(rate) = common_rate(&echoes) {
        let mut rows: Vec<_> = all.iter().map(|&kind| MoreCase::row(kind, Work::CommonRate, rate)).collect();
        row::measure_tolerant(lab, &mut rows, &plan, 0.65..0.8, |lab, case, _| case.measure(lab, &servers))?;
        more.extend(rows);
    }
    drop(servers);
    more.extend(broadcasts(lab, &all, &mut failures)?);
    more.extend(idle(lab, &all)?);

    outcome.text = table(&echoes, &more);
    add_lines(outcome, &echoes);
    more.iter().for_each(|row| outcome.add_row(row));
    report_targets(outcome, checks(&echoes).into_iter().chain(handshake_checks(&more)));
    outcome.text += &floor(&echoes);
    outcome.warnings.extend(failures.notes());
    Ok(())
}

/// Messages to everyone, by servers of their own.
fn broadcasts(lab: &mut Lab<'_>, all: &[Kind], failures: &mut Failures) -> Result<Vec<Row<MoreCase>>, Error> {
    let kinds: Vec<Kind> = all.iter().copied().filter_map(more::broadcaster).collect();
    let servers = Servers::start_each(lab, kinds.iter().copied(), |kind, error| failures.add(kind, error))?;
    let kinds = kinds.into_iter().filter(|&kind| failures.spare(kind));
    let mut rows: Vec<_> = kinds.map(|kind| MoreCase::row(kind, Work::Broadcast, 0.0)).collect();
    let plan = lab.plan(BUDGET);
    row::measure_tolerant(lab, &mut rows, &plan, 0.8..0.9, |lab, case, _| case.measure(lab, &servers))?;
    Ok(rows)
}

/// Memory of connections of new servers, since a used one has memory to reuse.
fn idle(lab: &mut Lab<'_>, all: &[Kind]) -> Result<Vec<Row<MoreCase>>, Error> {
    let (connections, rounds) = lab.effort.pick((10_000.0, 3), (2000.0, 1), (20.0, 1));
    let mut rows: Vec<_> = all.iter().map(|&kind| MoreCase::row(kind, Work::Idle, connections)).collect();
    let plan = Plan { rounds, least_rounds: 1, budget: Some(BUDGET) };
    row::measure_tolerant(lab, &mut rows, &plan, 0.9..1.0, |lab, case, _| {
        case.measure(lab, &Servers::start(lab, [case.kind])?)
    })?;
    Ok(rows)
}

/// Messages per second that every server can answer with time to spare.
fn common_rate(rows: &[EchoRow]) -> Option<f64> {
    let all = rows.iter().filter(|row| row.subject.shape == SHAPES[0] && is_beside(row.subject.kind));
    let least = all.filter_map(|row| row.median(Metric::Throughput)).reduce(f64::min)?;
    Some(least * more::COMMON)
}

/// Whether everything is measured of this server.
fn is_beside(kind: Kind) -> bool {
    kind.is_wss_by(ENGINES[0]) || matches!(kind, Kind::Peer(_, Protocol::Wss))
}

/// Servers that failed, with their first error.
#[derive(Default)]
struct Failures(Vec<(Kind, String)>);

impl Failures {
    /// Keeps the failure of a peer. One of our own servers ends the suite.
    fn add(&mut self, kind: Kind, error: Error) -> Result<(), Error> {
        let Some(peer) = kind.peer() else { return Err(error) };
        self.0.push((kind, format!("{}: {error}", peer.name())));
        Ok(())
    }

    /// Whether this server has not failed.
    fn spare(&self, kind: Kind) -> bool {
        self.0.iter().all(|(failed, _)| *failed != kind)
    }

    fn notes(self) -> impl Iterator<Item = String> {
        self.0.into_iter().map(|(_, why)| format!("not measured: {why}"))
    }
}

/// Limit, ws and wss on every driver, with other engines than the default on the first driver only. Peers over wss, and
/// in a thorough run those in Rust also over ws.
pub(super) fn kinds(effort: Effort, drivers: &[DriverKind], peers: &[Peer]) -> Vec<Kind> {
    let is_whole = effort == Effort::Thorough;
    let mut kinds: Vec<Kind> = echo_case::kinds(drivers);
    let is_other = |kind: &Kind| matches!(kind, Kind::Wss(engine, ..) if *engine != ENGINES[0]);
    kinds.retain(|kind| !is_other(kind) || kind.driver() == drivers.first().copied());
    kinds.retain(|kind| is_whole || !matches!(kind, Kind::Ws(_)));
    kinds.extend(peers.iter().map(|&peer| Kind::Peer(peer, Protocol::Wss)));
    if is_whole {
        let in_rust = peers.iter().filter(|peer| peer.recipe().is_none());
        kinds.extend(in_rust.map(|&peer| Kind::Peer(peer, Protocol::Ws)));
    }
    kinds
}

/// The cheapest of these peers over wss.
fn best<'a>(rows: &'a [EchoRow], shape: Shape, peers: &[Peer]) -> Option<&'a EchoRow> {
    cheapest(rows, shape, |kind| matches!(kind, Kind::Peer(peer, Protocol::Wss) if peers.contains(&peer)))
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

/// Targets of full and resumed handshakes with P-256, on the cheapest driver, against the best of all peers.
fn handshake_checks(rows: &[Row<MoreCase>]) -> impl Iterator<Item = Check> {
    [false, true].into_iter().filter_map(|resumed| {
        let work = Work::Handshake { resumed };
        let cheapest = |is_ours: bool| {
            let of = rows.iter().filter(|row| row.subject.work == work && row.subject.kind.peer().is_none() == is_ours);
            row::least(of, Metric::ServerCpuPerHandshake)
        };
        let (ours, theirs) = (cheapest(true)?, cheapest(false)?);
        let ratio = ours.over(theirs, Metric::ServerCpuPerHandshake);
        let name = format!("{} over {}", ours.subject.name(), theirs.subject.kind.name());
        Check::ratio(name, ours.subject.case(), (Metric::RatioToPeer, ratio), Target::AtMost(HANDSHAKE))
    })
}

/// Each provider's AEAD alone, for the records of one echo.
fn aead_rows(effort: Effort) -> impl Iterator<Item = EchoRow> {
    let shapes = shapes(effort).into_iter().filter(|shape| shape.pipeline == 1);
    shapes.flat_map(|shape| Provider::ALL.map(|provider| EchoCase::row(Kind::Aead(provider), shape)))
}

/// The part of our server's time that the kernel takes, over all of the best peer's, and the same with a bare AEAD. A target
/// below it is out of reach without fewer or cheaper system calls.
fn floor(rows: &[EchoRow]) -> String {
    let mut parts = Vec::new();
    for shape in SHAPES {
        let Some(ours) = cheapest(rows, shape, |kind| kind.is_wss_by(ENGINES[0])) else { continue };
        let Some(theirs) = best(rows, shape, &JUDGED).and_then(|row| row.median(Metric::ServerCpuPerMsg)) else {
            continue;
        };
        let Some(kernel) = ours.median(Metric::ServerKernelPerMsg) else { continue };
        let aead = cheapest(rows, shape, |kind| matches!(kind, Kind::Aead(_)));
        let aead = aead.and_then(|row| row.median(Metric::CpuPerMsg));
        let with_aead = aead.map(|aead| format!(" ({})", number((kernel + aead) / theirs)));
        parts.push(format!("{} {}{}", shape.name(), number(kernel / theirs), with_aead.unwrap_or_default()));
    }
    if parts.is_empty() {
        return String::new();
    }
    format!(
        "\nThe kernel's part of ours alone, over all of the best peer's (in brackets: with a bare AEAD):\n{}\n",
        parts.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::super::Key;
    use super::*;

    #[test]
    fn a_failing_peer_is_named_and_ours_ends_the_suite() {
        let mut failures = Failures::default();
        let [coder, bun] = [Peer::Coder, Peer::Bun].map(|peer| Kind::Peer(peer, Protocol::Wss));
        let died = || Error::Failed("it died".to_owned());
        assert!(failures.add(coder, died()).is_ok());
        assert!(failures.add(Kind::Ws(DriverKind::Epoll), died()).is_err());
        assert!(!failures.spare(coder) && failures.spare(bun));
        let mut row = MoreCase::row(bun, Work::Idle, 20.0);
        row.failed = Some(died().in_case("wss bun, idle connections"));
        let mut outcome = Outcome::of("peers");
        [row, MoreCase::row(bun, Work::CommonRate, 1.0)].iter().for_each(|row| outcome.add_row(row));
        outcome.warnings.extend(failures.notes());
        let notes = ["not measured: wss bun, idle connections: it died", "not measured: coder: it died"];
        assert_eq!(outcome.warnings, notes);
    }

    #[test]
    fn handshakes_are_judged_against_the_cheapest_peer() {
        let kinds = more::servers(&[DriverKind::Epoll, DriverKind::Uring], &[Peer::Yawc, Peer::Uwebsockets]);
        let mut rows = Vec::new();
        for (resumed, times) in [(false, [100.0, 90.0, 120.0, 300.0]), (true, [80.0, 85.0, 90.0, 100.0])] {
            for (&kind, us) in kinds.iter().zip(times) {
                let mut row = MoreCase::row(kind, Work::Handshake { resumed }, 0.0);
                row.samples.insert(Metric::ServerCpuPerHandshake, vec![us; 3]);
                rows.push(row);
            }
        }
        let mut outcome = Outcome::of("peers");
        report_targets(&mut outcome, handshake_checks(&rows));
        let text = outcome.text;
        for part in
            ["full handshakes over wss yawc", "0.75", "resumed handshakes over wss yawc", "0.89", "<= 0.90", "met"]
        {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        assert_eq!(handshake_checks(&rows[..2]).count(), 0, "no peer was measured");
    }

    #[test]
    fn the_floor_is_the_kernels_part_of_ours_and_a_bare_aead_over_the_best_peer() {
        let kinds = [Kind::Wss(ENGINES[0], Key::P256, DriverKind::Epoll), Kind::Peer(Peer::Wtx, Protocol::Wss)];
        let mut rows = echo_case::rows(&SHAPES[..2], &kinds);
        for (row, us) in rows.iter_mut().zip([5.0, 10.0].into_iter().cycle()) {
            row.samples.insert(Metric::ServerCpuPerMsg, vec![us; 3]);
            row.samples.insert(Metric::ServerKernelPerMsg, vec![us * 0.8; 3]);
        }
        let mut aead = EchoCase::row(Kind::Aead(Provider::AwsLc), SHAPES[0]);
        aead.samples.insert(Metric::CpuPerMsg, vec![1.0; 3]);
        rows.push(aead);
        assert!(floor(&rows).ends_with(":\n64 B 0.40 (0.50); 1 KiB 0.40\n"), "{}", floor(&rows));
        assert_eq!(floor(&[]), "");
    }

    #[test]
    fn the_common_rate_is_below_that_of_the_slowest_server() {
        let kinds =
            [Kind::Tcp(DriverKind::Epoll), Kind::Peer(Peer::Ws, Protocol::Wss), Kind::Peer(Peer::Bun, Protocol::Wss)];
        let mut rows = echo_case::rows(&SHAPES[..1], &kinds);
        for (row, rate) in rows.iter_mut().zip([100.0, 5000.0, 7000.0]) {
            row.samples.insert(Metric::Throughput, vec![rate; 3]);
        }
        assert_eq!(common_rate(&rows), Some(3000.0));
        assert_eq!(common_rate(&rows[..1]), None);
    }
}
