use super::{Check, ENGINES, Effort, Lab, Outcome, Row, Subject, check, row};
use crate::records::Work;
use crate::rounds::Runs;
use crate::stats::Ratio;
use crate::table::{Table, bytes, number, optional};
use crate::{Case, Error, Metric, Target};
use std::time::Duration;

/// Sizes from where calls cost most to the largest frame that fits one record, then one that does not: its header makes
/// it need a second record.
const SIZES: [usize; 5] = [64, 1024, 4096, FULL, 16_384];

/// Payload of a frame that fits one record with its header, masked or not.
const FULL: usize = 16_384 - 8;

/// Time for the rounds.
const BUDGET: Duration = Duration::from_secs(60);

/// Messages of one size by one engine.
struct RecordCase {
    /// The engine; `None` for the AEAD alone.
    engine: Option<&'static str>,
    size: usize,
    work: Option<Work>,
}

impl RecordCase {
    fn engine_name(&self) -> &'static str {
        self.engine.unwrap_or("aead")
    }

    fn size_name(&self) -> String {
        if self.size == FULL { "1 record".to_owned() } else { bytes(self.size as u64) }
    }
}

impl Subject for RecordCase {
    fn name(&self) -> String {
        format!("{}: {}", self.size_name(), self.engine_name())
    }

    fn case(&self) -> Case {
        let strategy = if self.engine == Some("rustls") { "unbuffered" } else { self.engine_name() };
        Case::default().tls(self.engine).size(self.size).strategy(strategy)
    }
}

pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let least = Duration::from_millis(match lab.effort {
        Effort::Thorough => 150,
        Effort::Quick => 40,
        Effort::Smoke => 1,
    });
    // Behind another library's handshake, records are those of `fused`.
    let engines = ENGINES.iter().copied().filter(|engine| !engine.contains('+'));
    let engines: Vec<_> = [None].into_iter().chain(engines.map(Some)).collect();
    let row = |engine, size| Row::new(RecordCase { engine, size, work: None });
    let mut rows: Vec<_> =
        SIZES.into_iter().flat_map(|size| engines.iter().map(move |&engine| row(engine, size))).collect();
    row::measure(lab, &mut rows, &lab.plan(BUDGET), 0.0..1.0, |_, case, _| {
        let work = match &mut case.work {
            Some(work) => work,
            none => none.insert(match case.engine {
                Some(engine) => Work::echo(engine, case.size)?,
                None => Work::aead(case.size)?,
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

/// The row of an engine, or of the AEAD alone, for messages of one size.
fn find<'a>(rows: &'a [Row<RecordCase>], size: usize, engine: Option<&str>) -> Option<&'a Row<RecordCase>> {
    rows.iter().find(|row| row.subject.size == size && row.subject.engine == engine)
}

/// An engine's time over that of the AEAD alone.
fn over_aead(rows: &[Row<RecordCase>], row: &Row<RecordCase>) -> Option<Ratio> {
    row.subject.engine.and_then(|_| row.over(find(rows, row.subject.size, None)?, Metric::CpuPerMsg))
}

fn table(rows: &[Row<RecordCase>]) -> String {
    let table = Table::of(rows.iter().map(|row| {
        let us = row.median(Metric::CpuPerMsg);
        let over = over_aead(rows, row).map(|ratio| ratio.summary);
        [
            ("<size", row.subject.size_name()),
            ("<", row.subject.engine_name().to_owned()),
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
         socket, loop or handler. aead: AWS-LC alone, one open and one seal of as many bytes, in place.\n\
         ns/msg: CPU time. 1 record: {FULL} bytes, which fill one with their frame's header; 16 KiB need a\n\
         second one.\n\n{table}"
    )
}

fn checks(rows: &[Row<RecordCase>]) -> Vec<Check> {
    let small = SIZES[0];
    let mut checks = Vec::new();
    let Some(ours) = find(rows, small, Some(ENGINES[0])) else { return checks };
    let us = (Metric::CpuPerMsg, ours.runs(Metric::CpuPerMsg));
    let name = format!("{}, us", ours.subject.name());
    checks.push(Check::of(name, ours.subject.case(), us, Target::AtMost(0.250)));
    if let Some(theirs) = find(rows, small, Some(ENGINES[1])) {
        let ratio = (Metric::RatioToEngine, ours.over(theirs, Metric::CpuPerMsg));
        let name = format!("{} over {}", ours.subject.name(), ENGINES[1]);
        checks.extend(Check::ratio(name, ours.subject.case(), ratio, Target::AtMost(0.5)));
    }
    for large in [FULL, 16_384] {
        let Some(ours) = find(rows, large, Some(ENGINES[0])) else { continue };
        // The ratio of rates is the inverse of the ratio of times.
        let ratio = (Metric::RatioToAead, over_aead(rows, ours));
        let name = format!("{} over aead, time ({} of its rate)", ours.subject.name(), number(0.93));
        checks.extend(Check::ratio(name, ours.subject.case(), ratio, Target::AtMost(1.0 / 0.93)));
    }
    checks
}
