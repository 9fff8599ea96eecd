//! Metrics of a hub: questions to its application, and bounds that clients have met.

use std::fmt;
use std::sync::{Arc, OnceLock};
use tautline::layers::metrics::prometheus_client::collector::Collector;
use tautline::layers::metrics::prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use tautline::layers::metrics::prometheus_client::metrics::MetricType;
use tautline::layers::metrics::prometheus_client::registry::{Registry, Unit};
use tautline_hub::Hub;

/// The hub of a server. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(super) struct HubMetrics(Arc<OnceLock<Hub>>);

impl HubMetrics {
    pub(super) fn set(&self, hub: &Hub) {
        // A server has one hub.
        let _ = self.0.set(hub.clone());
    }

    pub(super) fn register(&self, metrics: &mut Registry) {
        if self.0.get().is_some() {
            metrics.register_collector(Box::new(self.clone()));
        }
    }
}

impl Collector for HubMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(hub) = self.0.get() else { return Ok(()) };
        let counts = hub.hook_counts();
        let counters = [
            ("taut_hub_hook_calls", "Requests to the application of [hooks]", counts.calls),
            ("taut_hub_hook_failures", "Requests to the application without an answer that counts", counts.failures),
            ("taut_hub_hook_refused", "Answers of the application that refuse", counts.refused),
            ("taut_hub_hook_cached", "Questions that an earlier answer decided", counts.cached),
            ("taut_hub_hook_full", "Questions that were not asked, since too many waited", counts.full),
        ];
        for (name, help, value) in counters {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            metric.encode_counter::<NoLabelSet, u64, u64>(&value, None)?;
        }
        let help = "Questions that wait for the application";
        encoder
            .encode_descriptor("taut_hub_hook_waiting", help, None, MetricType::Gauge)?
            .encode_gauge(&counts.waiting)?;
        let ranges: Vec<(f64, u64)> = counts
            .times
            .iter()
            .map(|(most, count)| (if most.as_secs() > 3_600 { f64::INFINITY } else { most.as_secs_f64() }, *count))
            .collect();
        let (help, number) = ("Times of requests to the application", ranges.iter().map(|(_, count)| count).sum());
        let mut times =
            encoder.encode_descriptor("taut_hub_hook", help, Some(&Unit::Seconds), MetricType::Histogram)?;
        times.encode_histogram::<NoLabelSet>(counts.time.as_secs_f64(), number, &ranges, None)?;
        let help = "Requests and messages that a bound of the rules refused, by its name in the file";
        let mut met = encoder.encode_descriptor("taut_hub_bound_met", help, None, MetricType::Counter)?;
        for (name, value) in hub.bounds_met() {
            met.encode_family(&[("bound", name)])?.encode_counter::<NoLabelSet, u64, u64>(&value, None)?;
        }
        Ok(())
    }
}
