//! TLS in the loop, all of TLS on other threads, and large messages sealed with their help, by the size of messages.

use super::bulk::{self, Bulk};
use super::echo_case::{self, EchoRow, Shape};
use super::{Check, ENGINES, Effort, Kind, Lab, Outcome, Row, Servers, Subject, Topology, check};
use crate::rounds::Runs;
use crate::table::{Table, bytes, optional};
use crate::{Error, Metric, Target};
use std::time::Duration;
use tautline::Records;
use tautline_replicas::models::Model;

/// Time for the echo rounds, and for the answers.
const BUDGETS: [Duration; 2] = [Duration::from_secs(150), Duration::from_secs(60)];

/// Connections that send 64 B, and sizes on a hundred connections.
const CONNECTIONS: [usize; 4] = [50, 100, 200, 500];
const SIZES: [usize; 7] = [256, 1024, 4096, 16_384, 65_536, 262_144, 1 << 20];

/// Largest size at which gated must equal inline.
const SMALL: usize = 16_384;

/// Threads of the pool that gets every operation.
const WORKERS: usize = 2;

/// Sizes of the answers.
const ANSWERS: [usize; 7] = [32_768, 65_536, 131_072, 262_144, 524_288, 1 << 20, 4 << 20];

/// Connections that ask for answers.
const ASKING: usize = 4;

/// Size from which on answers are shared: small enough to find the size from which on sharing pays.
const SHARED_FROM: usize = 32_768;

/// Interval at which the load looks for answers: long enough to leave its CPU idle, and short enough to ask for the next
/// answers before the loop has sealed the last.
const INTERVAL: Duration = Duration::from_micros(50);

/// One loop with the default engine.
fn inline() -> Topology {
    Topology::new(Model::LoopPerCore, ENGINES[0], 1)
}

/// Inline, always-offload and gated, as in the tables.
fn topologies() -> [Topology; 3] {
    let always = Topology::new(Model::AlwaysOffload, ENGINES[0], WORKERS);
    [inline(), always, Topology { shared_from: Some(Records::default().min_message), ..inline() }]
}

pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let mut rows = rows(&shapes(lab.effort));
    let servers = Servers::start(lab, topologies().map(Kind::Model))?;
    echo_case::measure(lab, &servers, &mut rows, BUDGETS[0], 0.0..0.8)?;
    drop(servers);
    let mut answers = answers(lab.effort);
    bulk::measure(lab, &mut answers, &lab.plan(BUDGETS[1]), 0.8..1.0)?;
    outcome.text = echo_table(&rows) + &bulk_table(&answers);
    echo_case::add_lines(outcome, &rows);
    answers.iter().for_each(|row| outcome.add_row(row));
    check::report(outcome, checks(&rows, &answers));
    Ok(())
}

/// Every shape inline and gated, in turn, and then every shape with always-offload.
///
/// Inline and gated do the same below the gate, so their ratio shows the least disturbance. Always-offload keeps every CPU busy,
/// and what follows that does not begin as the others do: no gated row follows it.
fn rows(shapes: &[Shape]) -> Vec<EchoRow> {
    let [inline, always, gated] = topologies().map(Kind::Model);
    let mut rows = echo_case::rows(shapes, &[inline, gated]);
    rows.extend(echo_case::rows(shapes, &[always]));
    rows
}

fn shapes(effort: Effort) -> Vec<Shape> {
    let shape = |size, connections| Shape { size, connections, pipeline: 1 };
    if effort == Effort::Smoke {
        return vec![shape(64, 50), shape(64, 100), shape(1 << 20, 4)];
    }
    let small = CONNECTIONS.map(|connections| shape(64, connections));
    small.into_iter().chain(SIZES.map(|size| shape(size, 100))).collect()
}

/// Answers of each size, sealed by the loop alone and with the help of other threads.
fn answers(effort: Effort) -> Vec<Row<Bulk>> {
    let alone = Topology { is_source: true, ..inline() };
    let topologies = [alone, Topology { shared_from: Some(SHARED_FROM), ..alone }];
    let row = |topology, size| Row::new(Bulk { topology, connections: ASKING, size, interval: Some(INTERVAL) });
    let sizes = ANSWERS.into_iter().filter(|&size| effort != Effort::Smoke || size == 1 << 20);
    sizes.flat_map(|size| topologies.map(|topology| row(topology, size))).collect()
}

/// The row with this load on the loop that does everything itself.
fn inline_of<'a>(rows: &'a [EchoRow], row: &EchoRow) -> Option<&'a EchoRow> {
    let is_inline = |other: &&EchoRow| other.subject.kind == Kind::Model(inline());
    rows.iter().filter(is_inline).find(|other| other.subject.shape == row.subject.shape)
}

/// The name of a row's topology.
fn execution(row: &EchoRow) -> String {
    row.subject.case().execution.unwrap_or_default()
}

fn echo_table(rows: &[EchoRow]) -> String {
    let table = Table::of(rows.iter().map(|row| {
        let inline = inline_of(rows, row).filter(|inline| inline.subject.kind != row.subject.kind);
        let published = row.published("offload");
        let published_inline = inline.and_then(|inline| inline.published("offload"));
        [
            ("<load", row.subject.shape.name()),
            ("<TLS", execution(row)),
            ("msg/s ", row.rate()),
            ("MB/s", optional(row.median(Metric::Transfer))),
            ("p50 us", optional(row.median(Metric::LatencyP50))),
            ("us/msg", optional(row.median(Metric::ServerCpuPerMsg))),
            ("x inline", optional(inline.and_then(|inline| row.times(inline, Metric::Throughput)))),
            ("publ./s", optional(published)),
            ("x publ.", optional(row.over_published("offload"))),
            ("publ. x", optional(published.zip(published_inline).map(|(offload, inline)| offload / inline))),
        ]
    }));
    format!(
        "Echo: one loop on a CPU of its own; 100 connections with one message in flight, or as said.\n\
         inline: all TLS in the loop. always-offload: every TLS operation by one of {WORKERS} other threads, through\n\
         rings. gated: messages of {} and more are sealed with others' help. us/msg: CPU of all\n\
         threads. x inline: msg/s over inline's. publ.: the report's msg/s; publ. x: over inline's there.\n\n{table}",
        bytes(Records::default().min_message as u64)
    )
}

fn bulk_table(rows: &[Row<Bulk>]) -> String {
    let table = Table::of(rows.as_chunks().0.iter().map(|[alone, shared]| {
        [
            ("<answer", bytes(alone.subject.size as u64)),
            ("MB/s inline", optional(alone.median(Metric::Transfer))),
            ("MB/s shared", optional(shared.median(Metric::Transfer))),
            ("x", optional(shared.times(alone, Metric::Transfer))),
            ("us inline", optional(alone.median(Metric::ServerCpuPerMsg))),
            ("us shared", optional(shared.median(Metric::ServerCpuPerMsg))),
            ("x CPU", optional(shared.times(alone, Metric::ServerCpuPerMsg))),
        ]
    }));
    let crossover = crossover(rows).map_or_else(
        || "sharing is not faster at any of these sizes here".to_owned(),
        |size| format!("sharing is faster from {} on", bytes(size as u64)),
    );
    format!(
        "\nOne busy loop beside an idle core: {ASKING} connections ask for large answers and discard them\n\
         unread. inline: the loop seals alone; shared: with other threads. us: CPU of all threads for each.\n\
         The load looks for answers every {} us, so that the server spends nothing on waking it.\n\n{table}\n\
         Crossover: {crossover}; the default is {}.\n",
        INTERVAL.as_micros(),
        bytes(Records::default().min_message as u64)
    )
}

/// The least size from which on sharing is faster at every measured size.
fn crossover(rows: &[Row<Bulk>]) -> Option<usize> {
    let is_faster =
        |[alone, shared]: &&[Row<Bulk>; 2]| shared.times(alone, Metric::Transfer).is_some_and(|times| times > 1.0);
    rows.as_chunks().0.iter().rev().take_while(is_faster).last().map(|[alone, _]| alone.subject.size)
}

fn checks(rows: &[EchoRow], answers: &[Row<Bulk>]) -> Vec<Check> {
    let [_, always, gated] = topologies().map(Kind::Model);
    let mut checks = Vec::new();
    for row in rows {
        let Some(inline) = inline_of(rows, row) else { continue };
        let (Shape { size, connections, .. }, case) = (row.subject.shape, row.subject.case());
        let name = format!("{}, {connections}", bytes(size as u64));
        let cpu = (Metric::RatioToInline, row.cpu_over(inline));
        if row.subject.kind == always && size == 64 {
            let rate = (Metric::RatioToInline, row.over(inline, Metric::Throughput));
            let what = format!("{name}: always-offload over inline, msg/s");
            checks.extend(Check::ratio(what, case.clone(), rate, Target::AtMost(0.8)));
            let what = format!("{name}: always-offload over inline, CPU");
            checks.extend(Check::ratio(what, case, cpu, Target::AtLeast(1.25)));
        } else if row.subject.kind == gated && size <= SMALL {
            checks.extend(Check::ratio(format!("{name}: gated over inline, CPU"), case, cpu, Target::AtMost(1.03)));
        }
    }
    for [alone, shared] in answers.as_chunks().0.iter().filter(|[alone, _]| alone.subject.size == 1 << 20) {
        let name = format!("answers of {}: shared over inline, MB/s", bytes(alone.subject.size as u64));
        let ratio = (Metric::RatioToInline, shared.over(alone, Metric::Transfer));
        checks.extend(Check::ratio(name, shared.subject.case(), ratio, Target::AtLeast(1.0)));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::super::echo_case::EchoCase;
    use super::*;

    #[test]
    fn the_crossover_is_the_size_from_which_on_all_are_faster() {
        let mut rows = answers(Effort::Quick);
        for (rate, row) in [[2.0, 1.0], [1.0, 2.0], [3.0, 2.0], [1.0, 1.5], [1.0, 2.0], [1.0, 3.0], [1.0, 2.0]]
            .as_flattened()
            .iter()
            .zip(&mut rows)
        {
            row.samples.insert(Metric::Transfer, vec![*rate; 3]);
        }
        assert_eq!(crossover(&rows), Some(262_144));
        rows[13].samples.insert(Metric::Transfer, vec![0.5; 3]);
        assert_eq!(crossover(&rows), None);
        assert!(bulk_table(&rows).contains("not faster"));
    }

    #[test]
    fn no_gated_row_follows_always_offload() {
        let rows = rows(&shapes(Effort::Quick));
        let names: Vec<String> = rows.iter().map(execution).collect();
        assert_eq!(rows.len(), 3 * shapes(Effort::Quick).len());
        for (index, row) in rows.iter().enumerate().filter(|(index, _)| names[*index] == "gated") {
            assert_eq!(names[index - 1], "inline");
            assert_eq!(rows[index - 1].subject.shape, row.subject.shape);
        }
    }

    #[test]
    fn topologies_have_their_names_in_order() {
        let names = topologies().map(|topology| execution(&EchoCase::row(Kind::Model(topology), Shape::of(64))));
        assert_eq!(names, ["inline", "always-offload", "gated"]);
    }
}
