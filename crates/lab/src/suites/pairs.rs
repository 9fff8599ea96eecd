//! Loops whose load runs on their own processor: what a second processor adds.
//!
//! Elsewhere the load has a processor to itself, so where there are two, a second loop runs where the load does, and no
//! ratio of rates says what it added. Here each loop has a load of its own beside it, pinned to the same processor: one such
//! pair uses one processor whole, two use two, and the sum of their rates is to double.

use super::check::Check;
use super::echo_case::{bulk_case, in_case};
use super::scaling::SIZE;
use super::server::{Kind, Way};
use super::{Lab, Outcome, Pace, Suite};
use crate::baselines::Model;
use crate::cpu::Pinned;
use crate::load::Sink;
use crate::rounds::{Plan, Runs, Samples, interleave};
use crate::stats::Ratio;
use crate::table::{Table, bytes, optional};
use crate::{Case, Error, Measured, Metric, Target};
use std::time::Duration;

/// What the rounds may take.
const BUDGET: Duration = Duration::from_secs(60);

/// Rounds of pairs for one of the suite's others: the ratio is what is judged.
const ROUNDS: usize = 3;

/// Connections of each pair.
const EACH: usize = 4;

/// So many pairs at a time.
pub(super) struct Row {
    way: Way,
    samples: Samples,
}

impl Row {
    fn case(&self) -> Case {
        Case { setup: Some("pairs".to_owned()), ..bulk_case(self.way, EACH * self.way.threads, SIZE) }
    }

    fn over(&self, other: &Self) -> Option<Ratio> {
        Ratio::paired(self.samples.runs(Metric::Transfer), other.samples.runs(Metric::Transfer))
    }
}

/// One pair and two of each model, for each engine.
fn rows(engines: &[&'static str]) -> Vec<Row> {
    let row = |model, engine, threads| {
        let way = Way { model, engine, threads, is_source: true, shared_from: None };
        Row { way, samples: Samples::new() }
    };
    let models = [Model::SharedLoop, Model::LoopPerCore];
    let each = |&engine: &&'static str| models.map(|model| [1, 2].map(|threads| row(model, engine, threads)));
    engines.iter().flat_map(each).flatten().collect()
}

/// Measures pairs on the two processors of the suites.
pub(super) fn measure(lab: &mut Lab<'_>, engines: &[&'static str], (from, to): (f64, f64)) -> Result<Vec<Row>, Error> {
    let mut rows = rows(engines);
    let kinds: Vec<Kind> = rows.iter().map(|row| Kind::Model(row.way)).collect();
    let servers = lab.servers(&kinds)?;
    let (plan, span, cpus) = (lab.plan(BUDGET), lab.span(), [lab.placement.server, lab.placement.load]);
    let rounds = if lab.pace == Pace::Glance { plan.rounds } else { ROUNDS * plan.rounds };
    let names: Vec<String> = kinds.iter().map(|kind| format!("{}, in pairs", kind.name())).collect();
    let progress = &mut lab.progress;
    let samples = interleave(
        &mut rows,
        &Plan { rounds, ..plan },
        |step| progress(from + (to - from) * step.done as f64 / step.total as f64, &names[step.case]),
        |row, step| {
            let sink = |number: usize| {
                let server = &servers[step.case];
                Ok(Sink {
                    server: server.server()?,
                    addresses: vec![server.addresses[number % server.addresses.len()]],
                    connections: EACH,
                    size: SIZE,
                    interval: None,
                    warmup: span.warmup,
                    duration: span.duration,
                })
            };
            let sinks = (0..row.way.threads).map(sink).collect::<Result<Vec<_>, Error>>()?;
            together(sinks, &cpus).map_err(|error| in_case(&names[step.case], error))
        },
    )?;
    for (row, samples) in rows.iter_mut().zip(samples) {
        row.samples = samples;
    }
    Ok(rows)
}

/// Runs loads at the same time, each on one of the CPUs; their rates in sum.
fn together(sinks: Vec<Sink>, cpus: &[usize]) -> Result<Vec<(Metric, f64)>, Error> {
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
    // All are waited for, also where one has failed.
    let ended: Vec<_> = running.into_iter().map(std::thread::JoinHandle::join).collect();
    let measured = ended
        .into_iter()
        .map(|ended| ended.unwrap_or_else(|_| Err(Error::Failed("a thread of the load panicked".to_owned()))))
        .collect::<Result<Vec<Measured>, Error>>()?;
    let rate: f64 = measured.iter().map(Measured::rate).sum();
    let answers: u64 = measured.iter().map(|measured| measured.count).sum();
    let mut metrics = vec![(Metric::Throughput, rate), (Metric::Transfer, rate * SIZE as f64 / 1e6)];
    // All measure at the same time, so the server's CPU time while one does is that for the answers of all.
    if let Some(cpu) = measured.first().and_then(|first| first.server_cpu).filter(|_| answers > 0) {
        metrics.push((Metric::ServerCpuPerMsg, cpu.as_secs_f64() * 1e6 / answers as f64));
    }
    Ok(metrics)
}

pub(super) fn add_lines(outcome: &mut Outcome, rows: &[Row]) {
    for row in rows {
        outcome.add_samples(Suite::Scaling, &row.case(), &row.samples);
    }
}

pub(super) fn table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["<engine", "<model", "one MB/s", "two MB/s", "x", "us one", "us two"]);
    for [one, two] in rows.as_chunks().0 {
        table.row([
            one.way.engine.to_owned(),
            one.way.model.name().to_owned(),
            optional(one.samples.median(Metric::Transfer)),
            optional(two.samples.median(Metric::Transfer)),
            optional(two.over(one).map(|ratio| ratio.summary.median)),
            optional(one.samples.median(Metric::ServerCpuPerMsg)),
            optional(two.samples.median(Metric::ServerCpuPerMsg)),
        ]);
    }
    format!(
        "\nIn pairs: a thread of the server and its load on one CPU, then two such pairs on two CPUs; {EACH}\n\
         connections each, answers of {}. us: CPU of the server for each answer.\n\n{table}",
        bytes(SIZE as u64)
    )
}

pub(super) fn checks(rows: &[Row]) -> Vec<Check> {
    let mut checks = Vec::new();
    for [one_shared, two_shared, one, two] in rows.as_chunks().0 {
        let engine = one.way.engine;
        let scaled = (Metric::RatioToOneLoop, two.over(one));
        let what = format!("{engine}, in pairs: loop per core, two over one");
        checks.extend(Check::ratio(what, two.case(), scaled, Target::AtLeast(1.8)));
        for (ours, shared, name) in [(one, one_shared, "one"), (two, two_shared, "two")] {
            let what = format!("{engine}, in pairs: {name}; per core over shared");
            let ratio = (Metric::RatioToSharedLoop, ours.over(shared));
            checks.extend(Check::ratio(what, ours.case(), ratio, Target::AtLeast(1.0)));
        }
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_pairs_are_judged_by_one_and_by_the_shared_loop() {
        let mut rows = rows(&["fused", "rustls"]);
        assert_eq!(rows.len(), 8);
        for (row, rate) in rows.iter_mut().zip([1000.0, 1100.0, 1000.0, 1900.0].repeat(2)) {
            row.samples.insert(Metric::Transfer, vec![rate; 3]);
        }
        let mut outcome = Outcome::default();
        super::super::check::report(&mut outcome, Suite::Scaling, checks(&rows));
        assert_eq!(outcome.lines.len(), 6);
        let scaled: Vec<_> = outcome.lines.iter().filter(|line| line.metric == Metric::RatioToOneLoop).collect();
        assert!(scaled.iter().all(|line| line.value == 1.9 && line.case.threads == Some(2)));
        assert!(table(&rows).contains("1,900"), "{}", table(&rows));
        assert!(table(&[]).is_empty());
    }
}
