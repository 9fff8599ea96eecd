use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper ends of the ranges of times, in seconds.
pub const ENDS: [f64; 12] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// A number that one loop writes and any thread reads. So an addition is a load and a store, and locks nothing.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, more: u64) {
        self.0.store(self.get().wrapping_add(more), Ordering::Relaxed);
    }

    pub(super) fn remove(&self, fewer: u64) {
        self.0.store(self.get().wrapping_sub(fewer), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The times of one loop, by ranges.
#[derive(Debug, Default)]
pub(super) struct Times {
    micros: Count,
    ranges: [Count; ENDS.len() + 1],
}

impl Times {
    pub(super) fn add(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.ranges[ENDS.partition_point(|end| *end < seconds)].add(1);
        self.micros.add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }
}

/// The distribution of times of all loops.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spread {
    /// The sum in seconds.
    pub sum: f64,
    /// The number of times in each range: those of [`ENDS`], and one for longer ones.
    pub ranges: [u64; ENDS.len() + 1],
}

impl Spread {
    pub(super) fn add(&mut self, times: &Times) {
        self.sum += times.micros.get() as f64 / 1e6;
        self.ranges.iter_mut().zip(&times.ranges).for_each(|(sum, count)| *sum += count.get());
    }
}

#[cfg(test)]
mod tests {
    use super::{Spread, Times};
    use std::time::Duration;

    #[test]
    fn a_time_belongs_to_the_range_that_ends_with_it() {
        let times = Times::default();
        for millis in [1, 2, 10_000, 10_001] {
            times.add(Duration::from_millis(millis));
        }
        let mut spread = Spread::default();
        spread.add(&times);
        assert_eq!(spread.ranges, [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert!((spread.sum - 20.004).abs() < 1e-9, "{}", spread.sum);
    }
}
