//! Cases in turn, round by round.

use crate::stats::Summary;
use crate::{Error, Metric};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often and how long to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Rounds to aim at; every round measures every case once.
    pub rounds: usize,
    /// Rounds that are measured even where the budget is used up.
    pub least_rounds: usize,
    /// No round begins that would probably end later than this.
    pub budget: Option<Duration>,
}

impl Plan {
    /// Enough rounds for an interval that means something.
    #[must_use]
    pub const fn thorough() -> Self {
        Self { rounds: 7, least_rounds: 3, budget: None }
    }

    /// Three rounds: what the interval needs at least.
    #[must_use]
    pub const fn quick() -> Self {
        Self { rounds: 3, least_rounds: 3, budget: None }
    }

    /// Whether a round that may take `longest` may begin `elapsed` after the start.
    fn admits(&self, round: usize, elapsed: Duration, longest: Duration) -> bool {
        round < self.rounds
            && (round < self.least_rounds || self.budget.is_none_or(|budget| elapsed + longest <= budget))
    }
}

/// Where a run stands, for a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Number of the case, from 0.
    pub case: usize,
    /// Number of the round, from 0.
    pub round: usize,
    /// Measurements done.
    pub done: usize,
    /// Measurements planned.
    pub total: usize,
}

/// What the rounds of one case gave, by metric, in the order measured.
pub type Samples = BTreeMap<Metric, Vec<f64>>;

/// Looking into [`Samples`].
pub(crate) trait Runs {
    /// One value for each round; none where the metric was not measured.
    fn runs(&self, metric: Metric) -> &[f64];

    /// Their median.
    fn median(&self, metric: Metric) -> Option<f64> {
        Summary::of(self.runs(metric)).map(|summary| summary.median)
    }
}

impl Runs for Samples {
    fn runs(&self, metric: Metric) -> &[f64] {
        self.get(&metric).map_or(&[], Vec::as_slice)
    }
}

/// Measures every case once a round, in turn (A B C A B C ...), so that what disturbs the machine for a while disturbs
/// all cases alike and the ratio of two cases within a round stays true.
///
/// # Errors
/// The first error of `measure` ends the run.
pub fn interleave<C>(
    cases: &mut [C],
    plan: &Plan,
    mut progress: impl FnMut(Step),
    mut measure: impl FnMut(&mut C, Step) -> Result<Vec<(Metric, f64)>, Error>,
) -> Result<Vec<Samples>, Error> {
    let start = Instant::now();
    let total = plan.rounds * cases.len();
    let mut samples = vec![Samples::new(); cases.len()];
    let mut longest = Duration::ZERO;
    let mut round = 0;
    while plan.admits(round, start.elapsed(), longest) {
        let began = Instant::now();
        for (number, case) in cases.iter_mut().enumerate() {
            let step = Step { case: number, round, done: round * samples.len() + number, total };
            progress(step);
            for (metric, value) in measure(case, step)? {
                samples[number].entry(metric).or_default().push(value);
            }
        }
        longest = longest.max(began.elapsed());
        round += 1;
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_take_turns_and_their_values_stay_in_order() {
        let plan = Plan { rounds: 3, least_rounds: 1, budget: None };
        let mut order = String::new();
        let mut done = Vec::new();
        let samples = interleave(
            &mut ['a', 'b'],
            &plan,
            |step| done.push((step.done, step.total)),
            |case, step| {
                order.push(*case);
                Ok(vec![(Metric::Throughput, step.round as f64)])
            },
        )
        .unwrap();
        assert_eq!(order, "ababab");
        assert_eq!(done, [(0, 6), (1, 6), (2, 6), (3, 6), (4, 6), (5, 6)]);
        assert_eq!(samples[1][&Metric::Throughput], [0.0, 1.0, 2.0]);
    }

    #[test]
    fn the_budget_ends_a_run_but_not_before_the_least_rounds() {
        let plan = Plan { rounds: 9, least_rounds: 2, budget: Some(Duration::from_secs(10)) };
        let second = Duration::from_secs(1);
        assert!(plan.admits(0, second * 100, second));
        assert!(plan.admits(1, second * 100, second));
        assert!(!plan.admits(2, second * 100, second));
        assert!(plan.admits(2, second * 9, second));
        assert!(!plan.admits(2, second * 9, second * 2));
        assert!(!plan.admits(9, second, second));
        assert!(Plan::thorough().admits(6, second * 10_000, second));
    }

    #[test]
    fn an_error_ends_the_run() {
        let mut calls = 0;
        let result = interleave(
            &mut [1, 2, 3],
            &Plan::quick(),
            |_| (),
            |case, _| {
                calls += 1;
                if *case == 2 { Err(Error::Failed("no".into())) } else { Ok(Vec::new()) }
            },
        );
        assert!(matches!(result, Err(Error::Failed(_))));
        assert_eq!(calls, 2);
    }
}
