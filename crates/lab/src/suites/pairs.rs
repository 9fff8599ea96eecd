//! Loops whose load runs on the same CPU: the gain of a second CPU.
//!
//! Elsewhere the load has a CPU to itself. With two CPUs, a second loop would run where the load does, so no ratio of
//! rates would show its gain. Here each loop is paired with a load on the same CPU. One pair fills one CPU and two pairs
//! fill two, so the sum of their rates should double.

use super::Lab;
use super::bulk::{Bulk, SIZE};
use super::{Check, Kind, Metrics, Row, Servers, Subject, Topology, row};
use crate::cpu::Pinned;
use crate::load::Sink;
use crate::rounds::Runs;
use crate::table::{Table, bytes, optional};
use crate::{Case, Error, Measured, Metric, Target};
use std::ops::Range;
use std::time::Duration;
use tautline_replicas::models::Model;

/// Time for the rounds.
const BUDGET: Duration = Duration::from_secs(60);

/// Rounds for each round of other rows, because a ratio is judged.
const ROUNDS: usize = 3;

/// Connections of each pair.
const EACH: usize = 4;

/// As many pairs at a time as the server has threads.
pub(super) struct Pairs(Topology);

impl Pairs {
    /// The load of one pair.
    const fn bulk(&self) -> Bulk {
        Bulk { topology: self.0, connections: EACH, size: SIZE, interval: None }
    }
}

impl Subject for Pairs {
    fn name(&self) -> String {
        format!("{}, in pairs", Kind::Model(self.0).name())
    }

    fn case(&self) -> Case {
        self.bulk().case().connections(EACH * self.0.threads).setup("pairs")
    }
}

/// One pair and two of each model, for each engine.
fn rows(engines: &[&'static str]) -> Vec<Row<Pairs>> {
    let row =
        |model, engine, threads| Row::new(Pairs(Topology { is_source: true, ..Topology::new(model, engine, threads) }));
    let models = [Model::SharedLoop, Model::LoopPerCore];
    let each = |&engine: &&'static str| models.map(|model| [1, 2].map(|threads| row(model, engine, threads)));
    engines.iter().flat_map(each).flatten().collect()
}

/// Measures pairs on the two CPUs of the suites.
pub(super) fn measure(
    lab: &mut Lab<'_>,
    engines: &[&'static str],
    share: Range<f64>,
) -> Result<Vec<Row<Pairs>>, Error> {
    let mut rows = rows(engines);
    let servers = Servers::start(lab, rows.iter().map(|row| Kind::Model(row.subject.0)))?;
    row::measure(lab, &mut rows, &lab.plan_times(ROUNDS, BUDGET), share, |lab, pairs, _| {
        let process = servers.of(Kind::Model(pairs.0))?;
        let addresses = process.addresses.iter().cycle().take(pairs.0.threads);
        let sinks = addresses.map(|&address| pairs.bulk().sink(lab, process, &[address]));
        together(sinks.collect::<Result<_, _>>()?, &[lab.placement.server, lab.placement.load])
    })?;
    Ok(rows)
}

/// Runs loads at the same time, each on one of the CPUs; returns the sum of their rates.
fn together(sinks: Vec<Sink>, cpus: &[usize]) -> Result<Metrics, Error> {
    let running: Vec<_> = sinks
        .into_iter()
        .zip(cpus.to_vec())
        .map(|(sink, cpu)| {
            std::thread::spawn(move || {
                let _pinned = Pinned::to(cpu)?;
                sink.run()
            })
        })
        .collect();
    // Waits for all, even if one has failed.
    let ended: Vec<_> = running.into_iter().map(std::thread::JoinHandle::join).collect();
    let measured = ended
        .into_iter()
        .map(|ended| ended.unwrap_or_else(|_| Err(Error::Failed("a thread of the load panicked".to_owned()))))
        .collect::<Result<Vec<Measured>, Error>>()?;
    let rate: f64 = measured.iter().map(Measured::rate).sum();
    let answers: u64 = measured.iter().map(|measured| measured.count).sum();
    let mut metrics = vec![(Metric::Throughput, rate), (Metric::Transfer, rate * SIZE as f64 / 1e6)];
    // All measure at the same time, so the CPU time of the server during one is the time for the answers of all.
    if let Some(cpu) = measured.first().and_then(|first| first.server_cpu).filter(|_| answers > 0) {
        metrics.push((Metric::ServerCpuPerMsg, cpu.as_secs_f64() * 1e6 / answers as f64));
    }
    Ok(metrics)
}

pub(super) fn table(rows: &[Row<Pairs>]) -> String {
    let table = Table::of(rows.as_chunks().0.iter().map(|[one, two]| {
        [
            ("<engine", one.subject.0.engine.to_owned()),
            ("<model", one.subject.0.model.name().to_owned()),
            ("one MB/s", optional(one.median(Metric::Transfer))),
            ("two MB/s", optional(two.median(Metric::Transfer))),
            ("x", optional(two.times(one, Metric::Transfer))),
            ("us one", optional(one.median(Metric::ServerCpuPerMsg))),
            ("us two", optional(two.median(Metric::ServerCpuPerMsg))),
        ]
    }));
    table.below(&format!(
        "\nIn pairs: a thread of the server and its load on one CPU, then two such pairs on two CPUs; {EACH}\n\
         connections each, answers of {}. us: CPU of the server for each answer.",
        bytes(SIZE as u64)
    ))
}

pub(super) fn checks(rows: &[Row<Pairs>]) -> Vec<Check> {
    let mut checks = Vec::new();
    for [one_shared, two_shared, one, two] in rows.as_chunks().0 {
        let engine = one.subject.0.engine;
        let scaled = (Metric::RatioToOneLoop, two.over(one, Metric::Transfer));
        let name = format!("{engine}, in pairs: loop per core, two over one");
        checks.extend(Check::ratio(name, two.subject.case(), scaled, Target::AtLeast(1.8)));
        for (ours, shared, count) in [(one, one_shared, "one"), (two, two_shared, "two")] {
            let name = format!("{engine}, in pairs: {count}; per core over shared");
            let ratio = (Metric::RatioToSharedLoop, ours.over(shared, Metric::Transfer));
            checks.extend(Check::ratio(name, ours.subject.case(), ratio, Target::AtLeast(1.0)));
        }
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::super::check;
    use super::*;

    #[test]
    fn two_pairs_are_judged_by_one_and_by_the_shared_loop() {
        let mut rows = rows(&["fused", "rustls"]);
        assert_eq!(rows.len(), 8);
        for (row, rate) in rows.iter_mut().zip([1000.0, 1100.0, 1000.0, 1900.0].repeat(2)) {
            row.samples.insert(Metric::Transfer, vec![rate; 3]);
        }
        let mut outcome = Outcome::of("scaling");
        check::report(&mut outcome, checks(&rows));
        assert_eq!(outcome.lines.len(), 6);
        let scaled: Vec<_> = outcome.lines.iter().filter(|line| line.metric == Metric::RatioToOneLoop).collect();
        assert!(scaled.iter().all(|line| line.value == 1.9 && line.case.threads == Some(2)));
        assert!(table(&rows).contains("1,900"), "{}", table(&rows));
        assert!(table(&[]).is_empty());
    }
}
