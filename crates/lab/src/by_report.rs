//! A program's stages by the method of the report on stages, beside the report's.

use crate::published::{STAGES, by_text, compositions};
use crate::table::{Table, optional};
use tautline::{MessageTimes, Stage};

/// Messages before the first sample, as in the report.
const WARM_UP: usize = 100;
/// Samples, as in the report.
const SAMPLES: usize = 300;

/// Collects the samples of a run.
#[derive(Clone, Debug, Default)]
pub struct ByReport {
    skipped: usize,
    /// Microseconds, in the order of the columns.
    samples: Vec<[Option<f64>; STAGES.len()]>,
}

impl ByReport {
    /// Takes a message. Those of the warm-up, and those after the last sample, are left out.
    pub fn add(&mut self, times: &MessageTimes) {
        if self.skipped < WARM_UP {
            self.skipped += 1;
        } else if self.samples.len() < SAMPLES {
            let us = |stage: Stage| times.stage(stage).map(|time| time.as_secs_f64() * 1e6);
            let read = us(Stage::Loop).map(|waited| waited + us(Stage::Read).unwrap_or(0.0));
            let sample = [Stage::Nic, Stage::Tls, Stage::Parse, Stage::Callback, Stage::App, Stage::Total].map(us);
            let [nic, tls, parse, callback, app, total] = sample;
            self.samples.push([nic, read, tls, parse, callback, app, total]);
        }
    }

    /// The table: this run first, then the report's compositions. `None` as long as there are too few samples.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<String> {
        if self.samples.len() < SAMPLES {
            return None;
        }
        let mut titles = vec!["<mean, us"];
        titles.extend(STAGES.map(|(name, _)| name));
        titles.extend(["stddev", "p99"]);
        let mut table = Table::new(&titles);
        let columns = (0..STAGES.len()).map(|at| Column::of(self.samples.iter().filter_map(|sample| sample[at])));
        let columns: Vec<Option<Column>> = columns.collect();
        let total = columns.last().cloned().flatten();
        let cells = columns.iter().map(|column| column.as_ref().map(|column| column.mean));
        let tail = [total.as_ref().map(|total| total.stddev), total.map(|total| total.p99)];
        table.row([name.to_owned()].into_iter().chain(cells.chain(tail).map(optional)));
        for (at, composition) in compositions().iter().enumerate() {
            let figure =
                |detail: &str, word: &str| by_text("stages", &format!("mode={} detail={detail}", at + 1), Some(word));
            let cells = STAGES.map(|(_, detail)| figure(detail, "mean"));
            let tail = ["stddev", "p99"].map(|word| figure("End-to-End", word));
            table.row([format!("p. {composition}")].into_iter().chain(cells.into_iter().chain(tail).map(optional)));
        }
        Some(format!(
            "By the method of the report of 2025-12-06: {WARM_UP} messages to warm up, then {SAMPLES} samples. p.: as\n\
             published, on another machine. read has the wait in the loop, as the report's second stage has.\n\
             stddev and p99 are those of total.\n\n{table}"
        ))
    }
}

/// Statistics of a column.
#[derive(Clone, Debug)]
struct Column {
    mean: f64,
    stddev: f64,
    p99: f64,
}

impl Column {
    fn of(samples: impl Iterator<Item = f64>) -> Option<Self> {
        let mut samples: Vec<f64> = samples.collect();
        if samples.is_empty() {
            return None;
        }
        samples.sort_by(f64::total_cmp);
        let count = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / count;
        let variance = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / count;
        let p99 = samples[(samples.len() * 99).div_ceil(100) - 1];
        Some(Self { mean, stddev: variance.sqrt(), p99 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_all_compositions_once_there_are_enough_samples() {
        let mut report = ByReport { skipped: WARM_UP, samples: vec![[Some(1.0); STAGES.len()]; SAMPLES - 1] };
        assert_eq!(report.table("ours"), None);
        report.samples.push([None, Some(1.0), Some(2.0), Some(3.0), Some(4.0), Some(5.0), Some(301.0)]);
        let table = report.table("ours").unwrap();
        assert_eq!(table.lines().filter(|line| line.starts_with("p. ")).count(), compositions().len(), "{table}");
        let ours = table.lines().find(|line| line.starts_with("ours")).unwrap();
        let cells: Vec<&str> = ours.split_whitespace().collect();
        assert_eq!((cells[1], cells[2], cells[7]), ("1.00", "1.00", "2.00"), "{ours}");
        assert!(table.contains("24.8") || table.contains("24.76"), "{table}");
    }
}
