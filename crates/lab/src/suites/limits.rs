use super::check::{self, Check};
use super::echo_case::{self, EchoCase, Shape, add_lines, cheapest, limit_of, plain_of};
use super::server::Kind;
use super::{ENGINES, Lab, Outcome, Pace, Suite};
use crate::stats::Ratio;
use crate::table::{Table, number, optional};
use crate::{Error, Metric, Target};
use std::time::Duration;

/// From where the kernel costs most to where the bytes do; 64 B last, with many in flight.
const SHAPES: [Shape; 6] = [
    Shape::of(64),
    Shape::of(1024),
    Shape::of(4096),
    Shape::of(16_384),
    Shape::of(65_536),
    Shape { pipeline: 16, ..Shape::of(64) },
];

/// Sizes whose AEAD calls are measured too.
const WITH_AEAD: [usize; 2] = [4096, 65_536];

/// What the rounds may take.
const BUDGET: Duration = Duration::from_secs(300);

pub(super) fn run(lab: &mut Lab<'_>) -> Result<Outcome, Error> {
    let kinds = echo_case::kinds(&lab.drivers);
    let servers = lab.servers(&kinds)?;
    let mut cases = cases(&kinds, lab.pace);
    echo_case::measure(lab, &servers, &mut cases, BUDGET, (0.0, 1.0))?;
    let mut outcome = Outcome { text: table(&cases), ..Outcome::default() };
    add_lines(&mut outcome, Suite::Limits, &cases);
    check::report(&mut outcome, Suite::Limits, checks(&cases));
    outcome.warnings.extend(undecided(&cases));
    Ok(outcome)
}

/// Quick runs leave out the sizes that no target is for.
pub(super) fn cases(kinds: &[Kind], pace: Pace) -> Vec<EchoCase> {
    let is_judged = |shape: &Shape| !matches!(shape.size, 1024 | 16_384);
    let shapes: Vec<Shape> = SHAPES.into_iter().filter(|shape| pace == Pace::Thorough || is_judged(shape)).collect();
    let mut cases = echo_case::cases(&shapes, kinds);
    cases.extend(WITH_AEAD.map(|size| EchoCase::new(Kind::Aead, Shape::of(size))));
    cases.sort_by_key(|case| shapes.iter().position(|shape| *shape == case.shape));
    cases
}

pub(super) fn table(cases: &[EchoCase]) -> String {
    let mut table = Table::new(&["<size", "<", "<driver", "us/msg", "± %", "x tcp", "95 %", "x ws", "95 %", "p99 us"]);
    for case in cases {
        let cpu = case.cpu().and_then(crate::stats::Summary::of);
        let ratios = [limit_of(cases, case), plain_of(cases, case)].map(|other| case.cpu_over(other?));
        let [(limit, limit_interval), (plain, plain_interval)] = ratios.map(cells);
        table.row([
            case.shape.name(),
            case.kind.name(),
            case.kind.driver_name().to_owned(),
            optional(cpu.map(|summary| summary.median)),
            optional(cpu.map(|summary| summary.spread() * 100.0)),
            limit,
            limit_interval,
            plain,
            plain_interval,
            optional(case.median(Metric::LatencyP99)),
        ]);
    }
    format!(
        "Limits: {} connections, one message in flight on each or as said; server CPU per message.\n\
         x tcp: over the cheapest bare TCP echo. x ws: over plain WebSocket on the same driver.\n\
         95 %: confidence interval of the ratio. aead: AES-128-GCM alone, one seal and one open for every\n\
         16 KiB, in memory.\n\n{table}",
        SHAPES[0].connections
    )
}

fn cells(ratio: Option<Ratio>) -> (String, String) {
    ratio.map_or_else(
        || ("-".to_owned(), String::new()),
        |ratio| {
            let summary = ratio.summary;
            (number(summary.median), format!("{:.2}-{:.2}", summary.interval.low, summary.interval.high))
        },
    )
}

/// What wss by the default engine, on its better driver, is held to.
pub(super) fn checks(cases: &[EchoCase]) -> Vec<Check> {
    let best = |shape| cheapest(cases, shape, |kind| kind.is_wss_by(ENGINES[0]));
    let aead = |shape| cheapest(cases, shape, |kind| kind == Kind::Aead);
    let (small, pipelined) = (SHAPES[0], SHAPES[5]);
    let mut checks = Vec::new();
    let mut ratio = |case: &EchoCase, metric, (others, name): (&[&EchoCase], &str), most| {
        let what = format!("{}: {} over {name}", case.shape.name(), case.kind.full_name());
        checks.extend(Check::ratio(what, case.case(), (metric, over_sum(case, others)), Target::AtMost(most)));
    };
    if let Some(case) = best(small) {
        if let Some(limit) = limit_of(cases, case) {
            ratio(case, Metric::RatioToLimit, (&[limit], &limit.kind.full_name()), 1.13);
        }
        if let Some(plain) = plain_of(cases, case) {
            ratio(case, Metric::RatioToPlain, (&[plain], "ws"), 1.07);
        }
    }
    if let (Some(case), Some(aead)) = (best(SHAPES[2]), aead(SHAPES[2]))
        && let Some(plain) = plain_of(cases, case)
    {
        ratio(case, Metric::RatioToAead, (&[plain, aead], "ws + aead"), 1.08);
    }
    if let (Some(case), Some(aead)) = (best(SHAPES[4]), aead(SHAPES[4]))
        && let Some(limit) = limit_of(cases, case)
    {
        ratio(case, Metric::RatioToAead, (&[limit, aead], &format!("{} + aead", limit.kind.full_name())), 1.12);
    }
    if let Some(case) = best(pipelined)
        && let Some(runs) = case.cpu()
    {
        let name = format!("{}: {}", case.shape.name(), case.kind.full_name());
        let us = Check::of(format!("{name}, us"), case.case(), (Metric::ServerCpuPerMsg, runs), Target::AtMost(0.40));
        checks.push(us);
        if let Some(limit) = cheapest(cases, small, |kind| matches!(kind, Kind::Tcp(_))) {
            let what = format!("{name} over {}, x1", limit.kind.full_name());
            let ratio = (Metric::RatioToLimit, case.cpu_over(limit));
            checks.extend(Check::ratio(what, case.case(), ratio, Target::AtMost(0.11)));
        }
    }
    checks
}

/// A case over the sum of others, round by round.
fn over_sum(case: &EchoCase, others: &[&EchoCase]) -> Option<Ratio> {
    let mut sum = vec![0.0; case.cpu()?.len()];
    for other in others {
        for (sum, cpu) in sum.iter_mut().zip(other.cpu()?) {
            *sum += cpu;
        }
    }
    Ratio::paired(case.cpu()?, &sum)
}

/// Pairs of engines that cannot be told apart on the same driver.
fn undecided(cases: &[EchoCase]) -> Vec<String> {
    let mut pairs = Vec::new();
    for case in cases.iter().filter(|case| case.kind.is_wss_by(ENGINES[0])) {
        let others = cases.iter().filter(|other| {
            matches!(other.kind, Kind::Wss(engine, ..) if engine != ENGINES[0])
                && other.shape == case.shape
                && other.kind.driver() == case.kind.driver()
        });
        let alike = others.filter(|other| other.cpu_over(case).is_some_and(|ratio| ratio.is_undecided()));
        pairs.extend(alike.map(|other| (case, other)));
    }
    let names: Vec<String> =
        pairs.iter().map(|(case, other)| format!("{} at {}", other.kind.full_name(), case.shape.name())).collect();
    let text = format!("cannot be told apart from {} on this machine: {}", ENGINES[0], names.join("; "));
    if names.is_empty() { Vec::new() } else { vec![text] }
}
