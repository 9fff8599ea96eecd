//! TLS in the loop, all of it on other threads, and large messages shared with others: who is faster, from which size on.

use super::check::{self, Check};
use super::echo_case::{self, EchoCase, Shape, bulk_case, in_case};
use super::server::{Kind, Process, Way};
use super::{ENGINES, Lab, Outcome, Pace, Suite};
use crate::baselines::Model;
use crate::load::Sink;
use crate::rounds::{Runs, Samples, interleave};
use crate::stats::Ratio;
use crate::table::{Table, bytes, optional};
use crate::{Case, Error, Metric, Target, published};
use std::time::Duration;
use tautline::Records;

/// What the echo rounds may take, and the answers after them.
const BUDGETS: [Duration; 2] = [Duration::from_secs(150), Duration::from_secs(60)];

/// Connections that send 64 B, and sizes that a hundred send.
const CONNECTIONS: [usize; 4] = [50, 100, 200, 500];
const SIZES: [usize; 7] = [256, 1024, 4096, 16_384, 65_536, 262_144, 1 << 20];

/// Up to this size gated must be inline.
const SMALL: usize = 16_384;

/// Threads of the pool that gets every operation.
const WORKERS: usize = 2;

/// Answers: their sizes, how many connections ask for them, and from which size on they are shared to find where that begins
/// to be worth it.
const ANSWERS: [usize; 7] = [32_768, 65_536, 131_072, 262_144, 524_288, 1 << 20, 4 << 20];
const ASKING: usize = 4;
const SHARED_FROM: usize = 32_768;

/// How often the load looks for answers: seldom enough to leave its processor idle, often enough that the next are asked for
/// before the loop has sealed the last.
const LOOKS: Duration = Duration::from_micros(50);

/// A server whose answers are discarded.
struct Bulk {
    way: Way,
    size: usize,
    samples: Samples,
}

impl Bulk {
    fn case(&self) -> Case {
        bulk_case(self.way, ASKING, self.size)
    }
}

fn way(model: Model, threads: usize) -> Way {
    Way { model, engine: ENGINES[0], threads, is_source: false, shared_from: None }
}

/// In the order of the tables.
fn ways() -> [Way; 3] {
    let inline = way(Model::LoopPerCore, 1);
    let gated = Way { shared_from: Some(Records::default().min_message), ..inline };
    [inline, way(Model::AlwaysOffload, WORKERS), gated]
}

pub(super) fn run(lab: &mut Lab<'_>) -> Result<Outcome, Error> {
    let ways = ways();
    let mut cases = echo_case::cases(&shapes(lab.pace), &ways.map(Kind::Model));
    let servers = lab.servers(&ways.map(Kind::Model))?;
    echo_case::measure(lab, &servers, &mut cases, BUDGETS[0], (0.0, 0.8))?;
    drop(servers);
    let mut bulk = bulk(lab.pace);
    measure(lab, &mut bulk, (0.8, 1.0))?;
    let mut outcome = Outcome { text: echo_table(&cases) + &bulk_table(&bulk), ..Outcome::default() };
    echo_case::add_lines(&mut outcome, Suite::Offload, &cases);
    for row in &bulk {
        outcome.add_samples(Suite::Offload, &row.case(), &row.samples);
    }
    check::report(&mut outcome, Suite::Offload, checks(&cases, &bulk));
    Ok(outcome)
}

fn shapes(pace: Pace) -> Vec<Shape> {
    let shape = |size, connections| Shape { size, connections, pipeline: 1 };
    if pace == Pace::Glance {
        return vec![shape(64, 50), shape(64, 100), shape(1 << 20, 4)];
    }
    CONNECTIONS
        .map(|connections| shape(64, connections))
        .into_iter()
        .chain(SIZES.map(|size| shape(size, 100)))
        .collect()
}

fn bulk(pace: Pace) -> Vec<Bulk> {
    let inline = Way { is_source: true, ..way(Model::LoopPerCore, 1) };
    let ways = [inline, Way { shared_from: Some(SHARED_FROM), ..inline }];
    let sizes = ANSWERS.into_iter().filter(|&size| pace != Pace::Glance || size == 1 << 20);
    sizes.flat_map(|size| ways.map(|way| Bulk { way, size, samples: Samples::new() })).collect()
}

fn measure(lab: &mut Lab<'_>, rows: &mut [Bulk], (from, to): (f64, f64)) -> Result<(), Error> {
    let mut kinds: Vec<Kind> = Vec::new();
    for row in rows.iter() {
        if !kinds.contains(&Kind::Model(row.way)) {
            kinds.push(Kind::Model(row.way));
        }
    }
    let servers = lab.servers(&kinds)?;
    let (plan, span) = (lab.plan(BUDGETS[1]), lab.span());
    let names: Vec<String> = rows
        .iter()
        .map(|row| format!("{}, answers of {}", Kind::Model(row.way).name(), bytes(row.size as u64)))
        .collect();
    let progress = &mut lab.progress;
    let samples = interleave(
        rows,
        &plan,
        |step| progress(from + (to - from) * step.done as f64 / step.total as f64, &names[step.case]),
        |row, step| {
            let server = find(&servers, row.way)?;
            let (warmup, duration) = (span.warmup, span.duration);
            let sink = Sink {
                server: server.server()?,
                addresses: vec![server.address],
                connections: ASKING,
                size: row.size,
                interval: Some(LOOKS),
                warmup,
                duration,
            };
            let measured = sink.run().map_err(|error| in_case(&names[step.case], error))?;
            Ok(measured.answer_metrics(row.size))
        },
    )?;
    for (row, samples) in rows.iter_mut().zip(samples) {
        row.samples = samples;
    }
    Ok(())
}

fn find(servers: &[Process], way: Way) -> Result<&Process, Error> {
    let server = servers.iter().find(|server| server.kind == Kind::Model(way));
    server.ok_or_else(|| Error::Failed(format!("no {} server runs", Kind::Model(way).name())))
}

/// The same load on the loop that does everything itself.
fn inline_of<'a>(cases: &'a [EchoCase], case: &EchoCase) -> Option<&'a EchoCase> {
    cases.iter().find(|other| other.shape == case.shape && other.kind == Kind::Model(ways()[0]))
}

fn rates(case: &EchoCase) -> &[f64] {
    case.samples.get(&Metric::Throughput).map_or(&[], Vec::as_slice)
}

fn execution(case: &Case) -> String {
    case.execution.clone().unwrap_or_default()
}

fn echo_table(cases: &[EchoCase]) -> String {
    let mut table = Table::new(&[
        "<load", "<TLS", "msg/s ", "MB/s", "p50 us", "us/msg", "x inline", "publ./s", "x publ.", "publ. x",
    ]);
    for case in cases {
        let facts = case.case();
        let theirs = |case: &Case| published::lookup("offload", case, Metric::Throughput);
        let ours = case.median(Metric::Throughput);
        let inline = inline_of(cases, case).filter(|inline| inline.kind != case.kind);
        let over = inline.and_then(|inline| Ratio::paired(rates(case), rates(inline)));
        let published = theirs(&facts);
        let their_inline = inline.and_then(|inline| theirs(&inline.case()));
        table.row([
            case.shape.name(),
            execution(&facts),
            echo_case::rate(case),
            optional(case.median(Metric::Transfer)),
            optional(case.median(Metric::LatencyP50)),
            optional(case.median(Metric::ServerCpuPerMsg)),
            optional(over.map(|over| over.summary.median)),
            optional(published),
            optional(ours.zip(published).map(|(ours, theirs)| ours / theirs)),
            optional(published.zip(their_inline).map(|(offload, inline)| offload / inline)),
        ]);
    }
    format!(
        "Echo: one loop on a CPU of its own; 100 connections with one message in flight, or as said.\n\
         inline: all TLS in the loop. always-offload: every TLS operation by one of {WORKERS} other threads, through\n\
         rings. gated: messages of {} and more are sealed with others' help. us/msg: CPU of all\n\
         threads. x inline: msg/s over inline's. publ.: the report's msg/s; publ. x: over inline's there.\n\n{table}",
        bytes(Records::default().min_message as u64)
    )
}

fn bulk_table(rows: &[Bulk]) -> String {
    let mut table = Table::new(&["<answer", "MB/s inline", "MB/s shared", "x", "us inline", "us shared", "x CPU"]);
    for pair in rows.chunks_exact(2) {
        let ratio = |metric| {
            Ratio::paired(pair[1].samples.runs(metric), pair[0].samples.runs(metric)).map(|ratio| ratio.summary.median)
        };
        table.row([
            bytes(pair[0].size as u64),
            optional(pair[0].samples.median(Metric::Transfer)),
            optional(pair[1].samples.median(Metric::Transfer)),
            optional(ratio(Metric::Transfer)),
            optional(pair[0].samples.median(Metric::ServerCpuPerMsg)),
            optional(pair[1].samples.median(Metric::ServerCpuPerMsg)),
            optional(ratio(Metric::ServerCpuPerMsg)),
        ]);
    }
    let crossover = crossover(rows).map_or_else(
        || "sharing is not faster at any of these sizes here".to_owned(),
        |size| format!("sharing is faster from {} on", bytes(size as u64)),
    );
    format!(
        "\nOne busy loop beside an idle core: {ASKING} connections ask for large answers and throw them away\n\
         unread. inline: the loop seals alone; shared: with other threads. us: CPU of all threads for each.\n\
         The load looks for answers every {} us, so that nobody pays for waking it.\n\n{table}\n\
         Crossover: {crossover}; the default is {}.\n",
        LOOKS.as_micros(),
        bytes(Records::default().min_message as u64)
    )
}

/// The least size from which on every larger one is faster too.
fn crossover(rows: &[Bulk]) -> Option<usize> {
    let faster = |pair: &&[Bulk]| {
        let ratio = Ratio::paired(pair[1].samples.runs(Metric::Transfer), pair[0].samples.runs(Metric::Transfer));
        ratio.is_some_and(|ratio| ratio.summary.median > 1.0)
    };
    let pairs: Vec<_> = rows.chunks_exact(2).collect();
    pairs.into_iter().rev().take_while(faster).last().map(|pair| pair[0].size)
}

fn checks(cases: &[EchoCase], bulk: &[Bulk]) -> Vec<Check> {
    let [_, always, gated] = ways();
    let name = |case: &EchoCase| {
        let Shape { size, connections, .. } = case.shape;
        format!("{}, {connections}", bytes(size as u64))
    };
    let mut checks = Vec::new();
    for case in cases {
        let Some(inline) = inline_of(cases, case) else { continue };
        if case.kind == Kind::Model(always) && case.shape.size == 64 {
            let ratio = (Metric::RatioToInline, Ratio::paired(rates(case), rates(inline)));
            let what = format!("{}: always-offload over inline, msg/s", name(case));
            checks.extend(Check::ratio(what, case.case(), ratio, Target::AtMost(0.8)));
            let what = format!("{}: always-offload over inline, CPU", name(case));
            let ratio = (Metric::RatioToInline, case.cpu_over(inline));
            checks.extend(Check::ratio(what, case.case(), ratio, Target::AtLeast(1.25)));
        }
        if case.kind == Kind::Model(gated) && case.shape.size <= SMALL {
            let what = format!("{}: gated over inline, CPU", name(case));
            let ratio = (Metric::RatioToInline, case.cpu_over(inline));
            checks.extend(Check::ratio(what, case.case(), ratio, Target::AtMost(1.03)));
        }
    }
    for pair in bulk.chunks_exact(2).filter(|pair| pair[0].size == 1 << 20) {
        let ratio = Ratio::paired(pair[1].samples.runs(Metric::Transfer), pair[0].samples.runs(Metric::Transfer));
        let what = format!("answers of {}: shared over inline, MB/s", bytes(pair[0].size as u64));
        checks.extend(Check::ratio(what, pair[1].case(), (Metric::RatioToInline, ratio), Target::AtLeast(1.0)));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crossover_is_where_all_larger_sizes_are_faster() {
        let mut rows = bulk(Pace::Quick);
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
    fn gated_is_the_third_and_says_so() {
        let names = ways().map(|way| execution(&EchoCase::new(Kind::Model(way), Shape::of(64)).case()));
        assert_eq!(names, ["inline", "always-offload", "gated"]);
    }
}
