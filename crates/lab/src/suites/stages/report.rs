use super::super::{Check, ENGINES, Outcome, Row, Subject, Traffic, check};
use super::case::{Place, StageCase, StageTimes};
use super::cost;
use crate::published;
use crate::stats;
use crate::table::{Table, WIDTH, number, optional};
use crate::{Metric, Target};
use tautline::{Spread, Stage};

/// A statistic of a stage: its metric, its name in the report, and how to read it.
type Statistic = (Metric, &'static str, fn(&Spread) -> f64);

const STATISTICS: [Statistic; 8] = [
    (Metric::LatencyMin, "min", |spread| spread.min),
    (Metric::LatencyMean, "mean", |spread| spread.mean),
    (Metric::LatencyStddev, "stddev", |spread| spread.stddev),
    (Metric::LatencyP50, "median", |spread| spread.p50),
    (Metric::LatencyP90, "p90", |spread| spread.p90),
    (Metric::LatencyP95, "p95", |spread| spread.p95),
    (Metric::LatencyP99, "p99", |spread| spread.p99),
    (Metric::LatencyMax, "max", |spread| spread.max),
];

/// Stages in results.
const REPORTED: [Stage; 8] =
    [Stage::Nic, Stage::Loop, Stage::Read, Stage::Tls, Stage::Parse, Stage::Callback, Stage::App, Stage::Total];

/// Most time of TLS, and of parser and callback together, for messages of our default engine, in us.
const TARGETS: [f64; 2] = [0.5, 0.3];

/// Lower bounds of a message's cost, in us.
pub(super) struct Floor {
    /// A receive that finds nothing.
    pub(super) call: f64,
    /// The AEAD over 200 bytes, once.
    pub(super) aead: f64,
}

pub(super) fn report(
    outcome: &mut Outcome,
    rows: &[Row<StageCase>],
    skipped: &[String],
    costs: &[Row<cost::Probed>],
    floor: &Floor,
    messages: u64,
) {
    let cases: Vec<&StageCase> = rows.iter().map(|row| &row.subject).filter(|case| !case.rounds.is_empty()).collect();
    outcome.text = introduction(&cases, floor, messages) + &overview(&cases).to_string();
    for case in &cases {
        outcome.text += &details(case);
        add_lines(outcome, case);
    }
    outcome.warnings.extend(skipped.iter().map(|why| format!("skipped {why}")));
    outcome.text += &cost::table(costs);
    costs.iter().for_each(|row| outcome.add_row(row));
    check::report(outcome, cases.iter().flat_map(|case| checks(case)).chain(cost::checks(costs)));
}

fn introduction(cases: &[&StageCase], floor: &Floor, messages: u64) -> String {
    let first = cases.iter().find_map(|case| case.rounds.first());
    let clock = first.map_or("", |round| round.clock.as_str());
    format!(
        "Stages: made-up market data (80 % trades of 180-220 B, bursts of 1 to 40, about 6,000 msg/s; the\n\
         same in every run) from a server to one client, which is measured: {messages} messages each round.\n\
         200 B: messages of that size at a steady 10,000 msg/s, each with a record of its own.\n\
         nic: from the kernel's stamp of the last segment to the end of the loop's wait. loop: waiting for\n\
         earlier messages of the same read. read: the receive. tls: opening the record. parse: the frame.\n\
         callback: from there to the handler. app: all but nic. total: all of it; with * from the end of\n\
         the wait, where the driver has no stamp. io_uring receives within the wait, and so has no stage\n\
         of its own for it.\n\
         The time of a message that shares its read, or its record, is its own from where the one before\n\
         was done; what it waited until then is loop. 4 to 6: parse and callback. p.: as published.\n\
         ktls: the kernel opens records within the receive, so read has what tls is elsewhere; compare both.\n\
         Of read, a system call that finds nothing takes {} us; the rest is the kernel's TCP and its copy.\n\
         Of tls, the AEAD alone takes {} us for 200 B (half of a seal and an open on hot memory).\n\
         {}\n\n",
        number(floor.call),
        number(floor.aead),
        wrap(&format!("clock: {clock}"))
    )
}

/// Breaks text into lines of the width of a table.
fn wrap(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH => *line += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

/// One row of means for each composition, beside the report's.
fn overview(cases: &[&StageCase]) -> Table {
    Table::of(cases.iter().map(|case| {
        let mean = |stage| median(case, stage, |spread| spread.mean);
        let tail = mean(Stage::Parse).zip(mean(Stage::Callback)).map(|(parse, callback)| parse + callback);
        let star = if case.rounds.iter().all(StageTimes::has_arrivals) { "" } else { "*" };
        [
            ("<mean, us", case.short_name()),
            ("<", if case.place == Place::Loopback { "lo" } else { "veth" }.to_owned()),
            ("nic", optional(mean(Stage::Nic))),
            ("read", optional(mean(Stage::Read))),
            ("tls", optional(mean(Stage::Tls))),
            ("4 to 6", optional(tail)),
            ("total", optional(mean(Stage::Total)) + star),
            ("p99", optional(median(case, Stage::Total, |spread| spread.p99))),
            ("tls %", optional(stats::median(&case.runs(|round| round.tls_share * 1e2)))),
            ("p.tls", optional(published_figure(case, Stage::Tls, "mean"))),
            ("p.total", optional(published_figure(case, Stage::Total, "mean"))),
        ]
    }))
}

/// Median over the rounds of a statistic of a stage; `None` if the stage was not timed.
fn median(case: &StageCase, stage: Stage, read: fn(&Spread) -> f64) -> Option<f64> {
    case.has(stage).then(|| stats::median(&case.runs(|round| read(&round.spread(stage))))).flatten()
}

/// All statistics of one composition.
fn details(case: &StageCase) -> String {
    let mut table =
        Table::new(&["<us", "min", "mean", "stddev", "p50", "p90", "p95", "p99", "max", "pub. mean", "pub. p99"]);
    for stage in REPORTED {
        let values = STATISTICS.map(|(_, _, read)| median(case, stage, read));
        let published = ["mean", "p99"].map(|word| published_figure(case, stage, word));
        let cells = values.into_iter().chain(published).map(optional);
        table.row([stage.name().to_owned()].into_iter().chain(cells));
    }
    let share = |read: fn(&StageTimes) -> f64| optional(stats::median(&case.runs(read)));
    let most = case.rounds.iter().map(|round| round.per_read.1).max().unwrap_or(0);
    let most_record = case.rounds.iter().map(|round| round.per_record.1).max().unwrap_or(0);
    let title = format!(
        "{}: {} messages a read, at most {most}; {} a record, at most {most_record}; TLS {} % of the time after the wait",
        case.name(),
        share(|round| round.per_read.0),
        share(|round| round.per_record.0),
        share(|round| round.tls_share * 1e2),
    );
    format!("\n{}\n\n{table}", wrap(&title))
}

/// The report's figure, if this is one of its compositions. Its stage "Event" holds our loop and read.
fn published_figure(case: &StageCase, stage: Stage, word: &str) -> Option<f64> {
    let mode = case.composition.mode?;
    let (_, name) = published::STAGES.iter().find(|(ours, _)| *ours == stage.name())?;
    published::by_text("stages", &format!("mode={mode} detail={name}"), Some(word))
}

fn add_lines(outcome: &mut Outcome, case: &StageCase) {
    for stage in REPORTED.into_iter().filter(|stage| case.has(*stage)) {
        let facts = case.case().stage(stage.name());
        for (metric, word, read) in STATISTICS {
            if let Some(line) = outcome.add(&facts, metric, &case.runs(|round| read(&round.spread(stage)))) {
                line.published = published_figure(case, stage, word);
            }
        }
    }
}

/// Targets of our default engine.
fn checks(case: &StageCase) -> Vec<Check> {
    if case.composition.tls != ENGINES[0] || case.traffic == Traffic::Market {
        return Vec::new();
    }
    let tls = case.runs(|round| round.spread(Stage::Tls).p50);
    let rest = case.runs(|round| round.spread(Stage::Parse).p50 + round.spread(Stage::Callback).p50);
    let check = |what: &str, stage: Stage, runs: &[f64], most| {
        let name = format!("{}: {what}", case.name());
        Check::of(name, case.case().stage(stage.name()), (Metric::LatencyP50, runs), Target::AtMost(most))
    };
    vec![
        check("tls, p50", Stage::Tls, &tls, TARGETS[0]),
        check("parse + callback, p50", Stage::Callback, &rest, TARGETS[1]),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::case::STEADY;
    use super::super::compositions::{self, Transport};
    use super::*;
    use crate::DriverKind;
    use tautline::{DriverConfig, TlsEngine};

    fn times(us: f64, arrivals: u64) -> StageTimes {
        let spread = |count, us| {
            let mut spread = Spread::default();
            spread.count = count;
            (spread.min, spread.mean, spread.stddev) = (us / 2.0, us, us / 10.0);
            (spread.p50, spread.p90, spread.p95, spread.p99) = (us, us * 1.5, us * 2.0, us * 3.0);
            spread.max = us * 100.0;
            spread
        };
        let spreads = Stage::ALL.map(|stage| match stage {
            Stage::Nic => spread(arrivals, us),
            Stage::Total => spread(arrivals, us * 2.0),
            Stage::App => spread(10_000, us),
            _ => spread(10_000, us / 10.0),
        });
        let clock = "TSC of 2.100 ticks a ns, exact to 0.01 ppm; a stamp costs 11 ns; arrivals exact to 40 ns";
        StageTimes::new(spreads, clock)
    }

    /// Our compositions, and those of the report that are asked for below: intervals of all would take seconds.
    fn cases(us: f64) -> Vec<Row<StageCase>> {
        let is_wanted = |mode: Option<u8>| mode.is_none_or(|mode| [1, 8, 9].contains(&mode));
        let row = |composition: compositions::Composition| {
            let arrivals = if composition.transport == Transport::Kernel(DriverKind::Uring) { 0 } else { 10_000 };
            Row::new(StageCase {
                composition,
                place: Place::Loopback,
                traffic: if composition.mode.is_none() { STEADY } else { Traffic::Market },
                engine: TlsEngine::default(),
                driver: DriverConfig::default(),
                rounds: vec![times(us, arrivals), times(us * 1.1, arrivals)],
            })
        };
        compositions::all().into_iter().filter(|it| is_wanted(it.mode)).map(row).collect()
    }

    fn reported(rows: &[Row<StageCase>], skipped: &[String]) -> Outcome {
        let mut outcome = Outcome::of("stages");
        report(&mut outcome, rows, skipped, &[], &Floor { call: 0.2, aead: 0.1 }, 10_000);
        outcome
    }

    #[test]
    fn tables_fit_with_short_and_long_times() {
        for us in [0.012, 12_345.6] {
            let skipped = ["4. ktls epoll: the kernel has none".to_owned()];
            let outcome = reported(&cases(us)[4..], &skipped);
            for line in outcome.text.lines() {
                assert!(line.chars().count() <= WIDTH, "{line}");
            }
            assert!(outcome.warnings[0].contains("the kernel has none"));
        }
    }

    #[test]
    fn only_compositions_of_the_report_have_published_figures() {
        let outcome = reported(&cases(4.5), &[]);
        let line = |driver: &str, tls: &str, stage: &str, metric| {
            let mut lines = outcome.lines.iter().filter(|line| line.metric == metric && line.target.is_none());
            lines
                .find(|line| {
                    let case = &line.case;
                    [&case.driver, &case.tls, &case.stage].map(Option::as_deref) == [driver, tls, stage].map(Some)
                })
                .unwrap()
        };
        assert_eq!(line("xdp-spin", "wolfssl", "tls", Metric::LatencyMean).published, Some(8.19));
        assert_eq!(line("epoll", "openssl", "total", Metric::LatencyP99).published, Some(73.90));
        assert_eq!(line("select", "openssl", "nic", Metric::LatencyP50).published, Some(23.35));
        assert_eq!(line("epoll", "fused", "tls", Metric::LatencyMean).published, None);
        assert_eq!(line("epoll", "fused", "tls", Metric::LatencyMean).runs.len(), 2);
    }

    #[test]
    fn a_total_without_stamps_is_marked() {
        let outcome = reported(&cases(4.0), &[]);
        let row = |name: &str| outcome.text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(row("fused uring 200 B").contains('*') && !row("fused epoll 200 B").contains('*'));
    }

    #[test]
    fn the_default_engine_is_judged_by_its_targets() {
        let outcome = reported(&cases(4.5), &[]);
        let targets: Vec<_> = outcome.lines.iter().filter_map(|line| line.target).collect();
        assert_eq!(targets, [Target::AtMost(0.5), Target::AtMost(0.3)].repeat(7));
        assert!(outcome.text.contains("fused spin 200 B over loopback: tls, p50"), "{}", outcome.text);
    }
}
