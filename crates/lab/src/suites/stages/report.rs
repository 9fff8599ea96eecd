use super::super::check::{self, Check};
use super::super::server::Feed;
use super::super::{ENGINES, Outcome, Suite};
use super::{Found, Least, Place, StageCase, cost};
use crate::stats;
use crate::table::{Table, WIDTH, number, optional};
use crate::{Case, Line, Metric, Protocol, Target, published};
use tautline::{Spread, Stage};

/// A statistic of a stage: its metric, the report's word for it, and how to read it.
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

/// The stages that results have.
const TOLD: [Stage; 7] =
    [Stage::Nic, Stage::Loop, Stage::Read, Stage::Tls, Stage::Parse, Stage::Callback, Stage::Total];

/// What TLS, and parser and callback together, may take of our default engine's messages, in us.
const TARGETS: [f64; 2] = [0.5, 0.3];

pub(super) fn report(
    cases: &[StageCase],
    skipped: &[(String, String)],
    costs: &[cost::Row],
    least: &Least,
    messages: u64,
) -> Outcome {
    let mut outcome = Outcome { text: introduction(cases, least, messages), ..Outcome::default() };
    outcome.text += &overview(cases).to_string();
    for case in cases.iter().filter(|case| !case.found.is_empty()) {
        outcome.text += &details(case);
        add_lines(&mut outcome, case);
    }
    for (row, why) in skipped {
        outcome.warnings.push(format!("skipped {row}: {why}"));
    }
    outcome.text += &cost::table(costs);
    cost::add_lines(&mut outcome, costs);
    check::report(&mut outcome, Suite::Stages, cases.iter().flat_map(checks).chain(cost::checks(costs)));
    outcome
}

fn introduction(cases: &[StageCase], least: &Least, messages: u64) -> String {
    let first = cases.iter().find_map(|case| case.found.first());
    let clock = first.map_or("", |found| found.clock.as_str());
    format!(
        "Stages: made-up market data (80 % trades of 180-220 B, bursts of 1 to 40, about 6,000 msg/s; the\n\
         same in every run) from a server to one client, which is measured: {messages} messages each round.\n\
         200 B: messages of that size at a steady 10,000 msg/s, each with a record of its own.\n\
         nic: from the kernel's stamp of the last segment to the end of the loop's wait. loop: waiting for\n\
         earlier messages of the same read. read: the receive. tls: opening the record. parse: the frame.\n\
         callback: from there to the handler. total: all of it; with * from the end of the wait, where the\n\
         driver has no stamp. io_uring receives within the wait, and so has no stage of its own for it.\n\
         The time of a message that shares its read, or its record, is its own from where the one before\n\
         was done; what it waited until then is loop. 4 to 6: parse and callback. p.: as published.\n\
         ktls: the kernel opens records within the receive, so read has what tls is elsewhere; compare both.\n\
         Of read, a system call that finds nothing takes {} us; the rest is the kernel's TCP and its copy.\n\
         Of tls, the AEAD alone takes {} us for 200 B (half of a seal and an open on hot memory).\n\
         {}\n\n",
        number(least.call),
        number(least.aead),
        wrap(&format!("clock: {clock}"))
    )
}

/// Lines no longer than a table may be.
fn wrap(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && lines[last].chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(word.to_owned());
            continue;
        }
        if !lines[last].is_empty() {
            lines[last].push(' ');
        }
        lines[last].push_str(word);
    }
    lines.join("\n")
}

/// One row for each composition: means, and what the report has.
fn overview(cases: &[StageCase]) -> Table {
    let titles = ["<mean, us", "<", "nic", "read", "tls", "4 to 6", "total", "p99", "tls %", "p.tls", "p.total"];
    let mut table = Table::new(&titles);
    for case in cases.iter().filter(|case| !case.found.is_empty()) {
        let mean = |stage: Stage| {
            let is_there = case.found.iter().any(|found| found.spread(stage).count > 0);
            is_there.then(|| stats::median(&case.runs(|found| found.spread(stage).mean))).flatten()
        };
        let total = |read: fn(&Spread) -> f64| stats::median(&case.runs(|found| read(&found.total())));
        let stamped = case.found.iter().all(Found::has_arrivals);
        let star = if stamped { "" } else { "*" };
        table.row([
            case.short_name(),
            if case.place == Place::Loopback { "lo" } else { "veth" }.to_owned(),
            optional(mean(Stage::Nic)),
            optional(mean(Stage::Read)),
            optional(mean(Stage::Tls)),
            optional(mean(Stage::Parse).zip(mean(Stage::Callback)).map(|(parse, callback)| parse + callback)),
            optional(total(|spread| spread.mean)) + star,
            optional(total(|spread| spread.p99)),
            optional(stats::median(&case.runs(|found| found.tls_share * 1e2))),
            optional(published_figure(case, Stage::Tls, "mean")),
            optional(published_figure(case, Stage::Total, "mean")),
        ]);
    }
    table
}

/// All statistics of one composition.
fn details(case: &StageCase) -> String {
    let mut table =
        Table::new(&["<us", "min", "mean", "stddev", "p50", "p90", "p95", "p99", "max", "pub. mean", "pub. p99"]);
    for stage in TOLD {
        let is_there = case.found.iter().any(|found| spread(found, stage).count > 0);
        let values = STATISTICS.map(|(_, _, read)| {
            let value = || stats::median(&case.runs(|found| read(&spread(found, stage))));
            is_there.then(value).flatten()
        });
        let published = ["mean", "p99"].map(|word| published_figure(case, stage, word));
        let cells = values.into_iter().chain(published).map(optional);
        table.row([stage.name().to_owned()].into_iter().chain(cells));
    }
    let share = |read: fn(&Found) -> f64| optional(stats::median(&case.runs(read)));
    let most = case.found.iter().map(|found| found.per_read.1).max().unwrap_or(0);
    let most_record = case.found.iter().map(|found| found.per_record.1).max().unwrap_or(0);
    let title = format!(
        "{}: {} messages a read, at most {most}; {} a record, at most {most_record}; TLS {} % of the time after the wait",
        case.name(),
        share(|found| found.per_read.0),
        share(|found| found.per_record.0),
        share(|found| found.tls_share * 1e2),
    );
    format!("\n{}\n\n{table}", wrap(&title))
}

/// Of a stage; the total begins where the driver's first stamp is.
fn spread(found: &Found, stage: Stage) -> Spread {
    if stage == Stage::Total { found.total() } else { found.spread(stage) }
}

/// The report's figure, where this is one of its compositions. Its stage "Event" holds our loop and read.
fn published_figure(case: &StageCase, stage: Stage, word: &str) -> Option<f64> {
    let mode = case.row.mode?;
    let name = match stage {
        Stage::Nic => "Stage_1->2",
        Stage::Read => "Stage_2->3",
        Stage::Tls => "Stage_3->4",
        Stage::Parse => "Stage_4->5",
        Stage::Callback => "Stage_5->6",
        Stage::App => "Total",
        Stage::Total => "End-to-End",
        Stage::Loop => return None,
    };
    let text = format!("mode={mode} detail={name}");
    let figures = published::figures().iter();
    figures
        .filter(|figure| figure.suite == "stages" && figure.text == text)
        .find(|it| it.metric == word)
        .map(|it| it.value)
}

fn facts(case: &StageCase, stage: Stage) -> Case {
    Case {
        protocol: Some(Protocol::Wss),
        tls: Some(case.row.tls.to_owned()),
        driver: Some(case.row.wire.name().to_owned()),
        connections: Some(1),
        direction: Some("read".to_owned()),
        stage: Some(stage.name().to_owned()),
        transport: Some(case.row.wire.transport().to_owned()),
        size: match case.feed {
            Feed::Market => None,
            Feed::Steady { size, .. } => Some(size.into()),
        },
        setup: Some(match (case.feed, case.row.mode) {
            (Feed::Steady { .. }, _) => format!("steady over {}", case.place.name()),
            (Feed::Market, None) => format!("market over {}", case.place.name()),
            (Feed::Market, Some(mode)) => format!("market over {}, mode {mode}", case.place.name()),
        }),
        ..Case::default()
    }
}

fn add_lines(outcome: &mut Outcome, case: &StageCase) {
    for stage in TOLD {
        if case.found.iter().all(|found| spread(found, stage).count == 0) {
            continue;
        }
        let facts = facts(case, stage);
        for (metric, word, read) in STATISTICS {
            let runs = case.runs(|found| read(&spread(found, stage)));
            let line = Line::new(Suite::Stages.name(), &facts, metric, &runs);
            let published = published_figure(case, stage, word);
            outcome.lines.extend(line.map(|line| Line { published, ..line }));
        }
    }
}

/// What our default is held to.
fn checks(case: &StageCase) -> Vec<Check> {
    if case.row.tls != ENGINES[0] || case.feed == Feed::Market || case.found.is_empty() {
        return Vec::new();
    }
    let tls = case.runs(|found| found.spread(Stage::Tls).p50);
    let rest = case.runs(|found| found.spread(Stage::Parse).p50 + found.spread(Stage::Callback).p50);
    let check = |what: &str, stage, runs: &[f64], most| {
        let what = format!("{}: {what}", case.name());
        Check::of(what, facts(case, stage), (Metric::LatencyP50, runs), Target::AtMost(most))
    };
    vec![
        check("tls, p50", Stage::Tls, &tls, TARGETS[0]),
        check("parse + callback, p50", Stage::Callback, &rest, TARGETS[1]),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::rows::{self, Wire};
    use super::*;
    use tautline::layers::io::Io;
    use tautline::{TlsEngine, Way};

    fn found(us: f64, nic: u64) -> Found {
        let spread = |count, us| Spread {
            count,
            min: us / 2.0,
            mean: us,
            stddev: us / 10.0,
            p50: us,
            p90: us * 1.5,
            p95: us * 2.0,
            p99: us * 3.0,
            max: us * 100.0,
        };
        let spreads = Stage::ALL.map(|stage| match stage {
            Stage::Nic => spread(nic, us),
            Stage::Total => spread(nic, us * 2.0),
            Stage::App => spread(10_000, us),
            _ => spread(10_000, us / 10.0),
        });
        let clock =
            "TSC of 2.100 ticks a ns, exact to 0.01 ppm; a stamp costs 11 ns; arrivals exact to 40 ns".to_owned();
        Found { spreads, tls_share: 0.5, per_read: (1.53, 40), per_record: (1.2, 33), clock }
    }

    fn cases(us: f64) -> Vec<StageCase> {
        let case = |row, place, nic| StageCase {
            row,
            place,
            feed: if row.mode.is_none() { Feed::Steady { size: 200, rate: 10_000 } } else { Feed::Market },
            engine: TlsEngine::default(),
            way: Way::default(),
            found: vec![found(us, nic), found(us * 1.1, nic)],
            failed: None,
        };
        // Of the report those that are asked for below: intervals of all would take seconds.
        rows::all()
            .into_iter()
            .filter(|row| row.mode.is_none_or(|mode| [1, 8, 9].contains(&mode)))
            .map(|row| {
                let nic = if row.wire == Wire::Kernel(Io::Uring) { 0 } else { 10_000 };
                case(row, Place::Loopback, nic)
            })
            .collect()
    }

    const LEAST: Least = Least { call: 0.2, aead: 0.1 };

    #[test]
    fn tables_fit_whatever_the_times_are() {
        for us in [0.012, 12_345.6] {
            let skipped = [("4. ktls epoll".to_owned(), "the kernel has none".to_owned())];
            let widest = cases(us).into_iter().skip(4).collect::<Vec<_>>();
            let outcome = report(&widest, &skipped, &[], &LEAST, 10_000);
            for line in outcome.text.lines() {
                assert!(line.chars().count() <= WIDTH, "{line}");
            }
            assert!(outcome.warnings[0].contains("the kernel has none"));
        }
    }

    #[test]
    fn the_report_stands_beside_its_compositions_only() {
        let outcome = report(&cases(4.5), &[], &[], &LEAST, 10_000);
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
    fn without_a_stamp_the_total_begins_with_the_end_of_the_wait_and_says_so() {
        let outcome = report(&cases(4.0), &[], &[], &LEAST, 10_000);
        let row = |name: &str| outcome.text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(row("fused uring 200 B").contains('*') && !row("fused epoll 200 B").contains('*'));
    }

    #[test]
    fn our_default_is_held_to_its_targets() {
        let outcome = report(&cases(4.5), &[], &[], &LEAST, 10_000);
        let targets: Vec<_> = outcome.lines.iter().filter_map(|line| line.target).collect();
        assert_eq!(targets, [Target::AtMost(0.5), Target::AtMost(0.3)].repeat(7));
        assert!(outcome.text.contains("fused spin 200 B over loopback: tls, p50"), "{}", outcome.text);
    }
}
