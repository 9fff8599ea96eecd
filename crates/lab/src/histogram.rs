use crate::Metric;
use hdrhistogram::Histogram;
use std::time::Duration;

/// Longest latency that is recorded; longer ones count as this one.
const LONGEST: Duration = Duration::from_secs(600);

/// Latencies of one round.
///
/// A closed loop waits for each reply before it sends the next message. It sends nothing while the server stalls, so a
/// stall counts once, and its tail is shorter than that of independent users ("coordinated omission"). An open loop has
/// no such gap: it records from the time at which a message was *due*, even if the message left later.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// An empty histogram.
    #[must_use]
    pub fn new() -> Self {
        let longest = u64::try_from(LONGEST.as_nanos()).unwrap_or(u64::MAX);
        #[expect(clippy::expect_used, reason = "constant bounds and precision, which the constructor accepts")]
        Self(Histogram::new_with_bounds(1, longest, 3).expect("valid bounds"))
    }

    /// Records the latency of one message.
    #[inline]
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).max(1));
    }

    /// Number of recorded messages.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Adds what `other` recorded.
    pub(crate) fn add(&mut self, other: &Self) {
        // Both have the same bounds, so nothing is too large.
        let _ = self.0.add(&other.0);
    }

    /// The latencies recorded since `earlier`, a copy of these at an earlier time.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        // Cannot fail: the bounds are equal, and each count has only grown.
        let _ = since.0.subtract(&earlier.0);
        since
    }

    /// Removes all recorded latencies.
    pub(crate) fn clear(&mut self) {
        self.0.reset();
    }

    /// Microseconds at or below which the share `quantile` (0 to 1) lies.
    #[must_use]
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e3
    }

    /// As [`metrics`](Self::metrics), with the greatest latency.
    pub(crate) fn metrics_with_max(&self) -> Vec<(Metric, f64)> {
        let mut metrics = self.metrics();
        if self.count() > 0 {
            metrics.push((Metric::LatencyMax, self.quantile_us(1.0)));
        }
        metrics
    }

    /// Median, p99 and p99.9 in us; empty if nothing was recorded.
    pub(crate) fn metrics(&self) -> Vec<(Metric, f64)> {
        if self.count() == 0 {
            return Vec::new();
        }
        [(Metric::LatencyP50, 0.5), (Metric::LatencyP99, 0.99), (Metric::LatencyP999, 0.999)]
            .map(|(metric, quantile)| (metric, self.quantile_us(quantile)))
            .to_vec()
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_in_us_and_exact_to_three_digits() {
        let mut latencies = Latencies::new();
        for us in 1..=1000 {
            latencies.record(Duration::from_micros(us));
        }
        let metrics = latencies.metrics();
        for ((_, value), expected) in metrics.iter().zip([500.0, 990.0, 999.0]) {
            assert!((value / expected - 1.0).abs() < 2e-3, "{value} instead of {expected}");
        }
    }

    #[test]
    fn records_the_shortest_and_the_longest_latency() {
        let mut latencies = Latencies::new();
        latencies.record(Duration::ZERO);
        latencies.record(Duration::MAX);
        assert_eq!(latencies.count(), 2);
        assert!((latencies.quantile_us(1.0) / 600e6 - 1.0).abs() < 2e-3);
        assert_eq!(latencies.metrics_with_max()[3].0, Metric::LatencyMax);
        latencies.clear();
        assert_eq!((latencies.metrics(), latencies.metrics_with_max()), (Vec::new(), Vec::new()));
    }
}
