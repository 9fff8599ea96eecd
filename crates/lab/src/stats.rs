//! Medians, their uncertainty, and whether two rows differ.
//!
//! Rounds are few, and a shared machine disturbs some of them, so nothing here assumes a distribution. Values are medians,
//! with confidence intervals by resampling (Efron's percentile bootstrap).

use std::fmt;
use tautline_measure::SplitMix;

/// Number of resamples of the bootstrap.
const RESAMPLES: usize = 2_000;

/// Constant seed, so that the same runs always give the same interval.
const SEED: u64 = 0x7461_7574_6c69_6e65;

/// Statistics of several rounds of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    /// Number of rounds.
    pub(crate) count: usize,
    /// Median.
    pub(crate) median: f64,
    /// Least value.
    pub(crate) min: f64,
    /// Greatest value.
    pub(crate) max: f64,
    /// 95 % confidence interval of the median.
    pub(crate) interval: Interval,
}

impl Summary {
    /// Summarises `values`; `None` if there are none or one is not a number.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() || values.iter().any(|value| value.is_nan()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            count: sorted.len(),
            median: median_of_sorted(&sorted),
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            interval: bootstrap(&sorted),
        })
    }

    /// Half the interval's width over the median: 0.05 reads "± 5 %".
    pub(crate) fn spread(&self) -> f64 {
        (self.interval.high - self.interval.low) / 2.0 / self.median.abs()
    }
}

/// A closed interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    /// Lower end.
    pub(crate) low: f64,
    /// Upper end.
    pub(crate) high: f64,
}

impl Interval {
    /// Whether `value` lies inside the interval.
    pub(crate) const fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}-{:.2}", self.low, self.high)
    }
}

/// Ratio of two cases that were measured in the same rounds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ratio {
    /// The first over the second, one value per round.
    pub(crate) runs: Vec<f64>,
    /// Summary of `runs`.
    pub(crate) summary: Summary,
}

impl Ratio {
    /// The ratio of each round's `over` to the same round's `under`. A disturbance that hits both cancels out.
    ///
    /// `None` if there are no rounds, if one measured 0, or if one case has more rounds than the other.
    pub(crate) fn paired(over: &[f64], under: &[f64]) -> Option<Self> {
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
    pub(crate) fn is_undecided(&self) -> bool {
        self.summary.count < 3 || self.summary.interval.contains(1.0)
    }
}

/// The median; `None` if there are no values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_and_even_counts() {
        let odd = Summary::of(&[9.0, 1.0, 5.0, 3.0, 7.0]).unwrap();
        assert_eq!((odd.median, odd.min, odd.max, odd.count), (5.0, 1.0, 9.0, 5));
        let even = Summary::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(even.median, 2.5);
    }

    #[test]
    fn no_values_and_not_a_number_have_no_summary() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn one_run_is_its_own_interval() {
        let one = Summary::of(&[2.0]).unwrap();
        assert_eq!((one.interval.low, one.interval.high), (2.0, 2.0));
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
    fn a_disturbance_that_hits_both_cancels_out_of_the_ratio() {
        let under = [10.0, 20.0, 10.0, 11.0, 40.0];
        let over: Vec<f64> = under.iter().map(|value| value * 1.25).collect();
        let ratio = Ratio::paired(&over, &under).unwrap();
        assert_eq!((ratio.summary.median, ratio.summary.max - ratio.summary.min), (1.25, 0.0));
        assert!(!ratio.is_undecided());
    }

    #[test]
    fn an_interval_around_one_is_undecided() {
        let ratio = Ratio::paired(&[1.0, 1.1, 0.9, 1.2, 0.95], &[1.0; 5]).unwrap();
        assert!(ratio.is_undecided());
    }

    #[test]
    fn two_rounds_are_undecided() {
        assert!(Ratio::paired(&[2.0, 2.0], &[1.0, 1.0]).unwrap().is_undecided());
    }

    #[test]
    fn a_measured_zero_has_no_ratio() {
        assert_eq!(Ratio::paired(&[1.0, 1.0], &[1.0, 0.0]), None);
    }

    #[test]
    fn cases_with_different_numbers_of_rounds_are_not_paired() {
        assert_eq!(Ratio::paired(&[1.0, 1.0, 1.0], &[1.0, 1.0]), None);
    }
}
