//! Charts of the suites' own figures.

use super::chart::{BarRow, Bars, Body, Chart, Lines, Look, Series, Spacing, StackRow, Stacks, Value};
use crate::stats::Summary;
use crate::suites::Outcome;
use crate::table::{bytes, number};
use crate::{Case, Line, Metric};

/// Most series of a picture, because there are no more colours.
const MOST_SERIES: usize = 8;

/// How lines become pictures.
#[derive(Clone, Copy)]
enum Shape {
    /// A bar for each line.
    Bars,
    /// A line over this fact, logarithmic in both directions or in neither.
    Over(&'static str, Spacing),
    /// Latencies by percentile.
    Percentiles,
}

/// Charts of one suite: one for each combination of the facts in `each`.
struct Spec {
    suite: &'static str,
    title: &'static str,
    note: &'static str,
    metric: Metric,
    shape: Shape,
    each: Facts,
    /// Facts that name a bar or a series.
    names: Facts,
    keep: fn(&Case) -> bool,
}

/// Names of facts.
type Facts = &'static [&'static str];

/// The shape of charts, the facts that part them, and those that name a bar or a series.
type Axes = (Shape, Facts, Facts);

const WHO: Facts = &["protocol", "peer", "tls", "driver"];
const LOAD: Facts = &["size", "connections", "pipeline"];

fn spec(
    suite: &'static str,
    (title, note): (&'static str, &'static str),
    metric: Metric,
    (shape, each, names): Axes,
) -> Spec {
    Spec { suite, title, note, metric, shape, each, names, keep: |_| true }
}

/// Charts of server CPU per message.
fn cpu(suite: &'static str, title: &'static str, axes: Axes) -> Spec {
    spec(suite, (title, "Server CPU per message: less is better."), Metric::ServerCpuPerMsg, axes)
}

const fn bars(each: Facts, names: Facts) -> Axes {
    (Shape::Bars, each, names)
}

/// All charts, in the order of the suites.
fn specs() -> Vec<Spec> {
    [echoes(), servers(), records(), loops()].into_iter().flatten().collect()
}

/// Sizes on a logarithmic axis.
const BY_SIZE: Shape = Shape::Over("size", Spacing::Logarithmic);

/// Charts of echoes in general.
fn echoes() -> Vec<Spec> {
    let each = ("CPU of a connection", "Server CPU of connecting, upgrading and closing: less is better.");
    let by_connections = ("Echoes per second by connections", "64 B, one message in flight on each: more is better.");
    let broadcasts = ("Broadcasts", "Messages delivered per second: more is better.");
    let above_tcp = ("Cost above bare TCP", "Server CPU over that of the cheapest TCP echo: 1 is the limit.");
    let of_tls = ("Cost of TLS", "Server CPU over that of plain WebSocket on the same driver.");
    let over_connections = (Shape::Over("connections", Spacing::Logarithmic), &["driver"][..], WHO);
    vec![
        cpu("overview", "CPU of an echo", bars(&["size"], WHO)),
        spec("overview", each, Metric::ServerCpuPerHandshake, bars(&[], &["protocol", "key", "resumed"])),
        cpu("echo", "CPU of an echo by size", (BY_SIZE, &["driver"], WHO))
            .only(|case| case.subscribers.is_none() && case.connections == Some(100) && case.pipeline == Some(1)),
        spec("echo", by_connections, Metric::Throughput, over_connections)
            .only(|case| case.size == Some(64) && case.pipeline == Some(1) && case.subscribers.is_none()),
        spec("echo", broadcasts, Metric::Throughput, bars(&["size", "subscribers", "setup"], WHO))
            .only(|case| case.subscribers.is_some()),
        spec("limits", above_tcp, Metric::RatioToLimit, bars(LOAD, WHO)),
        spec("limits", of_tls, Metric::RatioToPlain, bars(LOAD, WHO)),
    ]
}

/// Charts of servers beside others, and of their memory.
fn servers() -> Vec<Spec> {
    let memory = ("Memory of an idle connection", "Resident memory of the server: less is better.");
    let due = "64 B, open loop, from the time at which a message was due: less is better.";
    let percentiles = (Shape::Percentiles, &["setup"][..], &["peer", "tls", "driver"][..]);
    let compression = ("Compression", "Payload over bytes on the wire: more is better.");
    vec![
        spec("idle", memory, Metric::RssPerConnection, bars(&["connections", "setup"], WHO)),
        cpu("peers", "Peers: CPU of an echo", bars(&["protocol", "size", "pipeline"], WHO)),
        cpu("edge", "Proxies: CPU of an echo", bars(&["size", "pipeline", "setup"], &["peer", "driver", "protocol"])),
        cpu("http2", "HTTP/2: CPU of an echo", bars(&["size", "setup"], &["peer", "driver"])),
        cpu("fleet", "Hubs: CPU of a delivery", bars(&["setup", "threads", "subscribers"], &["peer"])),
        spec("latency", ("Latency percentiles", due), Metric::LatencyP50, percentiles),
        cpu("deflate", "CPU with compression", bars(&["size", "setup", "direction"], WHO)),
        spec("deflate", compression, Metric::RatioToWire, bars(&["size", "setup"], WHO)),
        cpu("tokio", "On tokio: CPU of an echo", bars(&["size", "threads", "pipeline"], WHO)),
    ]
}

/// Charts of TLS alone.
fn records() -> Vec<Spec> {
    let records = ("Records in memory", "CPU to open, parse, frame and seal a message: less is better.");
    let handshake = ("CPU of a handshake", "Server CPU of connecting, upgrading and closing: less is better.");
    let storm = ("Open connections in a storm of handshakes", "p99 of their latency: less is better.");
    let record = ("CPU of a record of 16 KiB in memory", "Less is better.");
    let duplex = ("Both directions over loopback", "Payload per second: more is better.");
    let signature = ("A signature alone", "Less is better.");
    let ends = bars(&["key", "resumed"], &["protocol", "tls", "group", "execution"]);
    vec![
        spec("records", records, Metric::CpuPerMsg, (BY_SIZE, &[], &["tls", "strategy", "aead"])),
        spec("handshake", handshake, Metric::ServerCpuPerHandshake, ends).only(|case| case.setup.is_none()),
        spec("handshake", signature, Metric::CpuPerSignature, bars(&[], &["key"])),
        spec("handshake", storm, Metric::LatencyP99, bars(&[], &["setup", "execution"])),
        spec("windows", record, Metric::CpuPerMsg, bars(&["direction"], &["tls", "strategy"]))
            .only(|case| case.size == Some(16_384) && case.direction.is_some() && case.setup.is_none()),
        spec("windows", duplex, Metric::Transfer, bars(&["direction", "setup"], &["tls", "strategy"])),
    ]
}

/// Charts of loops and networks.
fn loops() -> Vec<Spec> {
    let helped = ("Large answers with helper threads", "Payload per second by size: the lines cross where help pays.");
    let scaling = ("Bytes per second by threads", "Shared loop and loop per core: more is better.");
    let pairs = ("In pairs: what a second core adds", "Server thread and load thread share a core: more is better.");
    let million = ("Latency by connections", "p50 of an echo: less is better.");
    let storm = ("Clients that return", "Time until all are back: less is better.");
    let stacks = ("Two TCP stacks", "The kernel's and one beside it, over veth; p50 of an echo: less is better.");
    let threads = (Shape::Over("threads", Spacing::Even), &["tls", "connections"][..], &["model"][..]);
    let wire = bars(&["connections"], &["driver", "setup"]);
    vec![
        spec("offload", helped, Metric::Transfer, (BY_SIZE, &[], &["execution"])).only(|it| it.direction.is_some()),
        cpu("offload", "CPU of an echo by size", (BY_SIZE, &["connections"], &["execution"]))
            .only(|case| case.direction.is_none()),
        spec("scaling", scaling, Metric::Transfer, threads).only(|case| case.setup.is_none()),
        spec("scaling", pairs, Metric::Transfer, bars(&["tls"], &["model", "threads"])).only(|it| it.setup.is_some()),
        spec("million", million, Metric::LatencyP50, bars(&[], &["connections", "setup"])),
        spec("storm", storm, Metric::ReturnTime, bars(&[], &["setup"])),
        spec("wire", stacks, Metric::LatencyP50, wire),
        cpu("wire", "Two TCP stacks", wire),
    ]
}

/// The charts of a suite.
pub(super) fn charts(outcome: &Outcome) -> Vec<Chart> {
    let mut charts: Vec<Chart> = Vec::new();
    for spec in specs().iter().filter(|spec| spec.suite == outcome.suite) {
        charts.extend(spec.charts(&outcome.lines));
    }
    charts.extend(stages(outcome));
    charts.extend(memory(outcome));
    charts.retain(|chart| !chart.is_empty());
    charts
}

/// A fact in words.
fn told(case: &Case, fact: &str) -> Option<String> {
    let value = case.fact(fact)?;
    Some(match fact {
        "size" => bytes(case.size?),
        "connections" => format!("{} connections", number(case.connections? as f64)),
        "subscribers" => format!("{} subscribers", number(case.subscribers? as f64)),
        "threads" if value == "1" => "1 thread".to_owned(),
        "threads" => format!("{value} threads"),
        "pipeline" => format!("{value} in flight"),
        "resumed" => if case.resumed? { "resumed" } else { "full" }.to_owned(),
        _ => value,
    })
}

fn name(case: &Case, facts: &[&str]) -> String {
    let words: Vec<String> = facts.iter().filter_map(|fact| told(case, fact)).collect();
    words.join(" ")
}

/// Ours by default stands out, other projects step back.
fn look(case: &Case) -> Look {
    match (&case.peer, case.tls.as_deref()) {
        (Some(peer), _) if !peer.starts_with("tautline") => Look::Other,
        (_, Some("fused")) => Look::Measured(0),
        _ => Look::Beside,
    }
}

fn value(line: &Line) -> Value {
    let interval = Summary::of(&line.runs).filter(|summary| summary.count > 2).map(|summary| summary.interval);
    Value { median: line.value, interval: interval.map(|interval| [interval.low, interval.high]) }
}

/// Items by key, in the order of the keys' first appearance.
fn grouped<'a, K: PartialEq>(
    lines: impl Iterator<Item = &'a Line>,
    key: impl Fn(&Line) -> K,
) -> Vec<(K, Vec<&'a Line>)> {
    let mut groups: Vec<(K, Vec<&Line>)> = Vec::new();
    for line in lines {
        let key = key(line);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(line),
            None => groups.push((key, vec![line])),
        }
    }
    groups
}

impl Spec {
    /// This chart, with the cases that `keep` accepts.
    fn only(self, keep: fn(&Case) -> bool) -> Self {
        Self { keep, ..self }
    }

    fn charts(&self, lines: &[Line]) -> Vec<Chart> {
        let is_wanted = |line: &&Line| {
            let metric = match self.shape {
                Shape::Percentiles => PERCENTILES.iter().any(|(metric, _)| *metric == line.metric),
                _ => line.metric == self.metric,
            };
            metric && line.target.is_none() && (self.keep)(&line.case)
        };
        let load =
            |line: &Line| self.each.iter().filter_map(|fact| told(&line.case, fact)).collect::<Vec<_>>().join(", ");
        let groups = grouped(lines.iter().filter(is_wanted), load);
        let chart = |(group, lines): (String, Vec<&Line>)| {
            let body = match self.shape {
                Shape::Bars => self.bars(&lines),
                Shape::Over(fact, spacing) => self.over(&lines, fact, spacing),
                Shape::Percentiles => self.percentiles(&lines),
            };
            let title = if group.is_empty() { self.title.to_owned() } else { format!("{}: {group}", self.title) };
            Chart::of(title, self.note, self.metric.unit(), body)
        };
        groups.into_iter().map(chart).collect()
    }

    fn bars(&self, lines: &[&Line]) -> Body {
        let row = |line: &&Line| BarRow {
            label: name(&line.case, self.names),
            values: vec![Some(value(line))],
            look: Some(look(&line.case)),
        };
        let base = (self.metric.unit() == "x").then_some(1.0);
        let series = vec![(self.metric.name().replace('_', " "), Look::Measured(0))];
        Body::Bars(Bars { series, rows: lines.iter().map(row).collect(), base })
    }

    fn over(&self, lines: &[&Line], fact: &str, spacing: Spacing) -> Body {
        let place = |case: &Case| case.fact(fact).and_then(|text| text.parse::<f64>().ok());
        let mut ticks: Vec<(f64, String)> = Vec::new();
        for line in lines {
            let Some(at) = place(&line.case).filter(|at| *at > 0.0) else { continue };
            if !ticks.iter().any(|(known, _)| *known == at) {
                let label = if fact == "size" { bytes(line.case.size.unwrap_or(0)) } else { super::draw::tick(at) };
                ticks.push((at, label));
            }
        }
        ticks.sort_by(|a, b| a.0.total_cmp(&b.0));
        let groups = grouped(lines.iter().copied(), |line| name(&line.case, self.names));
        let series = groups.into_iter().take(MOST_SERIES).enumerate().map(|(number, (name, lines))| {
            let of = |at: f64| lines.iter().find(|line| place(&line.case) == Some(at)).map(|line| value(line));
            Series { name, look: Look::Measured(number), values: ticks.iter().map(|(at, _)| of(*at)).collect() }
        });
        let across = match fact {
            "size" => "payload",
            "threads" => "threads",
            _ => "connections",
        };
        let series = series.collect();
        Body::Lines(Lines { across, ticks, spacing, is_log: spacing == Spacing::Logarithmic, top: 0.0, series })
    }

    fn percentiles(&self, lines: &[&Line]) -> Body {
        let measured: Vec<_> =
            (PERCENTILES.into_iter()).filter(|(metric, _)| lines.iter().any(|line| line.metric == *metric)).collect();
        let groups = grouped(lines.iter().copied(), |line| name(&line.case, self.names));
        let series = groups.into_iter().take(MOST_SERIES).enumerate().map(|(number, (name, lines))| Series {
            name,
            look: Look::Measured(number),
            values: (measured.iter())
                .map(|(metric, _)| lines.iter().find(|line| line.metric == *metric).map(|line| value(line)))
                .collect(),
        });
        let names = measured.iter().map(|(_, name)| *name);
        Body::Lines(Lines::by_percentile("percentile", names, series.collect()))
    }
}

const PERCENTILES: [(Metric, &str); 6] = [
    (Metric::LatencyP50, "p50"),
    (Metric::LatencyP90, "p90"),
    (Metric::LatencyP95, "p95"),
    (Metric::LatencyP99, "p99"),
    (Metric::LatencyP999, "p99.9"),
    (Metric::LatencyMax, "max"),
];

/// Stages of our default engine on each driver, as stacked bars.
fn stages(outcome: &Outcome) -> Vec<Chart> {
    const PARTS: [&str; 6] = ["nic", "loop", "read", "tls", "parse", "callback"];
    let is_ours = |line: &&Line| {
        let setup = line.case.setup.as_deref().unwrap_or_default();
        line.metric == Metric::LatencyP50
            && line.target.is_none()
            && line.case.stage.is_some()
            && !setup.contains("mode")
    };
    let lines = outcome.lines.iter().filter(|_| outcome.suite == "stages").filter(is_ours);
    let chart = |(setup, lines): (String, Vec<&Line>)| {
        let rows = grouped(lines.into_iter(), |line| name(&line.case, &["tls", "driver"]));
        let row = |(label, lines): (String, Vec<&Line>)| {
            let of = |stage: &str| lines.iter().find(|line| line.case.stage.as_deref() == Some(stage));
            StackRow { label, values: Ok(PARTS.map(|stage| of(stage).map(|line| line.value)).into()) }
        };
        let body = Stacks { parts: PARTS.into(), rows: rows.into_iter().map(row).collect() };
        let note = "Medians of the stages from the network card to the handler: less is better.";
        Chart::of(format!("Stages: {setup}"), note, "us", Body::Stacks(body))
    };
    grouped(lines, |line| line.case.setup.clone().unwrap_or_default()).into_iter().map(chart).collect()
}

/// Memory of a connection of the suite `million` by its owner.
fn memory(outcome: &Outcome) -> Option<Chart> {
    let owners = [
        ("server", Metric::RssPerConnection),
        ("load", Metric::LoadRssPerConnection),
        ("kernel, both ends", Metric::KernelPerConnection),
    ];
    let is_owned = |line: &&Line| line.target.is_none() && owners.iter().any(|(_, metric)| *metric == line.metric);
    let lines = outcome.lines.iter().filter(|_| outcome.suite == "million").filter(is_owned);
    let row = |(label, lines): (String, Vec<&Line>)| {
        let of = |metric| lines.iter().find(|line| line.metric == metric).map(|line| line.value);
        StackRow { label, values: Ok(owners.map(|(_, metric)| of(metric)).into()) }
    };
    let rows: Vec<_> =
        grouped(lines, |line| name(&line.case, &["connections", "setup"])).into_iter().map(row).collect();
    let body = Stacks { parts: owners.map(|(owner, _)| owner).into(), rows };
    let note = "Added by each connection: less is better.";
    (!body.rows.is_empty()).then(|| Chart::of("Memory of a connection", note, "B", Body::Stacks(body)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::Suite;

    fn line(suite: &str, case: &Case, metric: Metric, value: f64) -> Line {
        Line::new(suite, case, metric, &[value, value * 1.1, value * 0.9]).unwrap()
    }

    #[test]
    fn every_spec_names_a_suite_and_facts_of_a_case() {
        for spec in specs() {
            assert!(Suite::ALL.iter().any(|suite| suite.name() == spec.suite), "{}", spec.suite);
            assert!(!spec.title.is_empty() && !spec.note.is_empty());
            let used = [spec.each, spec.names].concat();
            assert!(used.iter().all(|fact| Case::NAMES.contains(fact)), "{}: {used:?}", spec.title);
        }
    }

    #[test]
    fn lines_become_one_chart_for_each_load_with_a_bar_for_each_server() {
        let mut outcome = Outcome::of("peers");
        for size in [64, 1024] {
            for (tls, peer) in [("fused", None), ("rustls", Some("yawc"))] {
                let case = Case::default().tls(tls).peer(peer).size(size).pipeline(1);
                outcome.lines.push(line("peers", &case, Metric::ServerCpuPerMsg, 2.0));
            }
        }
        let charts = charts(&outcome);
        let titles: Vec<_> = charts.iter().map(|chart| chart.title.as_str()).collect();
        assert_eq!(titles, ["Peers: CPU of an echo: 64 B, 1 in flight", "Peers: CPU of an echo: 1 KiB, 1 in flight"]);
        let Body::Bars(bars) = &charts[0].panels[0].body else { panic!("no bars") };
        let rows: Vec<_> = bars.rows.iter().map(|row| (row.label.as_str(), row.look)).collect();
        assert_eq!(rows, [("fused", Some(Look::Measured(0))), ("yawc rustls", Some(Look::Other))]);
        assert_eq!(bars.rows[0].values[0].unwrap().median, 2.0);
    }

    #[test]
    fn sizes_ascend_and_missing_values_stay_missing() {
        let mut outcome = Outcome::of("offload");
        for (size, execution) in [(65_536, "inline"), (32_768, "inline"), (65_536, "gated")] {
            let case = Case::default().size(size).execution(execution).direction("write");
            outcome.lines.push(line("offload", &case, Metric::Transfer, 10.0));
        }
        let chart = charts(&outcome).remove(0);
        let Body::Lines(lines) = &chart.panels[0].body else { panic!("no lines") };
        assert_eq!(lines.ticks.iter().map(|(_, label)| label.as_str()).collect::<Vec<_>>(), ["32 KiB", "64 KiB"]);
        assert_eq!(lines.series[1].values[0], None);
        assert!(lines.series[0].values.iter().all(Option::is_some));
    }

    #[test]
    fn percentiles_and_stages_have_their_own_charts() {
        let mut outcome = Outcome::of("latency");
        for (metric, us) in [(Metric::LatencyP50, 10.0), (Metric::LatencyP999, 90.0)] {
            outcome.lines.push(line("latency", &Case::default().tls("fused").setup("rate=60%"), metric, us));
        }
        let chart = charts(&outcome).remove(0);
        let Body::Lines(lines) = &chart.panels[0].body else { panic!("no lines") };
        assert_eq!((lines.ticks.len(), chart.title.as_str()), (2, "Latency percentiles: rate=60%"));
        let mut outcome = Outcome::of("stages");
        for (setup, stage) in
            [("market over veth", "tls"), ("market over veth", "nic"), ("market over veth, mode 9", "tls")]
        {
            let case = Case::default().tls("fused").driver("epoll").setup(setup).stage(stage);
            outcome.lines.push(line("stages", &case, Metric::LatencyP50, 1.0));
        }
        let charts = charts(&outcome);
        assert_eq!(charts.len(), 1);
        let Body::Stacks(stacks) = &charts[0].panels[0].body else { panic!("no stacks") };
        assert_eq!(stacks.rows.len(), 1);
        assert_eq!(stacks.rows[0].values.as_ref().unwrap()[3], Some(1.0));
    }
}
