//! Medians, their uncertainty, and whether two rows differ at all.
//!
//! Rounds are few and a shared machine disturbs some of them, so nothing here assumes a distribution: medians, and
//! confidence intervals by resampling what was measured (Efron's percentile bootstrap).

/// How often the bootstrap resamples.
const RESAMPLES: usize = 2_000;

/// One seed for all: the same runs always give the same interval.
const SEED: u64 = 0x7461_7574_6c69_6e65;

/// What several rounds of one measurement say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Rounds.
    pub count: usize,
    /// Middle value.
    pub median: f64,
    /// Least value.
    pub min: f64,
    /// Greatest value.
    pub max: f64,
    /// Median of the distances from the median.
    pub mad: f64,
    /// The median lies in here with 95 % confidence.
    pub interval: Interval,
}

impl Summary {
    /// Summarises `values`; `None` where there are none, or one is no number.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() || values.iter().any(|value| value.is_nan()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let median = median_of_sorted(&sorted);
        let mut distances: Vec<f64> = sorted.iter().map(|value| (value - median).abs()).collect();
        distances.sort_by(f64::total_cmp);
        Some(Self {
            count: sorted.len(),
            median,
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            mad: median_of_sorted(&distances),
            interval: bootstrap(&sorted),
        })
    }

    /// Half the interval's width over the median: 0.05 reads "± 5 %".
    #[must_use]
    pub fn spread(&self) -> f64 {
        (self.interval.high - self.interval.low) / 2.0 / self.median.abs()
    }
}

/// A closed interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Whether `value` lies inside.
    #[must_use]
    pub const fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// How two cases compare that were measured in the same rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratio {
    /// The first over the second, one value per round.
    pub runs: Vec<f64>,
    /// What the rounds say together.
    pub summary: Summary,
}

impl Ratio {
    /// The ratio of each round's `over` to the same round's `under`. A disturbance that hits both falls out.
    ///
    /// `None` where there are no rounds, one of them measured 0, or only one of both could be measured in some.
    #[must_use]
    pub fn paired(over: &[f64], under: &[f64]) -> Option<Self> {
        if over.len() != under.len() {
            return None;
        }
        let runs: Vec<f64> = over.iter().zip(under).map(|(a, b)| a / b).collect();
        if runs.iter().any(|ratio| !ratio.is_finite()) {
            return None;
        }
        let summary = Summary::of(&runs)?;
        Some(Self { runs, summary })
    }

    /// Whether the rounds are too few or too noisy to tell the two cases apart.
    #[must_use]
    pub fn is_undecided(&self) -> bool {
        self.summary.count < 3 || self.summary.interval.contains(1.0)
    }

    /// Says so, where it is undecided.
    #[must_use]
    pub fn warning(&self, over: &str, under: &str) -> Option<String> {
        self.is_undecided().then(|| {
            format!(
                "{over} and {under} cannot be told apart on this machine: {:.2} x, 95 % interval {:.2} to {:.2} over {} rounds",
                self.summary.median, self.summary.interval.low, self.summary.interval.high, self.summary.count
            )
        })
    }
}

/// The middle value; `None` where there are none.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| median_of_sorted(&sorted))
}

fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

/// The 2.5th and 97.5th percentile of the medians of resamples with replacement.
fn bootstrap(values: &[f64]) -> Interval {
    let mut random = SplitMix(SEED);
    let mut resample = vec![0.0; values.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            resample.fill_with(|| values[random.below(values.len())]);
            resample.sort_by(f64::total_cmp);
            median_of_sorted(&resample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    Interval { low: medians[RESAMPLES / 40], high: medians[RESAMPLES - 1 - RESAMPLES / 40] }
}

/// SplitMix64: small, and good enough to choose samples.
struct SplitMix(u64);

impl SplitMix {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the product's upper half is less than `bound`")]
    const fn below(&mut self, bound: usize) -> usize {
        ((self.next() as u128 * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_and_even_counts() {
        let odd = Summary::of(&[9.0, 1.0, 5.0, 3.0, 7.0]).unwrap();
        assert_eq!((odd.median, odd.min, odd.max, odd.mad, odd.count), (5.0, 1.0, 9.0, 2.0, 5));
        let even = Summary::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((even.median, even.mad), (2.5, 1.0));
    }

    #[test]
    fn nothing_and_not_a_number_have_no_summary() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn one_run_is_its_own_interval() {
        let one = Summary::of(&[2.0]).unwrap();
        assert_eq!((one.interval.low, one.interval.high, one.mad), (2.0, 2.0, 0.0));
    }

    #[test]
    fn splitmix_matches_its_reference() {
        // First outputs for seed 1234567 of the public-domain reference implementation.
        let mut random = SplitMix(1_234_567);
        assert_eq!([random.next(), random.next()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
        assert!((0..1000).all(|_| random.below(7) < 7));
    }

    #[test]
    fn the_interval_covers_the_true_median_about_as_often_as_it_says() {
        // 200 experiments of 15 draws from 0..1000, whose median is 499.5. Exact coverage of such intervals is about 0.95.
        let mut random = SplitMix(1);
        let covered = (0..200)
            .filter(|_| {
                let draws: Vec<f64> = (0..15).map(|_| random.below(1000) as f64).collect();
                Summary::of(&draws).unwrap().interval.contains(499.5)
            })
            .count();
        assert!((176..=200).contains(&covered), "covered {covered} of 200");
    }

    #[test]
    fn equal_runs_give_equal_intervals() {
        let runs = [1.0, 1.2, 0.9, 1.1, 1.05];
        assert_eq!(Summary::of(&runs), Summary::of(&runs));
    }

    #[test]
    fn a_disturbance_that_hits_both_falls_out_of_the_ratio() {
        let under = [10.0, 20.0, 10.0, 11.0, 40.0];
        let over: Vec<f64> = under.iter().map(|value| value * 1.25).collect();
        let ratio = Ratio::paired(&over, &under).unwrap();
        assert_eq!((ratio.summary.median, ratio.summary.mad), (1.25, 0.0));
        assert_eq!(ratio.warning("wss", "ws"), None);
    }

    #[test]
    fn rows_that_cross_are_undecided() {
        let ratio = Ratio::paired(&[1.0, 1.1, 0.9, 1.2, 0.95], &[1.0; 5]).unwrap();
        assert!(ratio.is_undecided());
        assert!(ratio.warning("wss", "ws").unwrap().starts_with("wss and ws cannot be told apart"));
    }

    #[test]
    fn two_rounds_decide_nothing() {
        assert!(Ratio::paired(&[2.0, 2.0], &[1.0, 1.0]).unwrap().is_undecided());
    }

    #[test]
    fn a_measured_zero_has_no_ratio() {
        assert_eq!(Ratio::paired(&[1.0, 1.0], &[1.0, 0.0]), None);
    }

    #[test]
    fn rounds_that_cannot_be_told_apart_are_not_paired() {
        assert_eq!(Ratio::paired(&[1.0, 1.0, 1.0], &[1.0, 1.0]), None);
    }
}
