use super::check::{self, Check};
use super::{ENGINES, Lab, Outcome, Pace, Suite};
use crate::records::Work;
use crate::rounds::{Samples, interleave};
use crate::stats::{Ratio, Summary};
use crate::table::{Table, bytes, number, optional};
use crate::{Case, Error, Metric, Target};
use std::time::Duration;

/// From where calls cost most to the largest frame that fits one record, and to where it just does not: the header takes
/// a second record then.
const SIZES: [usize; 5] = [64, 1024, 4096, FULL, 16_384];

/// Payload of a frame that fits one record with its header, masked or not.
const FULL: usize = 16_384 - 8;

/// What the rounds may take.
const BUDGET: Duration = Duration::from_secs(60);

/// One way to treat messages of one size.
struct RecordCase {
    /// An engine, or none for the AEAD alone.
    engine: Option<&'static str>,
    size: usize,
    work: Option<Work>,
    samples: Samples,
}

impl RecordCase {
    fn case(&self) -> Case {
        let strategy = match self.engine {
            None => "aead",
            Some("rustls") => "unbuffered",
            Some(engine) => engine,
        };
        Case {
            tls: self.engine.map(str::to_owned),
            size: Some(self.size as u64),
            strategy: Some(strategy.to_owned()),
            ..Case::default()
        }
    }

    fn runs(&self) -> &[f64] {
        self.samples.get(&Metric::CpuPerMsg).map_or(&[], Vec::as_slice)
    }

    fn over(&self, other: &Self) -> Option<Ratio> {
        Ratio::paired(self.runs(), other.runs())
    }
}

pub(super) fn run(lab: &mut Lab<'_>) -> Result<Outcome, Error> {
    let (least, plan) = match lab.pace {
        Pace::Thorough => (Duration::from_millis(150), lab.plan(BUDGET)),
        Pace::Quick => (Duration::from_millis(40), lab.plan(BUDGET)),
        Pace::Glance => (Duration::from_millis(1), lab.plan(BUDGET)),
    };
    // Behind another library's handshake, records are those of `fused`.
    let engines = ENGINES.iter().copied().filter(|engine| !engine.contains('+'));
    let engines = [None].into_iter().chain(engines.map(Some));
    let mut cases: Vec<RecordCase> = SIZES
        .into_iter()
        .flat_map(|size| {
            let case = move |engine| RecordCase { engine, size, work: None, samples: Samples::new() };
            engines.clone().map(case)
        })
        .collect();
    let total = cases.len();
    let progress = &mut lab.progress;
    let samples = interleave(
        &mut cases,
        &plan,
        |step| progress(step.done as f64 / step.total as f64, &format!("case {} of {total}", step.case + 1)),
        |case, _| {
            let work = match &mut case.work {
                Some(work) => work,
                none => none.insert(match case.engine {
                    Some(engine) => Work::echo(engine, case.size)?,
                    None => Work::aead(case.size)?,
                }),
            };
            Ok(vec![(Metric::CpuPerMsg, work.measure(least)?)])
        },
    )?;
    for (case, samples) in cases.iter_mut().zip(samples) {
        case.samples = samples;
    }
    let mut outcome = Outcome { text: table(&cases), ..Outcome::default() };
    add_lines(&mut outcome, &cases);
    check::report(&mut outcome, Suite::Records, checks(&cases));
    Ok(outcome)
}

/// The case of another engine, or of none, with messages of the same size.
fn beside<'a>(cases: &'a [RecordCase], size: usize, engine: Option<&str>) -> Option<&'a RecordCase> {
    cases.iter().find(|case| case.size == size && case.engine == engine)
}

fn size_name(size: usize) -> String {
    if size == FULL { "1 record".to_owned() } else { bytes(size as u64) }
}

fn add_lines(outcome: &mut Outcome, cases: &[RecordCase]) {
    for case in cases {
        let facts = case.case();
        outcome.add_samples(Suite::Records, &facts, &case.samples);
        let ratio = case.engine.and_then(|_| case.over(beside(cases, case.size, None)?));
        let line =
            ratio.and_then(|ratio| crate::Line::new(Suite::Records.name(), &facts, Metric::RatioToAead, &ratio.runs));
        outcome.lines.extend(line);
    }
}

fn table(cases: &[RecordCase]) -> String {
    let mut table = Table::new(&["<size", "<", "ns/msg", "± %", "MB/s", "x aead", "95 %"]);
    for case in cases {
        let summary = Summary::of(case.runs());
        let over = case.engine.and_then(|_| case.over(beside(cases, case.size, None)?)).map(|ratio| ratio.summary);
        table.row([
            size_name(case.size),
            case.engine.unwrap_or("aead").to_owned(),
            optional(summary.map(|summary| summary.median * 1e3)),
            optional(summary.map(|summary| summary.spread() * 100.0)),
            optional(summary.map(|summary| case.size as f64 / summary.median)),
            optional(over.map(|over| over.median)),
            over.map_or_else(String::new, |over| format!("{:.2}-{:.2}", over.interval.low, over.interval.high)),
        ]);
    }
    format!(
        "Records: one message echoed in memory on one thread, TLS 1.3 with AES-128-GCM. Of an engine: the\n\
         client's record opened, its masked frame parsed and unmasked, the answer framed and sealed; no\n\
         socket, loop or handler. aead: AWS-LC alone, one open and one seal of as many bytes, in place.\n\
         ns/msg: CPU time. 1 record: {FULL} bytes, which fill one with their frame's header; 16 KiB need a\n\
         second one.\n\n{table}"
    )
}

fn checks(cases: &[RecordCase]) -> Vec<Check> {
    let small = SIZES[0];
    let mut checks = Vec::new();
    let Some(ours) = beside(cases, small, Some(ENGINES[0])) else { return checks };
    let us = (Metric::CpuPerMsg, ours.runs());
    let name = |case: &RecordCase| format!("{}: {}", size_name(case.size), case.engine.unwrap_or("aead"));
    checks.push(Check::of(format!("{}, us", name(ours)), ours.case(), us, Target::AtMost(0.250)));
    if let Some(theirs) = beside(cases, small, Some(ENGINES[1])) {
        let ratio = (Metric::RatioToEngine, ours.over(theirs));
        let what = format!("{} over {}", name(ours), ENGINES[1]);
        checks.extend(Check::ratio(what, ours.case(), ratio, Target::AtMost(0.5)));
    }
    for large in [FULL, 16_384] {
        let (Some(ours), Some(aead)) = (beside(cases, large, Some(ENGINES[0])), beside(cases, large, None)) else {
            continue;
        };
        // The rate of the one over the rate of the other is the time of the other over that of the one.
        let ratio = (Metric::RatioToAead, ours.over(aead));
        let what = format!("{} over aead, time ({} of its rate)", name(ours), number(0.93));
        checks.extend(Check::ratio(what, ours.case(), ratio, Target::AtMost(1.0 / 0.93)));
    }
    checks
}
