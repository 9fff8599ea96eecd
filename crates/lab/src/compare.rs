//! Two runs side by side: which figures became worse.

use crate::stats::{Ratio, Summary};
use crate::table::{Table, number};
use crate::{Case, Line, Metric, Results};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Most changed figures in the text, on each side.
const LISTED: usize = 40;

/// A comparison of two runs.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Tables for people.
    pub text: String,
    /// Figures in both runs of which it is known whether greater is better.
    pub compared: usize,
    /// Figures that are surely worse in the second run.
    pub regressions: usize,
}

/// A figure in both runs.
struct Pair<'a> {
    line: &'a Line,
    /// Cost in the second run over that in the first: above 1 is worse.
    cost: Ratio,
    /// Whether there are enough rounds, and the ranges of both runs do not touch.
    is_apart: bool,
}

/// Compares figures of the same suite, case and metric, round by round.
///
/// A figure is worse if at least three rounds pair, the whole 95 % interval of their ratios lies beyond `tolerance` (a
/// share, as 0.05), and no round of the second run is as good as any of the first. Ratios, extremes and deviations are not
/// compared: they follow from other figures, or from single messages.
#[must_use]
pub fn compare(before: &Results, after: &Results, tolerance: f64) -> Comparison {
    let known: BTreeMap<(&str, &Case, Metric), &Line> = figures(before).map(|line| (key(line), line)).collect();
    let all = figures(after).count();
    let mut pairs: Vec<Pair<'_>> = figures(after).filter_map(|line| pair(known.get(&key(line))?, line)).collect();
    pairs.sort_by(|a, b| b.cost.summary.median.total_cmp(&a.cost.summary.median));
    let most = 1.0 + tolerance;
    let apart = || pairs.iter().filter(|pair| pair.is_apart);
    let worse: Vec<_> = apart().filter(|pair| pair.cost.summary.interval.low > most).collect();
    let better: Vec<_> = apart().rev().filter(|pair| pair.cost.summary.interval.high < 1.0 / most).collect();
    let mut text = differences(before, after);
    let _ = writeln!(
        text,
        "{} figures in both runs, {} only in one; {} worse and {} better by more than {} %.",
        pairs.len(),
        all + known.len() - 2 * pairs.len(),
        worse.len(),
        better.len(),
        number(tolerance * 100.0)
    );
    text += &listed("Worse", &worse);
    text += &listed("Better", &better);
    text += &summary(&pairs);
    Comparison { text, compared: pairs.len(), regressions: worse.len() }
}

fn key(line: &Line) -> (&str, &Case, Metric) {
    (&line.suite, &line.case, line.metric)
}

/// Results of which it is known whether greater is better.
fn figures(results: &Results) -> impl Iterator<Item = &Line> {
    results.lines().filter(|line| line.target.is_none() && line.metric.is_better_if_greater().is_some())
}

fn pair<'a>(before: &Line, after: &'a Line) -> Option<Pair<'a>> {
    let rounds = before.runs.len().min(after.runs.len());
    let (old, new) = (&before.runs[..rounds], &after.runs[..rounds]);
    let (over, under) = if after.metric.is_better_if_greater()? { (old, new) } else { (new, old) };
    let cost = Ratio::paired(over, under)?;
    let [first, second] = [&before.runs, &after.runs].map(|runs| Summary::of(runs));
    let (first, second) = (first?, second?);
    let is_apart = cost.summary.count > 2 && (first.max < second.min || second.max < first.min);
    Some(Pair { line: after, cost, is_apart })
}

/// Facts in which the machines differ.
fn differences(before: &Results, after: &Results) -> String {
    let (Some(old), Some(new)) = (before.machines.last(), after.machines.last()) else { return String::new() };
    let cores = [old.cores, new.cores].map(|cores| cores.to_string());
    let facts = [
        ("processor", &old.cpu, &new.cpu),
        ("cores", &cores[0], &cores[1]),
        ("kernel", &old.kernel, &new.kernel),
        ("compiler", &old.rustc, &new.rustc),
        ("commit", &old.commit, &new.commit),
        ("profile", &old.profile, &new.profile),
    ];
    let told = facts.iter().filter(|(_, old, new)| old != new);
    told.map(|(name, old, new)| format!("{name}: {old} before, {new} after\n")).collect()
}

fn listed(title: &str, pairs: &[&Pair<'_>]) -> String {
    let table = Table::of(pairs.iter().take(LISTED).map(|pair| {
        let facts = pair.line.case.facts();
        let words: Vec<&str> = facts.iter().map(|(_, value)| value.as_str()).collect();
        let Summary { median, interval, .. } = pair.cost.summary;
        [
            ("<suite", pair.line.suite.clone()),
            ("<case", words.join(" ")),
            ("<metric", pair.line.metric.name().to_owned()),
            ("cost x", number(median)),
            ("95 %", interval.to_string()),
            ("now", format!("{} {}", number(pair.line.value), pair.line.unit)),
        ]
    }));
    let more = pairs.len().saturating_sub(LISTED);
    let rest = if more > 0 { format!("and {more} more\n") } else { String::new() };
    table.below(&format!("\n{title}:")) + &rest
}

/// Medians over all figures of a metric, whose noise is less than that of one figure.
fn summary(pairs: &[Pair<'_>]) -> String {
    let mut groups: BTreeMap<(&str, Metric), Vec<f64>> = BTreeMap::new();
    for pair in pairs {
        groups.entry((&pair.line.suite, pair.line.metric)).or_default().push(pair.cost.summary.median);
    }
    let mut table = Table::new(&["<suite", "<metric", "figures", "cost x", "95 %"]);
    for ((suite, metric), costs) in &groups {
        let Some(Summary { count, median, interval, .. }) = Summary::of(costs) else { continue };
        let name = metric.name().to_owned();
        table.row([(*suite).to_owned(), name, count.to_string(), number(median), interval.to_string()]);
    }
    format!("\nAll figures of a metric; cost x: above 1 is worse than before.\n\n{table}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;
    use crate::suites::Outcome;
    use crate::table::WIDTH;

    fn results(values: &[(Metric, [f64; 3])]) -> Results {
        let line = |(at, (metric, runs)): (usize, &(Metric, [f64; 3]))| {
            Line::new("limits", &Case::default().tls("fused").size(at), *metric, runs).unwrap()
        };
        let lines = values.iter().enumerate().map(line).collect();
        Results { machines: vec![Machine::here()], outcomes: vec![Outcome { lines, ..Outcome::of("limits") }] }
    }

    const BEFORE: [(Metric, [f64; 3]); 4] = [
        (Metric::ServerCpuPerMsg, [2.0, 2.02, 1.98]),
        (Metric::Throughput, [100.0, 101.0, 99.0]),
        (Metric::LatencyP99, [10.0, 30.0, 20.0]),
        (Metric::RatioToLimit, [1.0, 1.0, 1.0]),
    ];

    fn changed(by: [f64; 4]) -> Results {
        let mut values = BEFORE;
        for ((_, runs), by) in values.iter_mut().zip(by) {
            *runs = runs.map(|value| value * by);
        }
        results(&values)
    }

    #[test]
    fn equal_runs_have_no_regression() {
        let found = compare(&results(&BEFORE), &results(&BEFORE), 0.05);
        assert_eq!((found.compared, found.regressions), (3, 0));
        assert!(found.text.contains("0 worse and 0 better"), "{}", found.text);
    }

    #[test]
    fn more_cost_and_less_throughput_are_regressions() {
        let found = compare(&results(&BEFORE), &changed([1.2, 0.8, 1.0, 5.0]), 0.05);
        assert_eq!((found.compared, found.regressions), (3, 2), "{}", found.text);
        assert!(found.text.contains("server_cpu_per_msg") && found.text.contains("throughput"), "{}", found.text);
        assert!(found.text.lines().all(|line| line.chars().count() <= WIDTH), "{}", found.text);
        assert_eq!(compare(&changed([1.2, 0.8, 1.0, 5.0]), &results(&BEFORE), 0.05).regressions, 0);
    }

    #[test]
    fn noise_and_small_changes_are_no_regression() {
        // The third figure doubles, but its rounds reach from 10 to 30.
        assert_eq!(compare(&results(&BEFORE), &changed([1.04, 0.97, 2.0, 1.0]), 0.05).regressions, 0);
        assert_eq!(compare(&results(&BEFORE), &changed([1.2, 0.8, 1.0, 1.0]), 0.3).regressions, 0);
    }

    #[test]
    fn two_rounds_tell_nothing() {
        let mut few = changed([2.0, 0.5, 1.0, 1.0]);
        few.outcomes[0].lines.iter_mut().for_each(|line| line.runs.truncate(2));
        assert_eq!(compare(&results(&BEFORE), &few, 0.05).regressions, 0);
    }

    #[test]
    fn machines_that_differ_are_named() {
        let mut other = results(&BEFORE);
        other.machines[0].kernel = "another".into();
        other.outcomes[0].lines.pop();
        other.outcomes[0].lines.pop();
        let text = compare(&results(&BEFORE), &other, 0.05).text;
        assert!(
            text.contains("before, another after") && text.contains("2 figures in both runs, 1 only in one"),
            "{text}"
        );
    }
}
