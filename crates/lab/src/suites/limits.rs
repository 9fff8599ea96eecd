use super::echo_case::{self, EchoCase, EchoRow, SHAPES, Shape, add_lines, cheapest, limit_of, plain_of};
use super::{Check, ENGINES, Effort, Kind, Lab, Outcome, Servers, Subject, check};
use crate::rounds::Runs;
use crate::stats::{Ratio, Summary};
use crate::table::{Table, number, optional};
use crate::{Error, Metric, Target};
use std::time::Duration;
use tautline::layers::tls_records::aead::Provider;

/// Sizes whose AEAD calls are measured too.
const WITH_AEAD: [usize; 2] = [4096, 65_536];

/// Time for the rounds.
const BUDGET: Duration = Duration::from_secs(300);

pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let kinds = echo_case::kinds(&lab.drivers);
    let mut rows = rows(&kinds, lab.effort);
    let servers = Servers::start(lab, kinds)?;
    echo_case::measure(lab, &servers, &mut rows, BUDGET, 0.0..1.0)?;
    outcome.text = table(&rows);
    add_lines(outcome, &rows);
    check::report(outcome, checks(&rows));
    outcome.warnings.extend(undecided(&rows));
    Ok(())
}

/// All rows.
pub(super) fn rows(kinds: &[Kind], effort: Effort) -> Vec<EchoRow> {
    let shapes = echo_case::shapes(effort);
    let mut rows = echo_case::rows(&shapes, kinds);
    for provider in Provider::ALL {
        rows.extend(WITH_AEAD.map(|size| EchoCase::row(Kind::Aead(provider), Shape::of(size))));
    }
    rows.sort_by_key(|row| shapes.iter().position(|shape| *shape == row.subject.shape));
    rows
}

pub(super) fn table(rows: &[EchoRow]) -> String {
    let table = Table::of(rows.iter().map(|row| {
        let cpu = Summary::of(row.cpu());
        let ratios = [limit_of(rows, row), plain_of(rows, row)].map(|other| row.cpu_over(other?));
        let [(limit, limit_interval), (plain, plain_interval)] = ratios.map(cells);
        [
            ("<size", row.subject.shape.name()),
            ("<", row.subject.kind.name()),
            ("<driver", row.subject.kind.driver_name().to_owned()),
            ("us/msg", optional(cpu.map(|summary| summary.median))),
            ("± %", optional(cpu.map(|summary| summary.spread() * 100.0))),
            ("x tcp", limit),
            ("95 %", limit_interval),
            ("x ws", plain),
            ("95 %", plain_interval),
            ("user", optional(row.median(Metric::ServerUserPerMsg))),
            ("kernel", optional(row.median(Metric::ServerKernelPerMsg))),
        ]
    }));
    format!(
        "Limits: {} connections, one message in flight on each or as said; server CPU per message.\n\
         x tcp: over the cheapest bare TCP echo. x ws: over plain WebSocket on the same driver.\n\
         95 %: confidence interval of the ratio. aead: a provider's AES-128-GCM alone, one seal and one open\n\
         for every 16 KiB, in memory. Targets hold against the fastest. user, kernel: parts of us/msg.\n\n{table}",
        SHAPES[0].connections
    )
}

/// The median of a ratio, and its interval.
fn cells(ratio: Option<Ratio>) -> (String, String) {
    ratio.map_or_else(
        || ("-".to_owned(), String::new()),
        |ratio| (number(ratio.summary.median), ratio.summary.interval.to_string()),
    )
}

/// Targets of wss by the default engine, on its cheapest driver.
pub(super) fn checks(rows: &[EchoRow]) -> Vec<Check> {
    let best = |shape| cheapest(rows, shape, |kind| kind.is_wss_by(ENGINES[0]));
    let aead = |shape| cheapest(rows, shape, |kind| matches!(kind, Kind::Aead(_)));
    let (small, pipelined) = (SHAPES[0], SHAPES[5]);
    let mut checks = Vec::new();
    let name = |row: &EchoRow| format!("{}: {}", row.subject.shape.name(), row.subject.kind.full_name());
    let mut ratio = |row: &EchoRow, metric, (others, under): (&[&EchoRow], &str), most| {
        let name = format!("{} over {under}", name(row));
        checks.extend(Check::ratio(name, row.subject.case(), (metric, over_sum(row, others)), Target::AtMost(most)));
    };
    if let Some(row) = best(small) {
        if let Some(limit) = limit_of(rows, row) {
            ratio(row, Metric::RatioToLimit, (&[limit], &limit.subject.kind.full_name()), 1.13);
        }
        if let Some(plain) = plain_of(rows, row) {
            ratio(row, Metric::RatioToPlain, (&[plain], "ws"), 1.07);
        }
    }
    if let (Some(row), Some(aead)) = (best(SHAPES[2]), aead(SHAPES[2]))
        && let Some(plain) = plain_of(rows, row)
    {
        ratio(row, Metric::RatioToAead, (&[plain, aead], "ws + aead"), 1.08);
    }
    if let (Some(row), Some(aead)) = (best(SHAPES[4]), aead(SHAPES[4]))
        && let Some(limit) = limit_of(rows, row)
    {
        let under = format!("{} + aead", limit.subject.kind.full_name());
        ratio(row, Metric::RatioToAead, (&[limit, aead], &under), 1.12);
    }
    if let Some(row) = best(pipelined) {
        let us = (Metric::ServerCpuPerMsg, row.cpu());
        checks.push(Check::of(format!("{}, us", name(row)), row.subject.case(), us, Target::AtMost(0.40)));
        if let Some(limit) = cheapest(rows, small, |kind| matches!(kind, Kind::Tcp(_))) {
            let name = format!("{} over {}, x1", name(row), limit.subject.kind.full_name());
            let ratio = (Metric::RatioToLimit, row.cpu_over(limit));
            checks.extend(Check::ratio(name, row.subject.case(), ratio, Target::AtMost(0.11)));
        }
    }
    checks
}

/// A row over the sum of others, round by round.
fn over_sum(row: &EchoRow, others: &[&EchoRow]) -> Option<Ratio> {
    let mut sum = vec![0.0; row.cpu().len()];
    for other in others {
        for (sum, cpu) in sum.iter_mut().zip(other.cpu()) {
            *sum += cpu;
        }
    }
    Ratio::paired(row.cpu(), &sum)
}

/// A warning that names the engines that cannot be told apart from the default one on the same driver.
fn undecided(rows: &[EchoRow]) -> Option<String> {
    let mut names = Vec::new();
    for row in rows.iter().filter(|row| row.subject.kind.is_wss_by(ENGINES[0])) {
        let EchoCase { kind, shape, .. } = row.subject;
        let others = rows.iter().filter(|other| {
            matches!(other.subject.kind, Kind::Wss(engine, ..) if engine != ENGINES[0])
                && other.subject.shape == shape
                && other.subject.kind.driver() == kind.driver()
        });
        let alike = others.filter(|other| other.cpu_over(row).is_some_and(|ratio| ratio.is_undecided()));
        names.extend(alike.map(|other| format!("{} at {}", other.subject.kind.full_name(), shape.name())));
    }
    let text = || format!("cannot be told apart from {} on this machine: {}", ENGINES[0], names.join("; "));
    (!names.is_empty()).then(text)
}
