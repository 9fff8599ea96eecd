//! Figures that earlier reports give, to stand beside measured ones.
//!
//! They come from other machines, so what compares is the shape (which policy wins, from which size on), not the value.
//! A figure is taken only where everything that the report says of its case is said of ours too; what the report does
//! not say (driver, key, pipeline) cannot rule it out.

use crate::{Case, Metric, Protocol};
use std::sync::LazyLock;

/// One figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Suite that reproduces the report.
    pub suite: &'static str,
    /// Case in the report's words.
    pub text: &'static str,
    /// Metric in the report's words.
    pub metric: &'static str,
    /// Value in `unit`.
    pub value: f64,
    /// MiB/s and ms are converted to the units of results, MB/s and us.
    pub unit: &'static str,
    /// The report.
    pub source: &'static str,
    /// `text` as a case, where all of it has a meaning here.
    case: Option<Case>,
}

static FIGURES: LazyLock<Vec<Figure>> =
    LazyLock::new(|| include_str!("../published.csv").lines().skip(1).filter_map(figure).collect());

/// All figures, in the order of the reports.
#[must_use]
pub fn figures() -> &'static [Figure] {
    &FIGURES
}

/// The figure for what was measured, where a report has one. Echo cases of every suite compare with the report on
/// offloading, whose inline server is an ordinary echo server.
#[must_use]
pub fn lookup(suite: &str, case: &Case, metric: Metric) -> Option<f64> {
    let suite = if matches!(suite, "overview" | "echo" | "limits" | "peers") { "offload" } else { suite };
    let case = with_defaults(case);
    figures()
        .iter()
        .filter(|figure| {
            figure.suite == suite
                && figure.metric == metric.name()
                && figure.unit == metric.unit()
                && figure.case.as_ref().is_some_and(|said| covers(said, &case))
        })
        // The first, but rather one that was measured under these circumstances.
        .min_by_key(|figure| figure.case.as_ref().is_none_or(|said| said.setup.is_none()))
        .map(|figure| figure.value)
}

/// A server of ours that does not say where TLS runs runs it inline.
fn with_defaults(case: &Case) -> Case {
    let mut case = case.clone();
    case.execution.get_or_insert_with(|| "inline".to_owned());
    case
}

/// Whether everything that `said` says holds for `case`.
fn covers(said: &Case, case: &Case) -> bool {
    fn holds<T: PartialEq>(said: Option<&T>, is: Option<&T>) -> bool {
        said.is_none() || said == is
    }
    holds(said.protocol.as_ref(), case.protocol.as_ref())
        && holds(said.tls.as_ref(), case.tls.as_ref())
        && holds(said.size.as_ref(), case.size.as_ref())
        && holds(said.connections.as_ref(), case.connections.as_ref())
        && holds(said.execution.as_ref(), case.execution.as_ref())
        && holds(said.model.as_ref(), case.model.as_ref())
        && holds(said.threads.as_ref(), case.threads.as_ref())
        && holds(said.strategy.as_ref(), case.strategy.as_ref())
        && holds(said.direction.as_ref(), case.direction.as_ref())
        && holds(said.setup.as_ref(), case.setup.as_ref())
}

/// One line of the table; none of its fields is quoted.
fn figure(line: &'static str) -> Option<Figure> {
    let mut fields = line.split(',');
    let (suite, text, metric) = (fields.next()?, fields.next()?, fields.next()?);
    let (value, unit, source) = (fields.next()?.parse::<f64>().ok()?, fields.next()?, fields.next()?);
    let (value, unit) = match unit {
        "MiB/s" => (value * 1.048_576, "MB/s"),
        "ms" => (value * 1e3, "us"),
        _ => (value, unit),
    };
    Some(Figure { suite, text, metric, value, unit, source, case: case(text) })
}

/// The words of a case. One that has no meaning here makes the figure unusable for [`lookup`], not silently wider.
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
    fn every_line_of_the_table_is_read() {
        assert_eq!(figures().len(), include_str!("../published.csv").lines().count() - 1);
        assert!(figures().iter().all(|figure| figure.value.is_finite() && !figure.source.is_empty()));
    }

    #[test]
    fn echo_cases_find_the_inline_server() {
        assert_eq!(lookup("overview", &echo(64, 100), Metric::Throughput), Some(186_068.0));
        assert_eq!(lookup("echo", &echo(1024, 100), Metric::Throughput), Some(149_246.0));
        let offloaded = Case { execution: Some("always-offload".into()), ..echo(64, 500) };
        assert_eq!(lookup("offload", &offloaded, Metric::LatencyMean), Some(9_060.0));
    }

    #[test]
    fn what_a_report_does_not_cover_has_no_figure() {
        assert_eq!(lookup("echo", &echo(64, 99), Metric::Throughput), None);
        assert_eq!(lookup("echo", &echo(64, 100), Metric::LatencyP99), None);
        let plain = Case { protocol: Some(Protocol::Ws), ..echo(64, 100) };
        assert_eq!(lookup("echo", &plain, Metric::Throughput), None);
        assert_eq!(lookup("idle", &echo(64, 100), Metric::Throughput), None);
    }

    #[test]
    fn extra_facts_of_ours_do_not_hide_a_figure() {
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
    fn units_are_those_of_results() {
        let transfer = lookup("offload", &echo(64, 100), Metric::Transfer).unwrap();
        assert!((transfer - 20.26 * 1.048_576).abs() < 1e-9);
        assert!(figures().iter().all(|figure| figure.unit != "ms" && figure.unit != "MiB/s"));
    }
}
