use crate::published;
use crate::stats::Summary;
use crate::table::number;
use crate::{Case, Metric};
use serde::{Deserialize, Deserializer, Serialize};

/// Bound that a value must keep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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

    /// Met or missed by the median; uncertain if the interval lies on both sides of the bound.
    pub(crate) fn verdict(self, summary: &Summary) -> &'static str {
        let ends = [summary.interval.low, summary.interval.high].map(|end| self.is_met_by(end));
        let is_sure = summary.count > 2 && ends[0] == ends[1];
        match (self.is_met_by(summary.median), is_sure) {
            (true, true) => "met",
            (true, false) => "met, uncertain",
            (false, true) => "missed",
            (false, false) => "missed, uncertain",
        }
    }

    /// The bound.
    pub(crate) const fn bound(self) -> f64 {
        match self {
            Self::AtMost(bound) | Self::AtLeast(bound) => bound,
        }
    }

    /// The bound with its sign: `<= 1.13`.
    pub(crate) fn wanted(self) -> String {
        let sign = if matches!(self, Self::AtMost(_)) { "<=" } else { ">=" };
        format!("{sign} {}", number(self.bound()))
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
    /// Name of the target, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The parts of a stored [`Line`] that are read. The median and the unit follow from the rest.
#[derive(Deserialize)]
struct Stored {
    suite: String,
    case: Case,
    metric: Metric,
    runs: Vec<f64>,
    published: Option<f64>,
    #[serde(default)]
    target: Option<Target>,
    #[serde(default)]
    name: Option<String>,
}

impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Stored { suite, case, metric, runs, published, target, name } = Stored::deserialize(deserializer)?;
        let summary = Summary::of(&runs).filter(|summary| summary.median.is_finite());
        let value = summary.ok_or_else(|| serde::de::Error::custom("`runs` has no numbers"))?.median;
        Ok(Self { suite, case, metric, value, unit: metric.unit(), runs, published, target, name })
    }
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
            name: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Protocol;
    use serde_json::json;

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
}
