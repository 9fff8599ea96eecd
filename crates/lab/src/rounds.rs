//! Cases that take turns, round by round.

use crate::stats::{Ratio, Summary};
use crate::{Error, Metric};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Number of rounds, and the time for them.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Wanted rounds; every round measures every case once.
    pub(crate) rounds: usize,
    /// Rounds that are measured even beyond the budget.
    pub(crate) least_rounds: usize,
    /// No round begins that would probably end later than this.
    pub(crate) budget: Option<Duration>,
}

impl Plan {
    /// Whether a round that may take `longest` may begin `elapsed` after the start.
    fn admits(&self, round: usize, elapsed: Duration, longest: Duration) -> bool {
        round < self.rounds
            && (round < self.least_rounds || self.budget.is_none_or(|budget| elapsed + longest <= budget))
    }
}

/// Position of a measurement in its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Number of the case, from 0.
    pub(crate) case: usize,
    /// Number of the round, from 0.
    pub(crate) round: usize,
    /// Measurements done.
    pub(crate) done: usize,
    /// Measurements planned.
    pub(crate) total: usize,
}

impl Step {
    /// Progress of a task whose part `share` is the run.
    pub(crate) fn within(self, share: &Range<f64>) -> f64 {
        share.start + (share.end - share.start) * self.done as f64 / self.total as f64
    }
}

/// Measures every case once a round, in turn (A B C A B C ...).
///
/// A disturbance of the machine then hits all cases alike, and the ratio of two cases within a round stays true. `stop` ends
/// the rounds early. Returns the number of complete rounds.
pub(crate) fn interleave<C>(
    cases: &mut [C],
    plan: &Plan,
    stop: &AtomicBool,
    mut measure: impl FnMut(&mut C, Step) -> Result<(), Error>,
) -> Result<usize, Error> {
    let start = Instant::now();
    let count = cases.len();
    let mut longest = Duration::ZERO;
    let mut round = 0;
    while plan.admits(round, start.elapsed(), longest) {
        let began = Instant::now();
        for (number, case) in cases.iter_mut().enumerate() {
            if stop.load(Ordering::Relaxed) {
                return Ok(round);
            }
            measure(case, Step { case: number, round, done: round * count + number, total: plan.rounds * count })?;
        }
        longest = longest.max(began.elapsed());
        round += 1;
    }
    Ok(round)
}

/// Values of one case by metric, one per round, in the order measured.
pub(crate) type Samples = BTreeMap<Metric, Vec<f64>>;

/// Statistics of values by metric.
pub(crate) trait Runs {
    /// One value per round; empty if the metric was not measured.
    fn runs(&self, metric: Metric) -> &[f64];

    /// Summary of the rounds.
    fn summary(&self, metric: Metric) -> Option<Summary> {
        Summary::of(self.runs(metric))
    }

    /// Median of the rounds.
    fn median(&self, metric: Metric) -> Option<f64> {
        Some(self.summary(metric)?.median)
    }

    /// Half the width of the interval over the median, in %.
    fn spread_percent(&self, metric: Metric) -> Option<f64> {
        Some(self.summary(metric)?.spread() * 100.0)
    }

    /// Ratio of a metric to that of another case, round by round.
    fn over(&self, other: &impl Runs, metric: Metric) -> Option<Ratio> {
        Ratio::paired(self.runs(metric), other.runs(metric))
    }

    /// Median of that ratio.
    fn times(&self, other: &impl Runs, metric: Metric) -> Option<f64> {
        Some(self.over(other, metric)?.summary.median)
    }
}

impl Runs for Samples {
    fn runs(&self, metric: Metric) -> &[f64] {
        self.get(&metric).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_take_turns() {
        let plan = Plan { rounds: 3, least_rounds: 1, budget: None };
        let mut order = String::new();
        let mut steps = Vec::new();
        let measure = |case: &mut char, step: Step| {
            order.push(*case);
            steps.push((step.case, step.round, step.done, step.total));
            Ok(())
        };
        let rounds = interleave(&mut ['a', 'b'], &plan, &AtomicBool::new(false), measure).unwrap();
        assert_eq!((rounds, order.as_str()), (3, "ababab"));
        assert_eq!(steps, [(0, 0, 0, 6), (1, 0, 1, 6), (0, 1, 2, 6), (1, 1, 3, 6), (0, 2, 4, 6), (1, 2, 5, 6)]);
    }

    #[test]
    fn the_budget_ends_a_run_after_the_least_rounds() {
        let plan = Plan { rounds: 9, least_rounds: 2, budget: Some(Duration::from_secs(10)) };
        let second = Duration::from_secs(1);
        assert!(plan.admits(0, second * 100, second));
        assert!(plan.admits(1, second * 100, second));
        assert!(!plan.admits(2, second * 100, second));
        assert!(plan.admits(2, second * 9, second));
        assert!(!plan.admits(2, second * 9, second * 2));
        assert!(!plan.admits(9, second, second));
        assert!(Plan { budget: None, ..plan }.admits(6, second * 10_000, second));
    }

    #[test]
    fn an_error_ends_the_run() {
        let mut calls = 0;
        let plan = Plan { rounds: 3, least_rounds: 3, budget: None };
        let result = interleave(&mut [1, 2, 3], &plan, &AtomicBool::new(false), |case, _| {
            calls += 1;
            if *case == 2 { Err(Error::Failed("no".into())) } else { Ok(()) }
        });
        assert!(matches!(result, Err(Error::Failed(_))));
        assert_eq!(calls, 2);
    }

    #[test]
    fn a_stopped_run_counts_its_complete_rounds() {
        let (stop, mut calls) = (AtomicBool::new(false), 0);
        let plan = Plan { rounds: 3, least_rounds: 3, budget: None };
        let rounds = interleave(&mut [1, 2], &plan, &stop, |_, _| {
            calls += 1;
            stop.store(calls == 3, Ordering::Relaxed);
            Ok(())
        });
        assert_eq!((rounds.unwrap(), calls), (1, 3));
    }
}
