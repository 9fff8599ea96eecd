//! Counts times in few instructions. Histograms are built from the counts on request.

use hdrhistogram::Histogram;

/// Leading bits of a time that choose its slot. The middle of a slot stands for all its times, within 0.5 %.
///
/// With more bits the counts would not fit the nearest caches, and counting would take most of the probe's time.
const BITS: u32 = 8;

/// Longest time with a slot of its own, in ticks: about 90 s at 3 GHz. Longer ones count as this.
const LONGEST: u64 = (1 << 38) - 1;

/// Slots per power of two.
const STEP: usize = 1 << (BITS - 1);

/// Numbers of times, by slot.
struct Tally(Box<[u64]>);

impl Tally {
    fn new() -> Self {
        Self(vec![0; slot(LONGEST) + 1].into_boxed_slice())
    }

    #[inline]
    fn add(&mut self, ticks: u64) {
        if let Some(count) = self.0.get_mut(slot(ticks.min(LONGEST))) {
            *count += 1;
        }
    }

    fn histogram(&self) -> Histogram<u64> {
        let mut histogram = empty();
        for (slot, &count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            histogram.saturating_record_n(middle(slot), count);
        }
        histogram
    }
}

/// A message's times in ticks, in the order of the stages.
pub(super) type Times = [u64; 8];

/// The value of an unknown time.
pub(super) const UNKNOWN: u64 = u64::MAX;

/// Messages that are counted together.
const BATCH: usize = 256;

/// The times of messages, by stage.
pub(super) struct Tallies {
    stages: [Tally; 8],
    /// Messages to be counted, stage by stage: other work pushes a tally's memory out of the cache between messages.
    pending: Vec<Times>,
}

impl Tallies {
    pub(super) fn new() -> Self {
        Self { stages: std::array::from_fn(|_| Tally::new()), pending: Vec::with_capacity(BATCH) }
    }

    #[inline]
    pub(super) fn add(&mut self, times: Times) {
        self.pending.push(times);
        if self.pending.len() == BATCH {
            self.count();
        }
    }

    #[cold]
    fn count(&mut self) {
        for (stage, tally) in self.stages.iter_mut().enumerate() {
            for times in self.pending.iter().filter(|times| times[stage] != UNKNOWN) {
                tally.add(times[stage]);
            }
        }
        self.pending.clear();
    }

    pub(super) fn histograms(&self) -> [Histogram<u64>; 8] {
        std::array::from_fn(|stage| {
            let mut histogram = self.stages[stage].histogram();
            for times in self.pending.iter().filter(|times| times[stage] != UNKNOWN) {
                // As it will be counted, so that an earlier result is always a part of a later one.
                histogram.saturating_record(middle(slot(times[stage].min(LONGEST))));
            }
            histogram
        })
    }

    /// The number of messages, by the count of a `stage` that every message has.
    pub(super) fn messages(&self, stage: usize) -> u64 {
        self.stages[stage].0.iter().sum::<u64>() + self.pending.len() as u64
    }
}

/// An empty histogram, at least as fine as a [`Tally`].
pub(super) fn empty() -> Histogram<u64> {
    #[expect(clippy::expect_used, reason = "constant bounds and precision, which the constructor accepts")]
    Histogram::new_with_bounds(1, LONGEST, 3).expect("valid bounds")
}

/// The slot of a time: its leading bits, behind all slots of lower powers of two.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "less than 2^BITS after the shift")]
const fn slot(ticks: u64) -> usize {
    let shift = (ticks | ((1 << BITS) - 1)).ilog2() + 1 - BITS;
    shift as usize * STEP + (ticks >> shift) as usize
}

/// The time that stands for all of a slot.
const fn middle(slot: usize) -> u64 {
    (shortest(slot) + shortest(slot + 1) - 1) / 2
}

/// The shortest time of a slot.
const fn shortest(slot: usize) -> u64 {
    let shift = (slot / STEP).saturating_sub(1);
    ((slot - shift * STEP) as u64) << shift
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, Tally, shortest, slot};

    #[test]
    fn slots_are_contiguous_and_exact_to_one_percent() {
        let mut last = slot(0);
        for bits in 0..38 {
            for offset in [0, 1, 2, 77, 1_000, (1 << bits) - 1] {
                let ticks = (1_u64 << bits) + (offset % (1 << bits));
                let begin = shortest(slot(ticks));
                assert!(begin <= ticks && (ticks - begin) as f64 <= ticks as f64 / 100.0, "{ticks} is {begin}");
                assert_eq!(slot(begin), slot(ticks));
            }
            let first = slot(1 << bits);
            assert!(first > last, "{bits}");
            last = first;
        }
        assert_eq!(slot(255) + 1, slot(256));
        assert_eq!(slot((1 << 20) - 1) + 1, slot(1 << 20));
    }

    #[test]
    fn a_histogram_has_all_counted_times() {
        let mut tally = Tally::new();
        for ticks in [0, 0, 200, 5_000, LONGEST, u64::MAX] {
            tally.add(ticks);
        }
        let histogram = tally.histogram();
        assert_eq!((histogram.len(), histogram.min(), histogram.count_at(0), histogram.count_at(200)), (6, 0, 2, 1));
        let between = |from, to| histogram.count_between(from, to);
        assert_eq!((between(4_976, 5_024), between(LONGEST - LONGEST / 200, LONGEST)), (1, 2));
        assert!(histogram.max() <= LONGEST);
    }
}
