//! Metrics of a hub: its namespaces, questions to its application, and bounds that clients have met.

use std::fmt;
use std::sync::{Arc, OnceLock};
use tautline::layers::metrics::prometheus_client::collector::Collector;
use tautline::layers::metrics::prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use tautline::layers::metrics::prometheus_client::metrics::MetricType;
use tautline::layers::metrics::prometheus_client::registry::{Registry, Unit};
use tautline_hub::{Hub, NamespaceFigures};

/// Name and help of a metric of namespaces, and its value.
type Series<T> = (&'static str, &'static str, fn(&NamespaceFigures) -> T);

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

    /// The hub of a server with `--app hub`.
    pub(super) fn hub(&self) -> Option<&Hub> {
        self.0.get()
    }

    /// The figures of each namespace: as many series as the file of rules has namespaces, up to a bound.
    fn encode_namespaces(&self, hub: &Hub, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let namespaces = hub.namespaces();
        let gauges: [Series<usize>; 2] = [
            ("taut_hub_topics", "Topics with subscribers, counted for each loop", |of| of.topics),
            ("taut_hub_subscribers", "Subscriptions of topics", |of| of.subscribers),
        ];
        for (name, help, value) in gauges {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for of in &namespaces {
                family.encode_family(&[("namespace", &*of.name)])?.encode_gauge(&(value(of) as u64))?;
            }
        }
        let counters: [Series<u64>; 5] = [
            ("taut_hub_publications", "Messages of clients and applications that were taken", |of| of.publications),
            ("taut_hub_deliveries", "Deliveries of messages to subscribers", |of| of.deliveries),
            ("taut_hub_drops", "Deliveries that were dropped, since a subscriber reads slowly", |of| of.drops),
            ("taut_hub_left_out", "Messages to plain topics that a loop had no room for", |of| of.left_out),
            ("taut_hub_history", "Messages that were kept, and sent to subscribers who came back", |of| of.history),
        ];
        for (name, help, value) in counters {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for of in &namespaces {
                let label = [("namespace", &*of.name)];
                family.encode_family(&label)?.encode_counter::<NoLabelSet, u64, u64>(&value(of), None)?;
            }
        }
        Ok(())
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
        self.encode_namespaces(hub, &mut encoder)?;
        let help = "Requests and messages that a bound of the rules refused, by its name in the file";
        let mut met = encoder.encode_descriptor("taut_hub_bound_met", help, None, MetricType::Counter)?;
        for (name, value) in hub.bounds_met() {
            met.encode_family(&[("bound", name)])?.encode_counter::<NoLabelSet, u64, u64>(&value, None)?;
        }
        Ok(())
    }
}
