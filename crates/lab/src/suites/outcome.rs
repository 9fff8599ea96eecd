use super::Effort;
use super::row::{Row, Subject};
use crate::rounds::Runs;
use crate::{Case, Line, Metric};
use serde::{Deserialize, Serialize};

/// Spread of a row from which on the machine is too noisy for fine comparisons.
const NOISY: f64 = 0.10;

/// Result of a suite.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// Name of the suite.
    pub suite: String,
    /// Time that was spent; `None` if it is unknown.
    pub effort: Option<Effort>,
    /// Length of the suite in seconds; 0 if it is unknown.
    pub seconds: f64,
    /// Whether the suite was ended early, so that results are missing.
    pub is_interrupted: bool,
    /// Reason why the suite has no results.
    pub failure: Option<String>,
    /// Results for programs.
    #[serde(skip)]
    pub lines: Vec<Line>,
    /// Tables for people.
    pub text: String,
    /// Limits of the figures' meaning.
    pub warnings: Vec<String>,
    /// Recommended configuration, in one line.
    pub advice: Option<String>,
}

impl Outcome {
    /// A suite without results.
    #[must_use]
    pub fn of(suite: &str) -> Self {
        Self { suite: suite.to_owned(), ..Self::default() }
    }

    /// Adds the line of one metric, if it was measured.
    pub(super) fn add(&mut self, case: &Case, metric: Metric, runs: &[f64]) -> Option<&mut Line> {
        self.lines.push(Line::new(&self.suite, case, metric, runs)?);
        self.lines.last_mut()
    }

    /// Adds one line for each metric of a row, and a warning if it failed.
    pub(super) fn add_row<S: Subject>(&mut self, row: &Row<S>) {
        self.add_row_beside(row, |_| None);
    }

    /// As [`add_row`](Self::add_row), beside figures that [`lookup`](crate::published::lookup) does not find.
    pub(super) fn add_row_beside<S: Subject>(&mut self, row: &Row<S>, published: impl Fn(Metric) -> Option<f64>) {
        let case = row.subject.case();
        for (&metric, runs) in &row.samples {
            if let Some(line) = self.add(&case, metric, runs) {
                line.published = published(metric).or(line.published);
            }
        }
        self.warnings.extend(row.failed.as_ref().map(|error| format!("not measured: {error}")));
    }

    /// Warns if rounds differ so much that small differences mean nothing, by the metric that the rows are judged by.
    pub(super) fn warn_if_noisy<S: Subject>(&mut self, rows: &[Row<S>], judged: impl Fn(&S) -> Metric) {
        let spread = |row: &Row<S>| Some(row.summary(judged(&row.subject)).filter(|it| it.count > 1)?.spread());
        let mut spreads: Vec<_> = rows.iter().filter_map(|row| Some((&row.subject, spread(row)?))).collect();
        let count = spreads.len();
        spreads.retain(|(_, spread)| *spread > NOISY);
        spreads.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        if let Some((noisiest, spread)) = spreads.first() {
            let (number, name, spread) = (spreads.len(), noisiest.name(), spread * 100.0);
            self.warnings.push(format!(
                "{number} of {count} rows spread by more than ± {:.0} %, most {name} with ± {spread:.0} %; smaller \
                 differences than a row's spread mean nothing",
                NOISY * 100.0
            ));
        }
    }
}
