//! Loops that share nothing beside threads that share a poller, over more and more threads.

use super::check::{self, Check};
use super::echo_case::{bulk_case, in_case};
use super::server::{Kind, Way};
use super::{ENGINES, Lab, Outcome, Pace, Suite, pairs};
use crate::baselines::Model;
use crate::load::Sink;
use crate::rounds::{Plan, Runs, Samples, interleave};
use crate::stats::{Ratio, Summary};
use crate::table::{Table, bytes, number, optional};
use crate::{Case, Error, Line, Metric, Target, published};
use std::fmt::Write as _;
use std::time::Duration;

/// What the rounds may take, and those of one connection beyond them.
const BUDGETS: [Duration; 2] = [Duration::from_secs(240), Duration::from_secs(60)];

/// Rounds of one connection for one of the others. Server and load wait for each other there, so a rate is how fast two
/// processors wake each other up, which differs by a tenth from round to round.
const ROUNDS: usize = 4;

/// What one connection is judged by: whoever shares nothing does the same work then, and is neither faster nor slower.
const ALIKE: f64 = 0.95;

/// Bytes of an answer. The report's messages have 10 MB; a rate of bytes does not depend on that.
pub(super) const SIZE: usize = 256 << 10;
const PUBLISHED_SIZE: u64 = 10_000_000;

const CONNECTIONS: [usize; 4] = [1, 4, 10, 20];
const THREADS: [usize; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

/// Most connections of a quick run, and those of the shortest one.
const MOST: usize = 20;

/// Longest bar of the chart.
const BAR: usize = 40;

struct Row {
    way: Way,
    connections: usize,
    samples: Samples,
}

impl Row {
    fn case(&self) -> Case {
        bulk_case(self.way, self.connections, SIZE)
    }

    /// What the report gives for as many threads: of the same engine, or else the best that it has for this model.
    fn published(&self) -> Option<f64> {
        let of = |tls: &str| {
            let case = Case { size: Some(PUBLISHED_SIZE), direction: None, tls: Some(tls.to_owned()), ..self.case() };
            published::lookup("scaling", &case, Metric::Transfer)
        };
        of(self.way.engine).or_else(|| of("boringssl"))
    }

    /// The median rate over that.
    fn over_published(&self) -> Option<f64> {
        Some(self.samples.median(Metric::Transfer)? / self.published()?)
    }

    /// Whether its connection has a processor to itself, whoever serves it.
    const fn is_single(&self, cpus: usize) -> bool {
        self.connections == 1 && self.way.threads <= cpus
    }

    fn name(&self) -> String {
        format!("{}, {} connections", Kind::Model(self.way).name(), self.connections)
    }
}

pub(super) fn run(lab: &mut Lab<'_>) -> Result<Outcome, Error> {
    let mut rows = rows(lab.pace);
    // Those that the loops are put on.
    let cpus = if lab.placement.is_shared() { 1 } else { 2 };
    let (mut single, mut others): (Vec<_>, Vec<_>) = rows.iter_mut().partition(|row| row.is_single(cpus));
    let plan = lab.plan(BUDGETS[0]);
    measure(lab, &mut others, &plan, (0.0, 0.6))?;
    let plan = Plan { rounds: ROUNDS * plan.rounds, budget: Some(BUDGETS[1]), ..plan };
    measure(lab, &mut single, &plan, (0.6, 0.8))?;
    let engines = if lab.pace == Pace::Glance { vec![ENGINES[0]] } else { engines() };
    let pairs = if cpus == 2 { pairs::measure(lab, &engines, (0.8, 1.0))? } else { Vec::new() };
    let text = table(&rows, cpus) + &chart(&rows) + &pairs::table(&pairs);
    let mut outcome = Outcome { text, ..Outcome::default() };
    for row in &rows {
        let case = row.case();
        for (&metric, runs) in &row.samples {
            let published = (metric == Metric::Transfer).then(|| row.published()).flatten();
            let line = Line::new(Suite::Scaling.name(), &case, metric, runs);
            outcome.lines.extend(line.map(|line| Line { published, ..line }));
        }
    }
    let names: Vec<String> = rows.iter().map(Row::name).collect();
    let summaries = rows.iter().map(|row| Summary::of(row.samples.runs(Metric::Transfer)));
    outcome.warn_if_noisy(names.iter().map(String::as_str).zip(summaries));
    pairs::add_lines(&mut outcome, &pairs);
    if pairs.is_empty() {
        outcome.warnings.push("there is one processor: what a second loop adds is not measured".to_owned());
    }
    check::report(&mut outcome, Suite::Scaling, pairs::checks(&pairs).into_iter().chain(checks(&rows, cpus)));
    Ok(outcome)
}

/// The default engine, and OpenSSL and BoringSSL where they are built in, which the report has; rustls else.
fn engines() -> Vec<&'static str> {
    let reported: Vec<_> = ENGINES.iter().copied().filter(|name| matches!(*name, "openssl" | "boringssl")).collect();
    let others = if reported.is_empty() { vec!["rustls"] } else { reported };
    [ENGINES[0]].into_iter().chain(others).collect()
}

fn rows(pace: Pace) -> Vec<Row> {
    let (engines, connections, threads): (_, &[usize], &[usize]) = match pace {
        Pace::Thorough => (engines(), &CONNECTIONS, &THREADS),
        Pace::Quick => (engines(), &[1, 4, MOST], &[1, 2, 4]),
        Pace::Glance => (vec![ENGINES[0]], &[MOST], &[1, 2]),
    };
    let mut rows = Vec::new();
    for &engine in &engines {
        for &connections in connections {
            for &threads in threads {
                rows.extend([Model::SharedLoop, Model::LoopPerCore].map(|model| {
                    let way = Way { model, engine, threads, is_source: true, shared_from: None };
                    Row { way, connections, samples: Samples::new() }
                }));
            }
        }
    }
    rows
}

fn measure(lab: &mut Lab<'_>, rows: &mut [&mut Row], plan: &Plan, (from, to): (f64, f64)) -> Result<(), Error> {
    let mut kinds: Vec<Kind> = Vec::new();
    for row in rows.iter() {
        if !kinds.contains(&Kind::Model(row.way)) {
            kinds.push(Kind::Model(row.way));
        }
    }
    let servers = lab.servers(&kinds)?;
    let span = lab.span();
    let names: Vec<String> = rows.iter().map(|row| row.name()).collect();
    let progress = &mut lab.progress;
    let samples = interleave(
        rows,
        plan,
        |step| progress(from + (to - from) * step.done as f64 / step.total as f64, &names[step.case]),
        |row, step| {
            let server = servers.iter().find(|server| server.kind == Kind::Model(row.way));
            let server = server.ok_or_else(|| Error::Failed(format!("no {} server runs", names[step.case])))?;
            let sink = Sink {
                server: server.server()?,
                addresses: server.addresses.clone(),
                connections: row.connections,
                size: SIZE,
                interval: None,
                warmup: span.warmup,
                duration: span.duration,
            };
            let measured = sink.run().map_err(|error| in_case(&names[step.case], error))?;
            Ok(measured.answer_metrics(SIZE))
        },
    )?;
    for (row, samples) in rows.iter_mut().zip(samples) {
        row.samples = samples;
    }
    Ok(())
}

fn find<'a>(rows: &'a [Row], like: &Row, model: Model, threads: usize) -> Option<&'a Row> {
    let way = Way { model, threads, ..like.way };
    rows.iter().find(|row| row.way == way && row.connections == like.connections)
}

fn over(row: Option<&Row>, other: Option<&Row>, metric: Metric) -> Option<Ratio> {
    Ratio::paired(row?.samples.runs(metric), other?.samples.runs(metric))
}

fn table(rows: &[Row], cpus: usize) -> String {
    let mut table = Table::new(&[
        "<engine",
        "conn.",
        "threads",
        "s. MB/s",
        "p.c. MB/s",
        "x",
        "us s.",
        "us p.c.",
        "s. x p.",
        "p.c. x p.",
        "publ. x",
    ]);
    for pair in rows.chunks_exact(2) {
        let [shared, per_core] = pair else { continue };
        let their = shared.published().zip(per_core.published());
        table.row([
            shared.way.engine.to_owned(),
            shared.connections.to_string(),
            shared.way.threads.to_string(),
            optional(shared.samples.median(Metric::Transfer)),
            optional(per_core.samples.median(Metric::Transfer)),
            optional(over(Some(per_core), Some(shared), Metric::Transfer).map(|ratio| ratio.summary.median)),
            optional(shared.samples.median(Metric::ServerCpuPerMsg)),
            optional(per_core.samples.median(Metric::ServerCpuPerMsg)),
            optional(shared.over_published()),
            optional(per_core.over_published()),
            optional(their.map(|(shared, per_core)| per_core / shared)),
        ]);
    }
    format!(
        "Bulk: connections ask for {} again and again and throw it away unread. shared: threads at one\n\
         poller (s.); per core: loops that share nothing (p.c.). us: CPU of all threads for each answer.\n\
         CPUs: {cpus}, one of them with the load. x p.: MB/s over the report's, of the same engine or of\n\
         BoringSSL; publ. x: the report's per core over its shared.\n\n{table}",
        bytes(SIZE as u64)
    )
}

/// Rates over threads, a bar each.
fn chart(rows: &[Row]) -> String {
    let most = rows.iter().filter_map(|row| row.samples.median(Metric::Transfer)).fold(0.0, f64::max);
    let mut text = String::new();
    let mut last = None;
    for row in rows {
        let group = (row.way.engine, row.connections);
        if last.replace(group) != Some(group) {
            let _ = writeln!(text, "\n{}, {} connections, MB/s by threads:", group.0, group.1);
        }
        let Some(rate) = row.samples.median(Metric::Transfer) else { continue };
        let len = rate / most * BAR as f64;
        let bar: String = (0..BAR).map_while(|at| (at as f64 + 0.5 <= len).then_some('#')).collect();
        let _ = writeln!(text, "{:>2} {:<13} {bar} {}", row.way.threads, row.way.model.name(), number(rate));
    }
    text
}

fn checks(rows: &[Row], cpus: usize) -> Vec<Check> {
    let mut checks = Vec::new();
    // With more threads than processors both only take turns.
    for per_core in rows.iter().filter(|row| row.way.model == Model::LoopPerCore && row.way.threads <= cpus) {
        let shared = find(rows, per_core, Model::SharedLoop, per_core.way.threads);
        let Way { engine, threads, .. } = per_core.way;
        let what = format!("{engine}, {} connections, threads: {threads}; per core over shared", per_core.connections);
        let ratio = (Metric::RatioToSharedLoop, over(Some(per_core), shared, Metric::Transfer));
        let least = if per_core.is_single(cpus) { ALIKE } else { 1.0 };
        checks.extend(Check::ratio(what, per_core.case(), ratio, Target::AtLeast(least)));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::WIDTH;

    #[test]
    fn rows_come_in_pairs_and_find_what_was_published() {
        let mut rows = rows(Pace::Thorough);
        assert_eq!(rows.len(), 2 * CONNECTIONS.len() * THREADS.len() * engines().len());
        for pair in rows.chunks_exact(2) {
            assert_eq!((pair[0].way.model, pair[1].way.model), (Model::SharedLoop, Model::LoopPerCore));
            assert_eq!(pair[0].connections, pair[1].connections);
        }
        let published = |row: &Row| row.published();
        assert!(rows.iter().filter(|row| row.way.model == Model::SharedLoop).all(|row| published(row).is_some()));
        let most = rows.iter().find(|row| row.way.model == Model::LoopPerCore && row.connections == MOST).unwrap();
        assert_eq!(most.published(), Some(493.772));
        for row in &mut rows {
            let (threads, shared) = (row.way.threads as f64, row.way.model == Model::SharedLoop);
            let rate = if shared { 1000.0 } else { 1000.0 * threads };
            row.samples.insert(Metric::Transfer, vec![rate; 3]);
            row.samples.insert(Metric::ServerCpuPerMsg, vec![100.0; 3]);
        }
        let text = chart(&rows);
        assert!(text.lines().any(|line| line == format!(" 8 loop-per-core {} 8,000", "#".repeat(BAR))), "{text}");
        assert!(text.lines().any(|line| line == " 8 shared-loop   ##### 1,000"), "{text}");
        let mut outcome = Outcome::default();
        check::report(&mut outcome, Suite::Scaling, checks(&rows, 2));
        let single = outcome.text.lines().filter(|line| line.contains(" 1 connections") && line.contains(">= 0.95"));
        assert_eq!(single.count(), 2 * engines().len(), "{}", outcome.text);
        assert!(outcome.text.contains("fused, 4 connections, threads: 2") && outcome.text.contains(">= 1.00"));
        let text = table(&rows, 2);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH) && !text.contains('…'), "{text}");
        let line = text.lines().find(|line| line.split_whitespace().take(3).eq(["fused", "20", "1"])).unwrap();
        // Ours over theirs, which have 493.772 per core.
        let shared = rows.iter().find(|row| row.connections == MOST).and_then(Row::over_published).unwrap();
        let expected = [number(shared), number(1000.0 / 493.772)];
        assert!(line.split_whitespace().any(|cell| cell == expected[0]) && line.contains(&expected[1]), "{line}");
    }
}
