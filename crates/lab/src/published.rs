//! Figures of earlier reports, shown beside measured ones.
//!
//! They were measured on other machines, so only their shape compares (the policy that wins, and from which size on),
//! not their values. A figure is used if every fact that the report gives of its case holds for the measured case too.
//! Facts that the report leaves out (driver, key, pipeline) exclude nothing.

use crate::{Case, Metric, Protocol};
use std::sync::LazyLock;

/// One figure of a report.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// Suite that reproduces the report.
    pub(crate) suite: &'static str,
    /// Case and metric in the report's words.
    pub(crate) text: &'static str,
    pub(crate) metric: &'static str,
    /// Value in the unit of results: MiB/s and ms are converted to MB/s and us.
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// Title of the report.
    pub(crate) source: &'static str,
    /// `text` as a case; `None` if a word of it has no meaning here.
    pub(crate) case: Option<Case>,
}

impl Figure {
    /// The value in the unit of the metric that it is compared with.
    pub(crate) fn comparable(&self) -> f64 {
        if self.unit == "ns/op" { self.value / 1e3 } else { self.value }
    }
}

static FIGURES: LazyLock<Vec<Figure>> =
    LazyLock::new(|| include_str!("../published.csv").lines().skip(1).filter_map(figure).collect());

/// All figures, in the order of the reports.
pub(crate) fn figures() -> &'static [Figure] {
    &FIGURES
}

/// The published figure for a measured case, if there is one.
///
/// Echo cases of every suite compare with the report on offloading: its inline server is an ordinary echo server.
pub(crate) fn lookup(suite: &str, case: &Case, metric: Metric) -> Option<f64> {
    let suite = if matches!(suite, "overview" | "echo" | "limits" | "peers") { "offload" } else { suite };
    let case = with_defaults(case);
    figures()
        .iter()
        .filter(|figure| {
            figure.suite == suite
                && figure.metric == metric.name()
                && figure.unit == metric.unit()
                && figure.case.as_ref().is_some_and(|said| said.covers(&case))
        })
        // A figure for these circumstances precedes one that names none.
        .min_by_key(|figure| figure.case.as_ref().is_none_or(|said| said.setup.is_none()))
        .map(|figure| figure.value)
}

/// The value of the figure that [`find`] finds.
pub(crate) fn by_text(suite: &str, text: &str, metric: Option<&str>) -> Option<f64> {
    find(suite, text, metric).map(|figure| figure.value)
}

/// The first figure with this text, and with this metric if one is given, both in the report's words.
pub(crate) fn find(suite: &str, text: &str, metric: Option<&str>) -> Option<&'static Figure> {
    figures().iter().find(|figure| {
        figure.suite == suite && figure.text == text && metric.is_none_or(|metric| figure.metric == metric)
    })
}

/// The report's compositions by its numbers, from 1: `XDP, WolfSSL`, `epoll, OpenSSL`.
pub(crate) fn compositions() -> &'static [String] {
    static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let find = |mode: usize| {
            let begin = format!("mode={mode} transport=");
            figures().iter().find_map(|figure| figure.text.strip_prefix(begin.as_str()))
        };
        (1..).map_while(find).map(composition).collect()
    });
    &NAMES
}

/// A composition in short: a transport of its own, or else the event loop, and the TLS library.
fn composition(text: &str) -> String {
    let (transport, rest) = text.split_once(" event=").unwrap_or((text, ""));
    let (event, tls) = rest.split_once(" tls=").unwrap_or((rest, ""));
    let loops = if transport == "BSD Socket" { event } else { transport };
    format!("{loops}, {tls}")
}

/// Our names of stages, with those of the report. Its stage "Event" holds our loop and read.
pub(crate) const STAGES: [(&str, &str); 7] = [
    ("nic", "Stage_1->2"),
    ("read", "Stage_2->3"),
    ("tls", "Stage_3->4"),
    ("parse", "Stage_4->5"),
    ("callback", "Stage_5->6"),
    ("app", "Total"),
    ("total", "End-to-End"),
];

/// Adds the facts that our cases leave out: TLS runs inline by default.
pub(crate) fn with_defaults(case: &Case) -> Case {
    let mut case = case.clone();
    case.execution.get_or_insert_with(|| "inline".to_owned());
    case
}

/// Parses a line of the table, whose fields are never quoted.
fn figure(line: &'static str) -> Option<Figure> {
    let mut fields = line.split(',');
    let (suite, text, metric) = (fields.next()?, fields.next()?, fields.next()?);
    let (value, unit) = (fields.next()?.parse::<f64>().ok()?, fields.next()?);
    let source = fields.next().filter(|source| !source.is_empty())?;
    let (value, unit) = match unit {
        "MiB/s" => (value * 1.048_576, "MB/s"),
        "ms" => (value * 1e3, "us"),
        _ => (value, unit),
    };
    Some(Figure { suite, text, metric, value, unit, source, case: case(text) })
}

/// Parses the words of a case. A word without meaning here excludes the figure from [`lookup`], so that none is used
/// too widely.
fn case(text: &str) -> Option<Case> {
    let mut case = Case::default();
    for word in text.split(' ') {
        match word.split_once('=') {
            Some(("size", number)) => case.size = Some(number.parse().ok()?),
            Some(("connections", number)) => case.connections = Some(number.parse().ok()?),
            Some(("threads", number)) => case.threads = Some(number.parse().ok()?),
            Some(("execution", "offload-always")) => case.execution = Some("always-offload".to_owned()),
            Some(("execution", name)) => case.execution = Some(name.to_owned()),
            Some(("model", name)) => case.model = Some(name.to_owned()),
            Some(("strategy", "window-bio+direct-decrypt")) => case.strategy = Some("direct".to_owned()),
            Some(("strategy", name)) => case.strategy = Some(name.to_owned()),
            Some(_) => return None,
            None => match word {
                "tcp" => case.protocol = Some(Protocol::Tcp),
                "ws" => case.protocol = Some(Protocol::Ws),
                "wss" => case.protocol = Some(Protocol::Wss),
                "read" | "write" => case.direction = Some(word.to_owned()),
                "OpenSSL" | "BoringSSL" => case.tls = Some(word.to_ascii_lowercase()),
                "64B" => case.size = Some(64),
                "10MB" => case.size = Some(10_000_000),
                "spill" => case.setup = Some(word.to_owned()),
                "forced" | "100%" | "echo" | "bulk" | "messages" | "duplex" | "32KiB" | "buffers" | "TLS1.3" | "1"
                | "connection" => {}
                _ => return None,
            },
        }
    }
    Some(case)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo(size: u64, connections: u64) -> Case {
        Case { protocol: Some(Protocol::Wss), size: Some(size), connections: Some(connections), ..Case::default() }
    }

    #[test]
    fn reads_every_line_of_the_table() {
        assert_eq!(figures().len(), include_str!("../published.csv").lines().count() - 1);
        assert!(figures().iter().all(|figure| figure.value.is_finite()));
    }

    #[test]
    fn echo_cases_find_the_figure_of_the_inline_server() {
        assert_eq!(lookup("overview", &echo(64, 100), Metric::Throughput), Some(186_068.0));
        assert_eq!(lookup("echo", &echo(1024, 100), Metric::Throughput), Some(149_246.0));
        let offloaded = Case { execution: Some("always-offload".into()), ..echo(64, 500) };
        assert_eq!(lookup("offload", &offloaded, Metric::LatencyMean), Some(9_060.0));
    }

    #[test]
    fn cases_outside_a_report_have_no_figure() {
        assert_eq!(lookup("echo", &echo(64, 99), Metric::Throughput), None);
        assert_eq!(lookup("echo", &echo(64, 100), Metric::LatencyP99), None);
        let plain = Case { protocol: Some(Protocol::Ws), ..echo(64, 100) };
        assert_eq!(lookup("echo", &plain, Metric::Throughput), None);
        assert_eq!(lookup("idle", &echo(64, 100), Metric::Throughput), None);
    }

    #[test]
    fn facts_that_a_report_leaves_out_exclude_nothing() {
        let case = Case {
            tls: Some("boringssl".into()),
            model: Some("loop-per-core".into()),
            size: Some(10_000_000),
            connections: Some(20),
            threads: Some(7),
            driver: Some("epoll".into()),
            ..Case::default()
        };
        assert_eq!(lookup("scaling", &case, Metric::Transfer), Some(1_821.33));
    }

    #[test]
    fn figures_have_the_units_of_results() {
        let transfer = lookup("offload", &echo(64, 100), Metric::Transfer).unwrap();
        assert!((transfer - 20.26 * 1.048_576).abs() < 1e-9);
        assert!(figures().iter().all(|figure| figure.unit != "ms" && figure.unit != "MiB/s"));
    }

    #[test]
    fn compositions_have_short_names() {
        let names = compositions();
        assert_eq!(names.len(), 11);
        assert_eq!([&names[0], &names[3], &names[6]], ["XDP, WolfSSL", "epoll, kTLS", "io_uring, OpenSSL"]);
    }
}
