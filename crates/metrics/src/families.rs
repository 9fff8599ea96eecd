//! Families of metrics, written from values that were read before.

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt::Error;
use tautline_engine::Durations;

/// The prefix of all families but those of the process.
const PREFIX: &str = "tautline";

/// A label with its value.
pub(crate) type Label<'a> = (&'static str, &'a str);

/// Writes families of metrics one after the other.
pub(crate) struct Families<'a>(pub(crate) DescriptorEncoder<'a>);

impl Families<'_> {
    /// One number that only grows.
    pub(crate) fn counter(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        let name = format!("{PREFIX}_{name}");
        count(&mut self.0.encode_descriptor(&name, help, None, MetricType::Counter)?, value)
    }

    /// Numbers that only grow, by the values of one label.
    pub(crate) fn counters<L: AsRef<str>>(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        values: impl IntoIterator<Item = (L, u64)>,
    ) -> Result<(), Error> {
        let name = format!("{PREFIX}_{name}");
        let mut family = self.0.encode_descriptor(&name, help, None, MetricType::Counter)?;
        values.into_iter().try_for_each(|(is, value)| count(&mut family.encode_family(&[(label, is.as_ref())])?, value))
    }

    /// One present number.
    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        let name = format!("{PREFIX}_{name}");
        self.0.encode_descriptor(&name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    /// Present numbers, by the values of one label.
    pub(crate) fn gauges<L: AsRef<str>>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        label: &'static str,
        values: impl IntoIterator<Item = (L, u64)>,
    ) -> Result<(), Error> {
        let name = format!("{PREFIX}_{name}");
        let mut family = self.0.encode_descriptor(&name, help, unit, MetricType::Gauge)?;
        values
            .into_iter()
            .try_for_each(|(is, value)| family.encode_family(&[(label, is.as_ref())])?.encode_gauge(&value))
    }

    /// Points in time, in seconds since 1970, each with several labels.
    pub(crate) fn times(&mut self, name: &str, help: &str, values: &[(Vec<Label<'_>>, i64)]) -> Result<(), Error> {
        let name = format!("{PREFIX}_{name}");
        let mut family = self.0.encode_descriptor(&name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
        values.iter().try_for_each(|(labels, value)| family.encode_family(labels)?.encode_gauge(value))
    }

    /// Facts as labels.
    pub(crate) fn info(&mut self, name: &str, help: &str, labels: &[Label<'_>]) -> Result<(), Error> {
        let name = format!("{PREFIX}_{name}");
        self.0.encode_descriptor(&name, help, None, MetricType::Info)?.encode_info(&labels)
    }

    /// Distributions of times in seconds, by the values of one label; an empty label stands for none.
    pub(crate) fn histograms<'v>(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        values: impl IntoIterator<Item = (&'v str, Histogram)>,
    ) -> Result<(), Error> {
        let name = format!("{PREFIX}_{name}");
        let mut family = self.0.encode_descriptor(&name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        values.into_iter().try_for_each(|(is, histogram)| {
            if label.is_empty() {
                histogram.encode(&mut family)
            } else {
                histogram.encode(&mut family.encode_family(&[(label, is)])?)
            }
        })
    }

    /// One number of the process that only grows, by its well-known name.
    pub(crate) fn process_seconds(&mut self, name: &str, help: &str, value: f64) -> Result<(), Error> {
        let mut metric = self.0.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, f64, f64>(&value, None)
    }

    /// One present number of the process, by its well-known name.
    pub(crate) fn process_gauge(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        value: f64,
    ) -> Result<(), Error> {
        self.0.encode_descriptor(name, help, unit, MetricType::Gauge)?.encode_gauge(&value)
    }
}

fn count(metric: &mut MetricEncoder<'_>, value: u64) -> Result<(), Error> {
    metric.encode_counter::<NoLabelSet, u64, f64>(&value, None)
}

/// A distribution of times.
pub(crate) struct Histogram {
    /// The sum in seconds.
    sum: f64,
    /// The upper end of each range in seconds, the last one infinite, and the number of times in it.
    ranges: Vec<(f64, u64)>,
}

impl Histogram {
    /// The distribution of times that are sorted into these ranges: their upper ends in seconds, in order.
    pub(crate) fn sorted(sum: f64, ends: &[f64], times: impl IntoIterator<Item = (f64, u64)>) -> Self {
        let mut ranges: Vec<(f64, u64)> = ends.iter().copied().chain([f64::INFINITY]).map(|end| (end, 0)).collect();
        for (time, count) in times {
            let place = ends.partition_point(|end| *end < time);
            ranges[place].1 += count;
        }
        Self { sum, ranges }
    }

    fn encode(&self, metric: &mut MetricEncoder<'_>) -> Result<(), Error> {
        let count = self.ranges.iter().map(|(_, count)| count).sum();
        metric.encode_histogram::<NoLabelSet>(self.sum, count, &self.ranges, None)
    }
}

impl From<&Durations> for Histogram {
    fn from(durations: &Durations) -> Self {
        let ranges = durations.ranges().map(|(end, count)| (end.map_or(f64::INFINITY, |end| end.as_secs_f64()), count));
        Self { sum: durations.sum().as_secs_f64(), ranges: ranges.collect() }
    }
}
