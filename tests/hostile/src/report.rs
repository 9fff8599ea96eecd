//! The table of attacks, grouped and numbered.

use crate::script::Script;
use serde_json::json;

/// One attack and its outcome.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) target: String,
    /// The group's number, a full stop, and the script's number.
    pub(crate) number: String,
    pub(crate) group: &'static str,
    pub(crate) name: String,
    pub(crate) expected: String,
    pub(crate) outcome: String,
    pub(crate) passed: bool,
    pub(crate) seconds: f64,
    /// Growth of the server's resident memory at its highest, in bytes.
    pub(crate) growth: u64,
    /// The 99th percentile of honest connections meanwhile, in milliseconds.
    pub(crate) p99: Option<f64>,
}

impl Row {
    pub(crate) fn new(target: String, number: String, script: &Script) -> Self {
        Self {
            target,
            number,
            group: script.group,
            name: script.name.clone(),
            expected: script.expectation(),
            outcome: String::new(),
            passed: false,
            seconds: 0.0,
            growth: 0,
            p99: None,
        }
    }
}

/// Prints rows and counts them.
pub(crate) struct Report {
    json: bool,
    /// Prints every row, and not only those that failed.
    every: bool,
    rows: Vec<Row>,
    group: (String, &'static str),
}

impl Report {
    pub(crate) const fn new(json: bool, every: bool) -> Self {
        Self { json, every, rows: Vec::new(), group: (String::new(), "") }
    }

    pub(crate) fn add(&mut self, row: Row) {
        if self.json {
            println!("{}", as_json(&row));
        } else if self.every || !row.passed {
            let group = (row.target.clone(), row.group);
            if self.group != group {
                println!("\n{} · {}. {}", row.target, row.number.split('.').next().unwrap_or_default(), row.group);
                self.group = group;
            }
            println!("{}", line(&row));
        }
        self.rows.push(row);
    }

    /// Prints the sums. Returns whether all passed.
    pub(crate) fn finish(&self) -> bool {
        let failed = self.rows.iter().filter(|row| !row.passed).count();
        if self.json {
            let (passed, failed) = (self.rows.len() - failed, failed);
            println!("{}", json!({ "passed": passed, "failed": failed }));
            return failed == 0;
        }
        let mut targets: Vec<&str> = self.rows.iter().map(|row| row.target.as_str()).collect();
        targets.sort_unstable();
        targets.dedup();
        println!("\n{:<24}{:>8}{:>8}{:>12}{:>12}", "server", "passed", "failed", "growth", "p99");
        for target in targets {
            let rows: Vec<&Row> = self.rows.iter().filter(|row| row.target == target).collect();
            let passed = rows.iter().filter(|row| row.passed).count();
            let growth = rows.iter().map(|row| row.growth).max().unwrap_or(0);
            let p99 = rows.iter().filter_map(|row| row.p99).fold(0.0, f64::max);
            let failed = rows.len() - passed;
            println!("{target:<24}{passed:>8}{failed:>8}{:>8.1} MiB{p99:>9.1} ms", mebibytes(growth));
        }
        println!("growth and p99 are the highest beside one attack");
        println!("{} passed, {failed} failed", self.rows.len() - failed);
        failed == 0
    }
}

fn mebibytes(bytes: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a figure with one decimal")]
    let bytes = bytes as f64;
    bytes / f64::from(1 << 20)
}

fn line(row: &Row) -> String {
    let mark = if row.passed { "passed" } else { "FAILED" };
    let p99 = row.p99.map_or_else(String::new, |p99| format!("{p99:>7.1} ms"));
    let Row { number, name, expected, outcome, seconds, growth, .. } = row;
    let outcome = if row.passed { outcome.clone() } else { format!("{outcome}, not {expected}") };
    format!("{mark} {number:>6} {name:<58} {outcome:<24}{seconds:>7.2} s{:>7.1} MiB{p99}", mebibytes(*growth))
}

fn as_json(row: &Row) -> serde_json::Value {
    json!({
        "target": row.target, "number": row.number, "group": row.group, "attack": row.name,
        "expected": row.expected, "outcome": row.outcome, "passed": row.passed, "seconds": row.seconds,
        "growth_bytes": row.growth, "honest_p99_ms": row.p99,
    })
}
