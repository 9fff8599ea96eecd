//! Targets of a suite, and how surely its figures reach them.

use super::Outcome;
use crate::stats::{Ratio, Summary};
use crate::table::{Table, number};
use crate::{Case, Metric, Target};

/// One figure and its target.
pub(super) struct Check {
    /// Name in the table: `64 B: wss fused uring over tcp uring`.
    name: String,
    case: Case,
    metric: Metric,
    runs: Vec<f64>,
    target: Target,
}

impl Check {
    /// A measured figure, with one value per round.
    pub(super) fn of(name: String, case: Case, (metric, runs): (Metric, &[f64]), target: Target) -> Self {
        Self { name, case, metric, runs: runs.to_vec(), target }
    }

    /// A ratio; `None` if there is none, as when a round measured 0.
    pub(super) fn ratio(
        name: String,
        case: Case,
        (metric, ratio): (Metric, Option<Ratio>),
        target: Target,
    ) -> Option<Self> {
        Some(Self { name, case, metric, runs: ratio?.runs, target })
    }
}

/// Adds the table of targets, and a line for each.
pub(super) fn report(outcome: &mut Outcome, checks: impl IntoIterator<Item = Check>) {
    let mut table = Table::new(&["<target", "is", "95 %", "<wanted", "<verdict"]);
    for check in checks {
        let Some(summary) = Summary::of(&check.runs) else { continue };
        let (wanted, verdict) = (check.target.wanted(), check.target.verdict(&summary).to_owned());
        let interval = format!("{}-{}", number(summary.interval.low), number(summary.interval.high));
        table.row([check.name.clone(), number(summary.median), interval, wanted, verdict]);
        if let Some(line) = outcome.add(&check.case, check.metric, &check.runs) {
            (line.target, line.name) = (Some(check.target), Some(check.name));
        }
    }
    outcome.text += &table.below("\nTargets; uncertain where the 95 % interval lies on both sides:");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(runs: &[f64], target: Target) -> Check {
        Check::of("this".to_owned(), Case::default(), (Metric::RatioToLimit, runs), target)
    }

    #[test]
    fn verdicts_say_how_sure_they_are() {
        for (runs, target, verdict) in [
            ([1.0, 1.01, 0.99], Target::AtMost(1.13), "met"),
            ([1.0, 1.2, 0.99], Target::AtMost(1.13), "met, uncertain"),
            ([1.2, 1.1, 1.3], Target::AtMost(1.13), "missed, uncertain"),
            ([1.2, 1.21, 1.3], Target::AtMost(1.13), "missed"),
            ([12.0, 11.0, 13.0], Target::AtLeast(10.0), "met"),
            ([9.0, 8.0, 7.0], Target::AtLeast(10.0), "missed"),
        ] {
            let summary = Summary::of(&runs).unwrap();
            assert_eq!(target.verdict(&summary), verdict, "{runs:?}");
        }
        let short = [1.0];
        assert_eq!(Target::AtMost(2.0).verdict(&Summary::of(&short).unwrap()), "met, uncertain");
    }

    #[test]
    fn each_check_has_a_row_and_a_line_with_its_target() {
        let mut outcome = Outcome::of("limits");
        report(&mut outcome, [check(&[1.0, 1.1, 1.2], Target::AtMost(1.07))]);
        assert!(outcome.text.contains("this") && outcome.text.contains("<= 1.07"), "{}", outcome.text);
        assert_eq!((outcome.lines.len(), outcome.lines[0].target), (1, Some(Target::AtMost(1.07))));
        report(&mut outcome, []);
        assert_eq!(outcome.lines.len(), 1);
    }
}
