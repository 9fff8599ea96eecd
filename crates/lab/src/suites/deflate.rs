//! Compression: CPU time and ratio of echoes, and memory of connections.

use super::peer::Peer;
use super::{Check, Effort, Extra, Kind, Lab, Outcome, Row, Servers, Subject, check, row};
use crate::rounds::{Plan, Runs};
use crate::stats::{Ratio, median};
use crate::table::{Table, bytes, number, optional};
use crate::{Case, Content, Error, Metric, Target, load};
use std::time::Duration;
use tautline::DeflateConfig;

/// Connections of the echoes.
const CONNECTIONS: usize = 100;

/// Time for the rounds of echoes.
const BUDGET: Duration = Duration::from_secs(240);

/// The judged size, greatest CPU per message over the best peer's, and greatest memory over the best peer's.
const TARGETS: (usize, f64, f64) = (1024, 0.9, 0.5);

/// Name in results of windows that are kept from message to message.
const fn setup(takeover: bool) -> &'static str {
    if takeover { "permessage-deflate, context takeover" } else { "permessage-deflate" }
}

/// Offer of the load.
fn offer(takeover: bool) -> DeflateConfig {
    if takeover { DeflateConfig::with_context_takeover() } else { DeflateConfig::default() }
}

/// One server under one size of messages.
struct DeflateCase {
    kind: Kind,
    takeover: bool,
    size: usize,
    /// Server CPU per message by round if only its answers are compressed.
    write: Vec<f64>,
}

type DeflateRow = Row<DeflateCase>;

impl DeflateCase {
    const fn new(kind: Kind, takeover: bool, size: usize) -> Self {
        Self { kind, takeover, size, write: Vec::new() }
    }

    /// Its facts without its size, which its memory is reported with.
    fn memory_case(&self) -> Case {
        self.kind.case().setup(setup(self.takeover))
    }
}

impl Subject for DeflateCase {
    fn name(&self) -> String {
        let windows = if self.takeover { "kept" } else { "new" };
        format!("{} {}, windows {windows}", self.kind.full_name(), bytes(self.size as u64))
    }

    fn case(&self) -> Case {
        self.memory_case().size(self.size).connections(CONNECTIONS).pipeline(1)
    }
}

pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let kinds = kinds(lab);
    let mut rows = rows(lab.effort, &kinds);
    let servers = Servers::start(lab, kinds.iter().copied())?;
    row::measure(lab, &mut rows, &lab.plan(BUDGET), 0.0..0.8, |lab, case, _| {
        let measure = |content| {
            let mut server = servers.of(case.kind)?.server()?;
            server.target.deflate = Some(offer(case.takeover));
            let (connections, size, span) = (CONNECTIONS, case.size, lab.span());
            load::Echo { server, connections, size, content, pipeline: 1, rate: None, span }.run(&mut |_| {})
        };
        let both = measure(Content::Json)?;
        let wire = both.received.filter(|&received| received > 0);
        let ratio = wire.map(|wire| (both.count * case.size as u64) as f64 / wire as f64);
        case.write.extend(measure(Content::JsonAsItIs)?.server_cpu_each_us());
        let mut metrics = both.message_metrics(case.size);
        metrics.extend(ratio.map(|ratio| (Metric::RatioToWire, ratio)));
        Ok(metrics)
    })?;
    drop(servers);
    let memory = memory(lab, &kinds)?;
    report(outcome, &rows, &memory);
    Ok(())
}

/// Our server on each driver, in a quick run on the first, and the peers.
fn kinds(lab: &Lab<'_>) -> Vec<Kind> {
    let drivers = if lab.effort == Effort::Thorough { &lab.drivers } else { &lab.drivers[..1] };
    let ours = drivers.iter().map(|&driver| Kind::Deflate(driver));
    ours.chain(lab.available(&Peer::DEFLATE).into_iter().map(|peer| Kind::PeerWith(Extra::Deflate, peer))).collect()
}

fn rows(effort: Effort, kinds: &[Kind]) -> Vec<DeflateRow> {
    let sizes: &[usize] = if effort == Effort::Thorough { &[256, 1024, 16_384] } else { &[1024, 16_384] };
    let cases = sizes.iter().flat_map(|&size| [false, true].map(|takeover| (size, takeover)));
    let each = |(size, takeover)| kinds.iter().map(move |&kind| Row::new(DeflateCase::new(kind, takeover, size)));
    cases.flat_map(each).collect()
}

/// Measures with new servers in each round, because a server keeps memory that it once needed.
fn memory(lab: &mut Lab<'_>, kinds: &[Kind]) -> Result<Vec<DeflateRow>, Error> {
    let size = TARGETS.0;
    let each = |takeover| kinds.iter().map(move |&kind| Row::new(DeflateCase::new(kind, takeover, size)));
    let mut rows: Vec<DeflateRow> = [false, true].into_iter().flat_map(each).collect();
    let rounds = if lab.effort == Effort::Thorough { 3 } else { 1 };
    let plan = Plan { rounds, least_rounds: rounds, budget: None };
    // Echoes of the judged size on each connection come before its memory is read.
    let (connections, messages) = lab.effort.pick((400, 64), (200, 40), (5, 2));
    row::measure(lab, &mut rows, &plan, 0.8..1.0, |lab, case, _| {
        let servers = Servers::start(lab, [case.kind])?;
        let mut server = servers.of(case.kind)?.server()?;
        server.target.deflate = Some(offer(case.takeover));
        let grown = load::Used { server, connections, messages, size, content: Content::Json }.run()?;
        Ok(vec![(Metric::RssPerConnection, grown)])
    })?;
    Ok(rows)
}

fn report(outcome: &mut Outcome, rows: &[DeflateRow], memory: &[DeflateRow]) {
    for row in rows {
        outcome.add_row(row);
        let case = row.subject.case();
        outcome.add(&case.clone().direction("write"), Metric::ServerCpuPerMsg, &row.subject.write);
        outcome.add(&case.direction("read"), Metric::ServerCpuPerMsg, &read(row));
    }
    for row in memory {
        outcome.add(&row.subject.memory_case(), Metric::RssPerConnection, row.runs(Metric::RssPerConnection));
    }
    outcome.text = table(rows, memory);
    check::report(outcome, checks(rows, memory));
    outcome.warn_if_noisy(rows, |_| Metric::ServerCpuPerMsg);
}

/// Cost of inflating messages: an echo over one whose messages come as they are, round by round.
fn read(row: &DeflateRow) -> Vec<f64> {
    row.runs(Metric::ServerCpuPerMsg).iter().zip(&row.subject.write).map(|(both, write)| both - write).collect()
}

fn table(rows: &[DeflateRow], memory: &[DeflateRow]) -> String {
    let table = Table::of(rows.iter().map(|row| {
        let DeflateCase { kind, takeover, size, ref write } = row.subject;
        let is_same = |other: &&DeflateRow| (other.subject.kind, other.subject.takeover) == (kind, takeover);
        let held = memory.iter().find(is_same).and_then(|row| row.median(Metric::RssPerConnection));
        [
            ("<size", bytes(size as u64)),
            ("<windows", if takeover { "kept" } else { "new" }.to_owned()),
            ("<", kind.name()),
            ("<driver", kind.driver_name().to_owned()),
            ("us/msg", optional(row.median(Metric::ServerCpuPerMsg))),
            ("± %", optional(row.spread_percent(Metric::ServerCpuPerMsg))),
            ("write", optional(median(write))),
            ("read", optional(median(&read(row)))),
            ("ratio", optional(row.median(Metric::RatioToWire))),
            ("p99 us", optional(row.median(Metric::LatencyP99))),
            ("KiB/conn", optional(held.map(|bytes| bytes / 1024.0))),
        ]
    }));
    format!(
        "Deflate: echoes of JSON over {CONNECTIONS} wss connections, one in flight on each. windows: kept\n\
         from message to message (context takeover), or new for each. us/msg: server CPU. write:\n\
         with answers compressed only; read: the difference. ratio: payload over bytes on the wire,\n\
         frames and records included. KiB/conn: growth of the server's resident memory after echoes\n\
         of {} on each.\n\n{table}",
        bytes(TARGETS.0 as u64)
    )
}

/// Ours, on the driver that takes least, against the best peer.
fn checks(rows: &[DeflateRow], memory: &[DeflateRow]) -> Vec<Check> {
    let (size, most_cpu, most_memory) = TARGETS;
    let mut checks = Vec::new();
    for takeover in [false, true] {
        let windows = if takeover { "kept" } else { "new" };
        let mut judge = |rows: &[DeflateRow], what: &str, metric, most| {
            let Some((ours, theirs)) = best(rows, takeover, metric, false).zip(best(rows, takeover, metric, true))
            else {
                return;
            };
            let names = [ours, theirs].map(|row| row.subject.kind.full_name());
            let name = format!("{what}, windows {windows}: {} over {}", names[0], names[1]);
            let ratio: Option<Ratio> = ours.over(theirs, metric);
            let case =
                if metric == Metric::RssPerConnection { ours.subject.memory_case() } else { ours.subject.case() };
            checks.extend(Check::ratio(name, case, (Metric::RatioToPeer, ratio), Target::AtMost(most)));
        };
        judge(rows, &format!("CPU at {} B", number(size as f64)), Metric::ServerCpuPerMsg, most_cpu);
        judge(memory, "memory", Metric::RssPerConnection, most_memory);
    }
    checks
}

/// The row with the least `metric` at the judged size.
fn best(rows: &[DeflateRow], takeover: bool, metric: Metric, is_peer: bool) -> Option<&DeflateRow> {
    let is_it = |case: &DeflateCase| {
        (case.size, case.takeover) == (TARGETS.0, takeover)
            && matches!(case.kind, Kind::PeerWith(Extra::Deflate, _)) == is_peer
    };
    row::least(rows.iter().filter(|row| is_it(&row.subject)), metric)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DriverKind;
    use crate::table::WIDTH;

    const KINDS: [Kind; 3] = [
        Kind::Deflate(DriverKind::Uring),
        Kind::PeerWith(Extra::Deflate, Peer::Sockudo),
        Kind::PeerWith(Extra::Deflate, Peer::Wtx),
    ];

    fn filled(mut rows: Vec<DeflateRow>) -> Vec<DeflateRow> {
        for row in &mut rows {
            let base = match row.subject.kind {
                Kind::PeerWith(Extra::Deflate, Peer::Wtx) => 200.0,
                Kind::PeerWith(Extra::Deflate, _) => 300.0,
                _ => 80.0,
            };
            for metric in [Metric::ServerCpuPerMsg, Metric::RssPerConnection, Metric::RatioToWire, Metric::LatencyP99] {
                row.samples.insert(metric, vec![base; 3]);
            }
            row.subject.write = vec![base * 0.75; 3];
        }
        rows
    }

    #[test]
    fn cpu_and_memory_are_held_against_the_best_peer() {
        let rows_of_kinds = filled(rows(Effort::Thorough, &KINDS));
        let mut memory = filled(rows(Effort::Quick, &KINDS));
        memory.retain(|row| row.subject.size == TARGETS.0);
        let mut outcome = Outcome::of("deflate");
        report(&mut outcome, &rows_of_kinds, &memory);
        let judged: Vec<_> = outcome.lines.iter().filter(|line| line.target.is_some()).collect();
        assert_eq!(judged.len(), 4);
        assert!(judged.iter().all(|line| line.value == 0.4 && line.case.driver.as_deref() == Some("uring")));
        assert!(outcome.text.contains("wss uring over wss wtx") || outcome.text.contains("over wss wtx"));
        assert!(outcome.text.lines().all(|line| line.chars().count() <= WIDTH), "{}", outcome.text);
        let read = outcome.lines.iter().find(|line| line.case.direction.as_deref() == Some("read")).unwrap();
        assert_eq!((read.value, read.case.size), (20.0, Some(256)));
    }
}
