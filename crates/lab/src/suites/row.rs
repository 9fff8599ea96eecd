//! The runner of all suites: rows take turns, round by round.

use super::Lab;
use crate::rounds::{Plan, Runs, Samples, Step, interleave};
use crate::{Case, Error, Metric};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Values of one measurement.
pub(super) type Metrics = Vec<(Metric, f64)>;

/// A case that a suite measures.
pub(super) trait Subject {
    /// Name in progress, warnings and errors.
    fn name(&self) -> String;

    /// Identity in results.
    fn case(&self) -> Case;
}

/// A subject with the values of its rounds.
pub(super) struct Row<S> {
    pub(super) subject: S,
    pub(super) samples: Samples,
    /// Reason why it is not measured any more.
    pub(super) failed: Option<Error>,
}

impl<S> Row<S> {
    pub(super) const fn new(subject: S) -> Self {
        Self { subject, samples: Samples::new(), failed: None }
    }

    /// Drops the values of a round that was stopped, so that rows still compare round by round. A first round is kept.
    fn keep_rounds(&mut self, rounds: usize) {
        self.samples.values_mut().for_each(|runs| runs.truncate(rounds.max(1)));
    }
}

impl<S> Runs for Row<S> {
    fn runs(&self, metric: Metric) -> &[f64] {
        self.samples.runs(metric)
    }
}

impl<S: Subject> Row<S> {
    /// Measures once, and adds the values.
    fn measure(
        &mut self,
        lab: &mut Lab<'_>,
        step: Step,
        share: &Range<f64>,
        run: &mut impl FnMut(&Lab<'_>, &mut S, Step) -> Result<Metrics, Error>,
    ) -> Result<(), Error> {
        let name = self.subject.name();
        (lab.progress)(step.within(share), &name);
        let metrics = run(lab, &mut self.subject, step).map_err(|error| error.in_case(&name))?;
        add(&mut self.samples, metrics);
        Ok(())
    }
}

/// Adds the values of a round.
pub(super) fn add(samples: &mut Samples, metrics: Metrics) {
    for (metric, value) in metrics {
        samples.entry(metric).or_default().push(value);
    }
}

/// The row with the least median of a metric.
pub(super) fn least<'a, S>(rows: impl Iterator<Item = &'a Row<S>>, metric: Metric) -> Option<&'a Row<S>> {
    let known = rows.filter_map(|row| Some((row.median(metric)?, row)));
    known.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, row)| row)
}

/// Measures rows in interleaved rounds by `run`. Progress covers the part `share` of the suite.
///
/// An interrupt ends the rounds too, see [`Lab::stop`].
///
/// # Errors
/// The first error of `run` ends the rounds.
pub(super) fn measure<'a, S: Subject + 'a>(
    lab: &mut Lab<'_>,
    rows: impl IntoIterator<Item = &'a mut Row<S>>,
    plan: &Plan,
    share: Range<f64>,
    mut run: impl FnMut(&Lab<'_>, &mut S, Step) -> Result<Metrics, Error>,
) -> Result<(), Error> {
    let mut rows: Vec<_> = rows.into_iter().collect();
    let stop = lab.stop;
    let rounds = interleave(&mut rows, plan, stop, |row, step| row.measure(lab, step, &share, &mut run))?;
    if stop.load(Ordering::Relaxed) {
        rows.iter_mut().for_each(|row| row.keep_rounds(rounds));
    }
    Ok(())
}

/// As [`measure`], but a row that fails keeps its error and is left out from then on.
pub(super) fn measure_tolerant<'a, S: Subject + 'a>(
    lab: &mut Lab<'_>,
    rows: impl IntoIterator<Item = &'a mut Row<S>>,
    plan: &Plan,
    share: Range<f64>,
    mut run: impl FnMut(&Lab<'_>, &mut S, Step) -> Result<Metrics, Error>,
) -> Result<(), Error> {
    let mut rows: Vec<_> = rows.into_iter().collect();
    let stop = lab.stop;
    interleave(&mut rows, plan, stop, |row, step| {
        if row.failed.is_none() {
            row.failed = row.measure(lab, step, &share, &mut run).err();
        }
        Ok(())
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Effort;
    use super::*;
    use std::sync::atomic::AtomicBool;

    struct Letter(char);

    impl Subject for Letter {
        fn name(&self) -> String {
            self.0.to_string()
        }

        fn case(&self) -> Case {
            Case::default().setup(self.name().as_str())
        }
    }

    /// Measures rows a and b three times; b fails from the second round on. Returns the progress too.
    fn measured(rows: &mut [Row<Letter>; 2], is_tolerant: bool) -> (Result<(), Error>, Vec<(f64, String)>) {
        let mut progress = Vec::new();
        let stop = AtomicBool::new(false);
        let mut note = |share: f64, name: &str| progress.push((share, name.to_owned()));
        let mut lab = Lab::new("/bin/true", Effort::Smoke, &stop, &mut note);
        let plan = Plan { rounds: 3, least_rounds: 3, budget: None };
        let run = |_: &Lab<'_>, letter: &mut Letter, step: Step| match (letter.0, step.round) {
            ('b', 1..) => Err(Error::Failed("no".to_owned())),
            (_, round) => Ok(vec![(Metric::Throughput, round as f64)]),
        };
        let result = if is_tolerant {
            measure_tolerant(&mut lab, rows, &plan, 0.5..1.0, run)
        } else {
            measure(&mut lab, rows, &plan, 0.5..1.0, run)
        };
        (result, progress)
    }

    #[test]
    fn an_error_names_its_row_and_ends_the_rounds() {
        let mut rows = ['a', 'b'].map(|letter| Row::new(Letter(letter)));
        let (result, progress) = measured(&mut rows, false);
        assert_eq!(result.unwrap_err().to_string(), "b: no");
        assert_eq!([rows[0].runs(Metric::Throughput), rows[1].runs(Metric::Throughput)], [&[0.0, 1.0][..], &[0.0]]);
        assert_eq!(progress[0], (0.5, "a".to_owned()));
        assert_eq!(progress.len(), 4);
    }

    #[test]
    fn a_tolerant_run_leaves_a_failed_row_out() {
        let mut rows = ['a', 'b'].map(|letter| Row::new(Letter(letter)));
        let (result, progress) = measured(&mut rows, true);
        assert!(result.is_ok());
        assert_eq!(rows[0].runs(Metric::Throughput), [0.0, 1.0, 2.0]);
        assert_eq!(rows[1].failed.as_ref().map(Error::to_string), Some("b: no".to_owned()));
        assert_eq!(progress.len(), 5, "{progress:?}");
    }
}
