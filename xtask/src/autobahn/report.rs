//! The results of the suite.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

/// Results that are no violation.
const ACCEPTED: [&str; 3] = ["OK", "NON-STRICT", "INFORMATIONAL"];

/// The outcome of one run of the suite.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// The number of cases by their result.
    pub(super) counts: BTreeMap<String, usize>,
    /// One line for each case that failed or did not run.
    pub(super) wrong: Vec<String>,
}

impl Report {
    /// Compares the results in `index.json` with the cases that the suite's log announces.
    pub(super) fn read(folder: &Path, log: &Path) -> Self {
        let log = fs::read_to_string(log).unwrap_or_default();
        let Some(planned) = planned(&log) else {
            return Self::broken("the suite did not start".to_owned());
        };
        let Ok(text) = fs::read_to_string(folder.join("index.json")) else {
            let last = log.lines().rfind(|line| line.starts_with("Running test case ID"));
            return Self::broken(format!(
                "the suite wrote no report; the last case in its log: {}",
                last.unwrap_or("none")
            ));
        };
        let mut report = Self::judge(&planned, &text);
        for line in &mut report.wrong {
            if let Some(file) = line.rsplit_once(", see ").map(|(_, file)| folder.join(file))
                && let Ok(text) = fs::read_to_string(&file)
                && let Ok(detail) = serde_json::from_str::<Value>(&text)
            {
                line.push_str(&format!(": {}; {}", text_of(&detail["result"]), text_of(&detail["resultClose"])));
            }
        }
        report
    }

    /// The number of cases by their result, on one line.
    pub(super) fn summary(&self) -> String {
        let counts: Vec<String> = self.counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        if counts.is_empty() { "no result".to_owned() } else { counts.join(", ") }
    }

    /// The report of a run without results.
    pub(super) fn broken(reason: String) -> Self {
        Self { wrong: vec![reason], ..Self::default() }
    }

    fn judge(planned: &BTreeSet<String>, index: &str) -> Self {
        let index: Value = serde_json::from_str(index).unwrap_or_default();
        let results = index.as_object().and_then(|agents| agents.values().next()).unwrap_or(&Value::Null);
        let mut report = Self::default();
        if planned.is_empty() {
            report.wrong.push("no case matches".to_owned());
        }
        for case in planned {
            let (behavior, close) = (text_of(&results[case]["behavior"]), text_of(&results[case]["behaviorClose"]));
            if !ACCEPTED.contains(&behavior) || !ACCEPTED.contains(&close) {
                let file = text_of(&results[case]["reportfile"]);
                let what = if behavior.is_empty() {
                    "did not run".to_owned()
                } else {
                    format!("{behavior}, close {close}, see {file}")
                };
                report.wrong.push(format!("{case} {what}"));
            }
            let kind =
                if close == "OK" || close == behavior { behavior.to_owned() } else { format!("{behavior}/{close}") };
            *report.counts.entry(kind).or_default() += 1;
        }
        report
    }
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The cases that the suite announces when it starts.
fn planned(log: &str) -> Option<BTreeSet<String>> {
    let list = log.lines().find_map(|line| line.strip_prefix("Cases = "))?;
    let words = list.trim_matches(['[', ']']).split(", ").map(|word| word.trim_matches(['\'', 'u']).to_owned());
    Some(words.filter(|word| !word.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: &str = r#"{"x": {
        "1.1.1": {"behavior": "OK", "behaviorClose": "OK"},
        "1.1.2": {"behavior": "NON-STRICT", "behaviorClose": "OK"},
        "1.1.3": {"behavior": "OK", "behaviorClose": "UNCLEAN", "reportfile": "a"},
        "1.1.4": {"behavior": "UNIMPLEMENTED", "behaviorClose": "OK", "reportfile": "b"}
    }}"#;

    #[test]
    fn wrong_closes_unimplemented_and_missing_cases_are_violations() {
        let planned = planned("Cases = ['1.1.1', '1.1.2', '1.1.3', u'1.1.4', '1.1.5']\n").unwrap();
        let report = Report::judge(&planned, INDEX);
        assert_eq!(
            report.wrong,
            ["1.1.3 OK, close UNCLEAN, see a", "1.1.4 UNIMPLEMENTED, close OK, see b", "1.1.5 did not run"]
        );
        assert_eq!(report.counts["OK"], 1);
    }

    #[test]
    fn nothing_planned_is_wrong() {
        assert!(!Report::judge(&planned("Cases = []").unwrap(), INDEX).wrong.is_empty());
        assert!(planned("no such line").is_none());
    }
}
