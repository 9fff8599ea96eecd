//! Charts of the published reports, each with published and measured figures beside each other.
//!
//! Machines differ, so charts show ratios within each machine where the report's point is a ratio.

use super::chart::{BarRow, Bars, Body, Chart, Lines, Look, Panel, Series, Spacing, StackRow, Stacks, Value};
use super::places::{Found, Place, beside, places};
use crate::published;
use crate::stats::Ratio;
use crate::{Line, Results};

/// A report with its charts.
pub(super) struct Report {
    /// Suite that reproduces it.
    pub(super) suite: &'static str,
    pub(super) title: &'static str,
    pub(super) charts: Vec<Chart>,
}

/// All reports, in the order of the table of published figures.
pub(super) fn reports(results: &Results) -> Vec<Report> {
    let places = places(results);
    let title = |suite: &str| {
        published::figures().iter().find(|figure| figure.suite == suite).map_or("", |figure| figure.source)
    };
    let report = |suite: &'static str, charts: Vec<Chart>| Report { suite, title: title(suite), charts };
    vec![
        report("offload", offload(results)),
        report("scaling", scaling(results)),
        report("stages", stages(results, &places)),
        report("handshake", handshakes(&places)),
        report("windows", windows(results)),
    ]
}

/// A ratio of two published figures beside that of their counterparts.
fn pair(results: &Results, suite: &str, metric: &str, over: &str, under: &str) -> [Option<Value>; 2] {
    let published = published::by_text(suite, over, Some(metric)).zip(published::by_text(suite, under, Some(metric)));
    let published = published.map(|(over, under)| Value::from(over / under));
    let lines = beside(results, suite, over, metric).zip(beside(results, suite, under, metric));
    [published, lines.and_then(|(over, under)| ratio(over, under))]
}

/// The ratio of two measured figures, with its interval if their rounds pair.
pub(super) fn ratio(over: &Line, under: &Line) -> Option<Value> {
    let plain = || Some(Value::from(over.value / under.value)).filter(|value| value.median.is_finite());
    Ratio::paired(&over.runs, &under.runs).map_or_else(plain, |ratio| {
        let interval = ratio.summary.interval;
        Some(Value { median: ratio.summary.median, interval: Some([interval.low, interval.high]) })
    })
}

/// The two series of most charts here.
fn both() -> Vec<(String, Look)> {
    vec![("published".to_owned(), Look::Published), ("measured here".to_owned(), Look::Measured(0))]
}

fn row(label: impl Into<String>, values: [Option<Value>; 2]) -> BarRow {
    BarRow { label: label.into(), values: values.into(), look: None }
}

fn bars(rows: Vec<BarRow>, base: f64) -> Body {
    Body::Bars(Bars { series: both(), rows, base: Some(base) })
}

fn offload(results: &Results) -> Vec<Chart> {
    let of = |metric: &str, case: &str| {
        let text = |execution: &str| format!("wss echo {case} execution={execution}");
        pair(results, "offload", metric, &text("offload-always"), &text("inline"))
    };
    let by_connections = |metric: &str| {
        let each = [50, 100, 200, 500];
        each.map(|count| row(format!("{count} connections"), of(metric, &format!("64B connections={count}")))).into()
    };
    let by_size = |metric: &str| {
        let each = [(64, "64 B"), (256, "256 B"), (1024, "1 KiB"), (4096, "4 KiB")];
        let case = |size| format!("size={size} connections=100");
        each.map(|(size, name)| row(name, of(metric, &case(size)))).into()
    };
    let chart = |title: &str, note: &str, rows| Chart::of(title, note, "× inline", bars(rows, 1.0));
    vec![
        chart(
            "Messages per second with TLS on other threads, by connections",
            "64 B echoes. Every TLS operation on a pool of threads, over TLS in the loop: below 1 the pool loses.",
            by_connections("throughput"),
        ),
        chart(
            "Messages per second with TLS on other threads, by size",
            "100 connections. The loss shrinks as messages grow, because it is a cost of each message.",
            by_size("throughput"),
        ),
        chart(
            "Payload per second with TLS on other threads",
            "The report's table of transfer rates: 100 connections.",
            by_size("transfer"),
        ),
        chart(
            "Latency with TLS on other threads",
            "Mean latency of 64 B echoes over that of TLS in the loop: above 1 the pool is slower.",
            by_connections("latency_mean"),
        ),
    ]
}

const THREADS: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

/// Rates by threads over that of one thread: published, or measured in `results`.
fn speedup(results: Option<&Results>, case: &str) -> Vec<Option<Value>> {
    let text = |threads| format!("bulk 10MB messages {case} threads={threads}");
    let rate = |threads| match results {
        None => published::by_text("scaling", &text(threads), Some("transfer")),
        Some(results) => beside(results, "scaling", &text(threads), "transfer").map(|line| line.value),
    };
    let one = rate(THREADS[0]);
    THREADS.map(|threads| Some(Value::from(rate(threads)? / one?))).into()
}

fn scaling(results: &Results) -> Vec<Chart> {
    let chart = |title: &str, note: &str, cases: &[(String, String)]| {
        let theirs = cases.iter().flat_map(|(_, case)| speedup(None, case));
        let ours = cases.iter().flat_map(|(_, case)| speedup(Some(results), case));
        let top = theirs.chain(ours).flatten().map(|value| value.median).fold(0.0, f64::max);
        let panel = |title: &str, results: Option<&Results>| Panel {
            title: title.to_owned(),
            body: Body::Lines(Lines {
                across: "threads",
                ticks: THREADS.map(|threads| (f64::from(threads), threads.to_string())).into(),
                spacing: Spacing::Even,
                is_log: false,
                top,
                series: (cases.iter().enumerate())
                    .map(|(number, (name, case))| Series {
                        name: name.clone(),
                        look: Look::Measured(number),
                        values: speedup(results, case),
                    })
                    .collect(),
            }),
        };
        let panels = vec![panel("published", None), panel("measured here", Some(results))];
        Chart { title: title.to_owned(), note: note.to_owned(), unit: "× one thread".to_owned(), panels }
    };
    let shared = |tls: &str| {
        let each = [1, 4, 10, 20];
        let case = |count| format!("model=shared-loop {tls} connections={count}");
        each.map(|count| (format!("{count} connections"), case(count)))
    };
    let models = [
        ("shared loop, OpenSSL", "shared-loop OpenSSL"),
        ("shared loop, BoringSSL", "shared-loop BoringSSL"),
        ("loop per core, BoringSSL", "loop-per-core BoringSSL"),
    ];
    vec![
        chart(
            "Threads that share one loop, OpenSSL",
            "Bytes per second over those of one thread. The report's rate collapses; a machine has room for as many \
             threads as it has cores.",
            &shared("OpenSSL"),
        ),
        chart(
            "Threads that share one loop, BoringSSL",
            "As above, with a library whose errors take no lock.",
            &shared("BoringSSL"),
        ),
        chart(
            "Shared loops and a loop per core",
            "20 connections. Loops that share nothing gain from every core.",
            &models.map(|(name, case)| (name.to_owned(), format!("model={case} connections=20"))),
        ),
    ]
}

fn stages(results: &Results, places: &[Place<'_>]) -> Vec<Chart> {
    vec![stage_sums(results, places), stage_curves(results), tls_share(results)]
}

/// Means of the stages as stacked bars.
fn stage_sums(results: &Results, places: &[Place<'_>]) -> Chart {
    let parts = [
        ("network", "Stage_1->2"),
        ("read", "Stage_2->3"),
        ("TLS", "Stage_3->4"),
        ("parse", "Stage_4->5"),
        ("callback", "Stage_5->6"),
    ];
    let text = |mode: usize, detail: &str| format!("mode={mode} detail={detail}");
    let published = |mode| parts.map(|(_, part)| published::by_text("stages", &text(mode, part), Some("mean")));
    let measured = |mode| parts.map(|(_, part)| Some(beside(results, "stages", &text(mode, part), "mean")?.value));
    let why = |mode: usize| {
        let text = text(mode, "Stage_3->4");
        let mut of_mode = places.iter().filter(|place| place.figure.text == text);
        of_mode.find_map(|place| if let Found::Alone(why) = &place.found { Some(why.clone()) } else { None })
    };
    let panel = |title: &str, rows: Vec<StackRow>| Panel {
        title: title.to_owned(),
        body: Body::Stacks(Stacks { parts: parts.map(|(name, _)| name).into(), rows }),
    };
    let label = |mode: usize| format!("{mode} {}", published::compositions()[mode - 1]);
    let modes = 1..=published::compositions().len();
    let theirs = modes.clone().map(|mode| StackRow { label: label(mode), values: Ok(published(mode).into()) });
    let ours = modes.map(|mode| {
        let values = measured(mode);
        let values =
            if values.iter().any(Option::is_some) { Ok(values.into()) } else { Err(why(mode).unwrap_or_default()) };
        StackRow { label: label(mode), values }
    });
    Chart {
        title: "Where a message's time goes, for the eleven compositions".to_owned(),
        note: "Mean times from the network card to the handler; each panel has its own scale. Here the network is two \
               namespaces of one machine, and messages arrive in bursts."
            .to_owned(),
        unit: "us".to_owned(),
        panels: vec![panel("published", theirs.collect()), panel("measured here", ours.collect())],
    }
}

/// Percentiles of the whole way as curves.
fn stage_curves(results: &Results) -> Chart {
    let statistics =
        [("min", "min"), ("median", "p50"), ("p90", "p90"), ("p95", "p95"), ("p99", "p99"), ("max", "max")];
    let text = |mode: usize| format!("mode={mode} detail=End-to-End");
    let panel = |title: &str, is_ours: bool| {
        let value = |mode, word: &str| {
            if is_ours {
                return Some(beside(results, "stages", &text(mode), word)?.value.into());
            }
            published::by_text("stages", &text(mode), Some(word)).map(Value::from)
        };
        let series = (1..=published::compositions().len()).map(|mode| Series {
            name: format!("{mode} {}", published::compositions()[mode - 1]),
            look: Look::Measured(mode - 1),
            values: statistics.map(|(word, _)| value(mode, word)).into(),
        });
        let series = series.filter(|series| series.values.iter().any(Option::is_some)).collect();
        let names = statistics.iter().map(|(_, name)| *name);
        let across = "percentile of the time from arrival to handler";
        Panel { title: title.to_owned(), body: Body::Lines(Lines::by_percentile(across, names, series)) }
    };
    Chart {
        title: "Latency percentiles of the eleven compositions".to_owned(),
        note: "Logarithmic; lower is better. The report had some tens of messages for each, so its last percentiles \
               are its largest values."
            .to_owned(),
        unit: "us".to_owned(),
        panels: vec![panel("published", false), panel("measured here", true)],
    }
}

/// The share of TLS in the time after arrival.
fn tls_share(results: &Results) -> Chart {
    let share = |mode: usize| {
        let [tls, total] = ["Stage_3->4", "Total"].map(|detail| format!("mode={mode} detail={detail}"));
        let [published, _] = pair(results, "stages", "mean", &tls, &total);
        let measured = beside(results, "stages", &tls, "mean").zip(beside(results, "stages", &total, "mean"));
        // Stages are parts of a whole by their medians, not round by round.
        let shares = [published.map(|share| share.median), measured.map(|(tls, total)| tls.value / total.value)];
        shares.map(|share| share.map(|share| Value::from(share * 100.0)))
    };
    let rows = (1..=published::compositions().len())
        .map(|mode| row(format!("{mode} {}", published::compositions()[mode - 1]), share(mode)));
    Chart::of(
        "Share of TLS in the time after the wait",
        "The report found 88 to 95 %. A smaller share here means that opening a record takes less beside the rest.",
        "%",
        bars(rows.collect(), 100.0),
    )
}

fn handshakes(places: &[Place<'_>]) -> Vec<Chart> {
    let mut rows = Vec::new();
    for place in places.iter().filter(|place| place.figure.suite == "handshake" && place.figure.metric == "time") {
        let text = place.figure.text;
        let measured = if let Found::Beside(line) = place.found { Some(Value::from(line.value)) } else { None };
        let values = [Some(Value::from(place.figure.comparable())), measured];
        let curves = if text.contains("curves") { ", curves set" } else { "" };
        let name = if text.contains("full=yes") {
            "full"
        } else if text.contains("tickets=yes") {
            "resumed"
        } else {
            "no TLS"
        };
        rows.push(row(format!("{name}{curves}"), values));
    }
    let median = |label: &str, series: usize| Some(rows.iter().rfind(|row| row.label == label)?.values[series]?.median);
    let gain = [0, 1].map(|series| Some(Value::from(median("full", series)? / median("resumed", series)?)));
    let gain = row("full over resumed", gain);
    vec![
        Chart::of(
            "CPU time of a connection, RSA-2048",
            "Both ends together. Ours includes TCP and the WebSocket upgrade; the report's was in memory.",
            "us",
            Body::Bars(Bars { series: both(), rows, base: None }),
        ),
        Chart::of(
            "Gain of resumption",
            "CPU time of a full handshake over that of a resumed one.",
            "×",
            bars(vec![gain], 1.0),
        ),
    ]
}

fn windows(results: &Results) -> Vec<Chart> {
    let direct = "strategy=window-bio+direct-decrypt";
    let of_direction = |direction: &str| {
        let duplex = format!("duplex 32KiB buffers TLS1.3 1 connection {direction}");
        let ways = [
            ("window BIO", format!("{duplex} strategy=window-bio")),
            ("direct", format!("{duplex} {direct}")),
            ("final revision", format!("duplex final revision {direction} {direct} gate>=16384")),
            ("all spilled", format!("forced spill 100% {direction}")),
        ];
        let base = format!("{duplex} strategy=memory-bio");
        let values = |text: &str| pair(results, "windows", "transfer", text, &base);
        ways.map(|(name, text)| row(format!("{direction}, {name}"), values(&text)))
    };
    let rows = ["read", "write"].into_iter().flat_map(of_direction).collect();
    let get = |http: &str| {
        let text = |strategy: &str| format!("HTTPS GET 16KiB {http} {strategy}");
        let direct = text(&format!("{direct} gate>=16384"));
        pair(results, "windows", "rate", &direct, &text("strategy=memory-bio"))
    };
    let gets = vec![
        row("HTTP/1.1, kept, 32", get("HTTP/1.1 keep-alive c=32")),
        row("HTTP/2, 10", get("HTTP/2 c=10")),
        row("HTTP/2, 100", get("HTTP/2 c=100")),
    ];
    vec![
        Chart::of(
            "Bytes per second by way of records to buffers",
            "One connection, both directions at once, over memory BIOs of OpenSSL: above 1 is faster.",
            "× memory BIO",
            bars(rows, 1.0),
        ),
        Chart::of(
            "HTTPS requests of 16 KiB",
            "Requests per second with direct reads over those with memory BIOs. There is no HTTP/2 here.",
            "× memory BIO",
            bars(gets, 1.0),
        ),
    ]
}
