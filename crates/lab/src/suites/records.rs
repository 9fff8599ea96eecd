use super::{Check, ENGINES, Lab, Outcome, Row, Subject, check, row};
use crate::records::Work;
use crate::rounds::Runs;
use crate::stats::Ratio;
use crate::table::{Table, bytes, number, optional};
use crate::{Case, Error, Metric, Target};
use std::time::Duration;
use tautline::layers::tls_records::Suite;
use tautline::layers::tls_records::aead::{self, Provider};

/// Sizes from where calls cost most to the largest frame that fits one record, then one that does not: its header makes
/// it need a second record.
const SIZES: [usize; 5] = [64, 1024, 4096, FULL, 16_384];

/// Payload of a frame that fits one record with its header, masked or not.
const FULL: usize = 16_384 - 8;

/// Time for the rounds.
const BUDGET: Duration = Duration::from_secs(60);

/// Maker of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// An engine.
    Engine(&'static str),
    /// A provider's AEAD alone.
    Aead(Provider),
}

/// Messages of one size by one engine or AEAD.
struct RecordCase {
    by: By,
    size: usize,
    work: Option<Work>,
}

impl RecordCase {
    fn maker(&self) -> String {
        match self.by {
            By::Engine(engine) => engine.to_owned(),
            By::Aead(provider) => format!("aead {provider}"),
        }
    }

    fn size_name(&self) -> String {
        if self.size == FULL { "1 record".to_owned() } else { bytes(self.size as u64) }
    }
}

impl Subject for RecordCase {
    fn name(&self) -> String {
        format!("{}: {}", self.size_name(), self.maker())
    }

    fn case(&self) -> Case {
        let case = Case::default().size(self.size);
        match self.by {
            By::Engine("rustls") => case.tls("rustls").strategy("unbuffered"),
            By::Engine("fused") => case.tls("fused").strategy("fused").aead(aead::names(Suite::Aes128Gcm)),
            By::Engine(engine) => case.tls(engine).strategy(engine),
            By::Aead(provider) => case.strategy("aead").aead(provider.name()),
        }
    }
}

pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let least = Duration::from_millis(lab.effort.pick(150, 40, 1));
    // Behind another library's handshake, records are those of `fused`.
    let engines = ENGINES.iter().copied().filter(|engine| !engine.contains('+'));
    let makers: Vec<_> = Provider::ALL.map(By::Aead).into_iter().chain(engines.map(By::Engine)).collect();
    let row = |by, size| Row::new(RecordCase { by, size, work: None });
    let mut rows: Vec<_> = SIZES.into_iter().flat_map(|size| makers.iter().map(move |&by| row(by, size))).collect();
    row::measure(lab, &mut rows, &lab.plan(BUDGET), 0.0..1.0, |_, case, _| {
        let work = match &mut case.work {
            Some(work) => work,
            none => none.insert(match case.by {
                By::Engine(engine) => Work::echo(engine, case.size)?,
                By::Aead(provider) => Work::aead(provider, case.size)?,
            }),
        };
        Ok(vec![(Metric::CpuPerMsg, work.measure(least)?)])
    })?;
    outcome.text = table(&rows);
    for row in &rows {
        outcome.add_row(row);
        if let Some(ratio) = over_aead(&rows, row) {
            outcome.add(&row.subject.case(), Metric::RatioToAead, &ratio.runs);
        }
    }
    check::report(outcome, checks(&rows));
    Ok(())
}

/// The row of an engine for messages of one size.
fn find<'a>(rows: &'a [Row<RecordCase>], size: usize, engine: &str) -> Option<&'a Row<RecordCase>> {
    rows.iter().find(|row| row.subject.size == size && matches!(row.subject.by, By::Engine(name) if name == engine))
}

/// An engine's time over that of the fastest AEAD alone.
fn over_aead(rows: &[Row<RecordCase>], row: &Row<RecordCase>) -> Option<Ratio> {
    if matches!(row.subject.by, By::Aead(_)) {
        return None;
    }
    let alone =
        |other: &&Row<RecordCase>| other.subject.size == row.subject.size && matches!(other.subject.by, By::Aead(_));
    row.over(row::least(rows.iter().filter(alone), Metric::CpuPerMsg)?, Metric::CpuPerMsg)
}

fn table(rows: &[Row<RecordCase>]) -> String {
    let table = Table::of(rows.iter().map(|row| {
        let us = row.median(Metric::CpuPerMsg);
        let over = over_aead(rows, row).map(|ratio| ratio.summary);
        [
            ("<size", row.subject.size_name()),
            ("<", row.subject.maker()),
            ("ns/msg", optional(us.map(|us| us * 1e3))),
            ("± %", optional(row.spread_percent(Metric::CpuPerMsg))),
            ("MB/s", optional(us.map(|us| row.subject.size as f64 / us))),
            ("x aead", optional(over.map(|over| over.median))),
            ("95 %", over.map_or_else(String::new, |over| over.interval.to_string())),
        ]
    }));
    format!(
        "Records: one message echoed in memory on one thread, TLS 1.3 with AES-128-GCM. Of an engine: the\n\
         client's record opened, its masked frame parsed and unmasked, the answer framed and sealed; no\n\
         socket, loop or handler. aead: a provider alone, one open and one seal of as many bytes, in place.\n\
         x aead: over the fastest one of that size.\n\
         ns/msg: CPU time. 1 record: {FULL} bytes, which fill one with their frame's header; 16 KiB need a\n\
         second one.\n\n{table}"
    )
}

fn checks(rows: &[Row<RecordCase>]) -> Vec<Check> {
    let small = SIZES[0];
    let mut checks = Vec::new();
    let Some(ours) = find(rows, small, ENGINES[0]) else { return checks };
    let us = (Metric::CpuPerMsg, ours.runs(Metric::CpuPerMsg));
    let name = format!("{}, us", ours.subject.name());
    checks.push(Check::of(name, ours.subject.case(), us, Target::AtMost(0.250)));
    if let Some(theirs) = find(rows, small, ENGINES[1]) {
        let ratio = (Metric::RatioToEngine, ours.over(theirs, Metric::CpuPerMsg));
        let name = format!("{} over {}", ours.subject.name(), ENGINES[1]);
        checks.extend(Check::ratio(name, ours.subject.case(), ratio, Target::AtMost(0.5)));
    }
    for large in [FULL, 16_384] {
        let Some(ours) = find(rows, large, ENGINES[0]) else { continue };
        // The ratio of rates is the inverse of the ratio of times.
        let ratio = (Metric::RatioToAead, over_aead(rows, ours));
        let name = format!("{} over aead, time ({} of its rate)", ours.subject.name(), number(0.93));
        checks.extend(Check::ratio(name, ours.subject.case(), ratio, Target::AtMost(1.0 / 0.93)));
    }
    checks
}
