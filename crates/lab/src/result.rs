use crate::published;
use crate::stats::Summary;
use crate::{Case, Machine, Metric};
use serde::Serialize;
use std::io::{self, Write};

/// Bound that a value must keep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// The value must not be greater.
    AtMost(f64),
    /// The value must not be less.
    AtLeast(f64),
}

impl Target {
    /// Whether `value` keeps the bound.
    #[must_use]
    pub fn is_met_by(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }
}

/// One result: the median over rounds, with every round's value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Suite: `overview`, `echo`.
    pub suite: String,
    /// Identity of the measurement.
    pub case: Case,
    /// Measured quantity.
    pub metric: Metric,
    /// Median of `runs`.
    pub value: f64,
    /// Unit of `value`, `runs` and `published`.
    pub unit: &'static str,
    /// One value per round, in the order measured.
    pub runs: Vec<f64>,
    /// Figure of an earlier report for such a case, measured on another machine.
    pub published: Option<f64>,
    /// Bound that `value` must keep, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
}

impl Line {
    /// Makes the line of `runs`; `None` if there are no runs.
    #[must_use]
    pub fn new(suite: &str, case: &Case, metric: Metric, runs: &[f64]) -> Option<Self> {
        Some(Self {
            suite: suite.to_owned(),
            case: case.clone(),
            metric,
            value: Summary::of(runs)?.median,
            unit: metric.unit(),
            runs: runs.to_vec(),
            published: published::lookup(suite, case, metric),
            target: None,
        })
    }
}

/// Writes results as JSON: the machine first, then one object per line.
///
/// # Errors
/// `out` failed.
pub fn write_json(out: &mut impl Write, machine: &Machine, lines: &[Line]) -> io::Result<()> {
    #[derive(Serialize)]
    struct First<'a> {
        machine: &'a Machine,
    }
    serde_json::to_writer(&mut *out, &First { machine })?;
    out.write_all(b"\n")?;
    for line in lines {
        serde_json::to_writer(&mut *out, line)?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Protocol;
    use serde_json::{Value, json};

    #[test]
    fn a_line_has_the_documented_shape() {
        let case = Case {
            protocol: Some(Protocol::Wss),
            tls: Some("rustls".into()),
            size: Some(64),
            connections: Some(7),
            resumed: Some(false),
            ..Case::default()
        };
        let line = Line::new("echo", &case, Metric::ServerCpuPerMsg, &[3.0, 1.0, 2.0]).unwrap();
        assert_eq!(
            serde_json::to_value(&line).unwrap(),
            json!({
                "suite": "echo",
                "case": {"protocol": "wss", "tls": "rustls", "size": 64, "connections": 7, "resumed": false},
                "metric": "server_cpu_per_msg",
                "value": 2.0,
                "unit": "us",
                "runs": [3.0, 1.0, 2.0],
                "published": null,
            })
        );
    }

    #[test]
    fn a_target_is_written_where_there_is_one() {
        let line = Line::new("limits", &Case::default(), Metric::RatioToLimit, &[1.0]).unwrap();
        let line = Line { target: Some(Target::AtMost(1.13)), ..line };
        assert_eq!(serde_json::to_value(&line).unwrap()["target"], json!({"at_most": 1.13}));
        assert!(Target::AtMost(1.13).is_met_by(1.13) && !Target::AtMost(1.13).is_met_by(1.14));
        assert!(Target::AtLeast(10.0).is_met_by(10.0) && !Target::AtLeast(10.0).is_met_by(9.9));
    }

    #[test]
    fn no_runs_make_no_line() {
        assert_eq!(Line::new("echo", &Case::default(), Metric::Throughput, &[]), None);
    }

    #[test]
    fn the_machine_comes_first_and_each_object_has_its_line() {
        let line = Line::new("limits", &Case::default(), Metric::RatioToLimit, &[1.5]).unwrap();
        let mut out = Vec::new();
        write_json(&mut out, &Machine::here(), &[line.clone(), line]).unwrap();
        let text = String::from_utf8(out).unwrap();
        let objects: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(objects.len(), 3);
        for fact in ["cpu", "cores", "kernel", "features", "memory", "libraries", "commit", "rustc", "date"] {
            assert!(!objects[0]["machine"][fact].is_null(), "{fact} is missing");
        }
        assert_eq!(objects[1]["metric"], "ratio_to_limit");
        assert_eq!(objects[1]["unit"], "x");
    }
}
