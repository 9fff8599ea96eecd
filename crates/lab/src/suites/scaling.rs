//! Loops that share nothing beside threads that share a poller, by the number of threads.

use super::bulk::{self, Bulk, SIZE};
use super::pairs;
use super::{Check, ENGINES, Effort, Lab, Outcome, Row, Subject, Topology, check};
use crate::published;
use crate::rounds::Runs;
use crate::table::{Table, bytes, number, optional};
use crate::{Case, Error, Metric, Target};
use std::fmt::Write as _;
use std::time::Duration;
use tautline_replicas::models::Model;

/// Time for the rounds, and for those of a single connection.
const BUDGETS: [Duration; 2] = [Duration::from_secs(240), Duration::from_secs(60)];

/// Rounds of a single connection for each round of the others.
///
/// Server and load wait for each other there. The rate depends on how fast two CPUs wake each other, which differs by a
/// tenth from round to round.
const ROUNDS: usize = 4;

/// Least ratio for a single connection: a loop that shares nothing does the same work, neither faster nor slower.
const ALIKE: f64 = 0.95;

/// Bytes of a message in the report.
const PUBLISHED_SIZE: u64 = 10_000_000;

const CONNECTIONS: [usize; 4] = [1, 4, 10, 20];
const THREADS: [usize; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

/// Most connections of a quick run, and the connections of a smoke run.
const MOST: usize = 20;

/// Longest bar of the chart.
const BAR: usize = 40;

impl Row<Bulk> {
    /// The report's rate for as many threads: of the same engine, or else the best for this model.
    fn published(&self) -> Option<f64> {
        let of = |tls: &str| {
            let case = Case { size: Some(PUBLISHED_SIZE), direction: None, ..self.subject.case().tls(tls) };
            published::lookup("scaling", &case, Metric::Transfer)
        };
        of(self.subject.topology.engine).or_else(|| of("boringssl"))
    }

    /// The median rate over the published one.
    fn over_published(&self) -> Option<f64> {
        Some(self.median(Metric::Transfer)? / self.published()?)
    }

    /// Whether its only connection has a CPU to itself.
    const fn is_single(&self, cpus: usize) -> bool {
        self.subject.connections == 1 && self.subject.topology.threads <= cpus
    }
}

pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let mut rows = rows(lab.effort);
    // The CPUs of the loops.
    let cpus = if lab.placement.is_shared() { 1 } else { 2 };
    let (single, others): (Vec<_>, Vec<_>) = rows.iter_mut().partition(|row| row.is_single(cpus));
    bulk::measure(lab, others, &lab.plan(BUDGETS[0]), 0.0..0.6)?;
    bulk::measure(lab, single, &lab.plan_times(ROUNDS, BUDGETS[1]), 0.6..0.8)?;
    let pairs = if cpus == 2 { pairs::measure(lab, &engines(lab.effort), 0.8..1.0)? } else { Vec::new() };
    outcome.text = table(&rows, cpus) + &chart(&rows) + &pairs::table(&pairs);
    for row in &rows {
        outcome.add_row_beside(row, |metric| row.published().filter(|_| metric == Metric::Transfer));
    }
    outcome.warn_if_noisy(&rows, |_| Metric::Transfer);
    pairs.iter().for_each(|row| outcome.add_row(row));
    if pairs.is_empty() {
        outcome.warnings.push("there is only one CPU: the gain of a second loop is not measured".to_owned());
    }
    check::report(outcome, pairs::checks(&pairs).into_iter().chain(checks(&rows, cpus)));
    Ok(())
}

/// The default engine, and those of the report that are built in (OpenSSL and BoringSSL), or else rustls. A smoke run has the
/// default alone.
fn engines(effort: Effort) -> Vec<&'static str> {
    let reported: Vec<_> = ENGINES.iter().copied().filter(|name| matches!(*name, "openssl" | "boringssl")).collect();
    let others = if reported.is_empty() { vec!["rustls"] } else { reported };
    [ENGINES[0]].into_iter().chain(others.into_iter().filter(|_| effort != Effort::Smoke)).collect()
}

fn rows(effort: Effort) -> Vec<Row<Bulk>> {
    let connections: &[usize] = effort.pick(&CONNECTIONS, &[1, 4, MOST], &[MOST]);
    let threads: &[usize] = effort.pick(&THREADS, &[1, 2, 4], &[1, 2]);
    let mut rows = Vec::new();
    for engine in engines(effort) {
        for &connections in connections {
            for &threads in threads {
                rows.extend([Model::SharedLoop, Model::LoopPerCore].map(|model| {
                    let topology = Topology { is_source: true, ..Topology::new(model, engine, threads) };
                    Row::new(Bulk { topology, connections, size: SIZE, interval: None })
                }));
            }
        }
    }
    rows
}

fn table(rows: &[Row<Bulk>], cpus: usize) -> String {
    let table = Table::of(rows.as_chunks().0.iter().map(|[shared, per_core]| {
        let Bulk { topology: Topology { engine, threads, .. }, connections, .. } = shared.subject;
        let their = shared.published().zip(per_core.published());
        [
            ("<engine", engine.to_owned()),
            ("conn.", connections.to_string()),
            ("threads", threads.to_string()),
            ("s. MB/s", optional(shared.median(Metric::Transfer))),
            ("p.c. MB/s", optional(per_core.median(Metric::Transfer))),
            ("x", optional(per_core.times(shared, Metric::Transfer))),
            ("us s.", optional(shared.median(Metric::ServerCpuPerMsg))),
            ("us p.c.", optional(per_core.median(Metric::ServerCpuPerMsg))),
            ("s. x p.", optional(shared.over_published())),
            ("p.c. x p.", optional(per_core.over_published())),
            ("publ. x", optional(their.map(|(shared, per_core)| per_core / shared))),
        ]
    }));
    format!(
        "Bulk: connections ask for {} again and again and discard it unread. shared: threads at one\n\
         poller (s.); per core: loops that share nothing (p.c.). us: CPU of all threads for each answer.\n\
         CPUs: {cpus}, one of them with the load. x p.: MB/s over the report's, of the same engine or of\n\
         BoringSSL; publ. x: the report's per core over its shared.\n\n{table}",
        bytes(SIZE as u64)
    )
}

/// Rates by threads as bars.
fn chart(rows: &[Row<Bulk>]) -> String {
    let most = rows.iter().filter_map(|row| row.median(Metric::Transfer)).fold(0.0, f64::max);
    let mut text = String::new();
    let mut last = None;
    for row in rows {
        let Bulk { topology: Topology { engine, threads, model, .. }, connections, .. } = row.subject;
        let group = (engine, connections);
        if last.replace(group) != Some(group) {
            let _ = writeln!(text, "\n{engine}, {connections} connections, MB/s by threads:");
        }
        let Some(rate) = row.median(Metric::Transfer) else { continue };
        let len = rate / most * BAR as f64;
        let bar: String = (0..BAR).map_while(|at| (at as f64 + 0.5 <= len).then_some('#')).collect();
        let _ = writeln!(text, "{threads:>2} {:<13} {bar} {}", model.name(), number(rate));
    }
    text
}

fn checks(rows: &[Row<Bulk>], cpus: usize) -> Vec<Check> {
    let mut checks = Vec::new();
    for [shared, per_core] in rows.as_chunks().0 {
        let Bulk { topology: Topology { engine, threads, .. }, connections, .. } = per_core.subject;
        // With more threads than CPUs, both models only take turns.
        if threads > cpus {
            continue;
        }
        let name = format!("{engine}, {connections} connections, threads: {threads}; per core over shared");
        let ratio = (Metric::RatioToSharedLoop, per_core.over(shared, Metric::Transfer));
        let least = if per_core.is_single(cpus) { ALIKE } else { 1.0 };
        checks.extend(Check::ratio(name, per_core.subject.case(), ratio, Target::AtLeast(least)));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::WIDTH;

    #[test]
    fn rows_come_in_pairs_and_find_published_figures() {
        let mut rows = rows(Effort::Thorough);
        let engines = engines(Effort::Thorough).len();
        assert_eq!(rows.len(), 2 * CONNECTIONS.len() * THREADS.len() * engines);
        let model = |row: &Row<Bulk>| row.subject.topology.model;
        for [shared, per_core] in rows.as_chunks().0 {
            assert_eq!((model(shared), model(per_core)), (Model::SharedLoop, Model::LoopPerCore));
            assert_eq!(shared.subject.connections, per_core.subject.connections);
        }
        assert!(rows.iter().filter(|row| model(row) == Model::SharedLoop).all(|row| row.published().is_some()));
        let is_most = |row: &&Row<Bulk>| model(row) == Model::LoopPerCore && row.subject.connections == MOST;
        assert_eq!(rows.iter().find(is_most).unwrap().published(), Some(493.772));
        for row in &mut rows {
            let threads = row.subject.topology.threads as f64;
            let rate = if model(row) == Model::SharedLoop { 1000.0 } else { 1000.0 * threads };
            row.samples.insert(Metric::Transfer, vec![rate; 3]);
            row.samples.insert(Metric::ServerCpuPerMsg, vec![100.0; 3]);
        }
        let text = chart(&rows);
        assert!(text.lines().any(|line| line == format!(" 8 loop-per-core {} 8,000", "#".repeat(BAR))), "{text}");
        assert!(text.lines().any(|line| line == " 8 shared-loop   ##### 1,000"), "{text}");
        let mut outcome = Outcome::of("scaling");
        check::report(&mut outcome, checks(&rows, 2));
        let single = outcome.text.lines().filter(|line| line.contains(" 1 connections") && line.contains(">= 0.95"));
        assert_eq!(single.count(), 2 * engines, "{}", outcome.text);
        assert!(outcome.text.contains("fused, 4 connections, threads: 2") && outcome.text.contains(">= 1.00"));
        let text = table(&rows, 2);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH) && !text.contains('…'), "{text}");
        let line = text.lines().find(|line| line.split_whitespace().take(3).eq(["fused", "20", "1"])).unwrap();
        // Our rates over the published ones; that of a loop per core is 493.772.
        let is_shared = |row: &&Row<Bulk>| row.subject.connections == MOST;
        let shared = rows.iter().find(is_shared).and_then(|row| row.over_published()).unwrap();
        let expected = [number(shared), number(1000.0 / 493.772)];
        assert!(line.split_whitespace().any(|cell| cell == expected[0]) && line.contains(&expected[1]), "{line}");
    }
}
