//! Tables of every figure, which a reader sorts and filters.

use super::places::{Found, Place};
use crate::Line;
use crate::stats::Summary;
use crate::suites::unique;
use crate::table::number;
use maud::{Markup, html};

/// Filters and tables.
pub(super) fn tables(lines: &[&Line], places: &[Place<'_>]) -> Markup {
    html! {
        h3 id="measured-figures" { "Measured" }
        (filters("measured-table", "Filter measured figures", &unique(lines.iter().map(|line| line.suite.as_str()))))
        div.scroll tabindex="0" role="region" aria-labelledby="measured-figures" {
            table.sortable id="measured-table" {
                caption.hidden { "Every measured figure" }
                (head(&["suite", "case", "metric"], &["median", "± %", "least", "most", "rounds", "published", "× published"]))
                tbody { @for line in lines { (measured(line)) } }
            }
        }
        h3 id="published-figures" { "Published" }
        (filters("published-table", "Filter published figures", &unique(places.iter().map(|place| place.figure.suite))))
        div.scroll tabindex="0" role="region" aria-labelledby="published-figures" {
            table.sortable id="published-table" {
                caption.hidden { "Every published figure, with the measured one or the reason why there is none" }
                (head(&["suite", "case", "metric"], &["line", "published", "measured", "× published"]))
                tbody { @for (number, place) in places.iter().enumerate() { (published(number + 1, place)) } }
            }
        }
    }
}

fn filters(table: &str, name: &str, suites: &[&str]) -> Markup {
    html! {
        form.filters role="search" aria-label=(name) data-table=(table) {
            label { "Search " input type="search" name="text" placeholder="words, as fused 64 p99"; }
            label { "Suite " select name="suite" {
                option value="" { "all" }
                @for suite in suites { option { (suite) } }
            } }
            label { input type="checkbox" name="both"; " with both figures" }
            output aria-live="polite" {}
        }
    }
}

/// Titles as buttons that sort. Columns of text come first.
fn head(texts: &[&str], numbers: &[&str]) -> Markup {
    html! {
        thead { tr {
            @for title in texts { th scope="col" aria-sort="none" { button type="button" { (title) } } }
            @for title in numbers {
                th.number scope="col" aria-sort="none" { button type="button" { (title) } }
            }
        } }
    }
}

/// A number, with its exact value for sorting.
fn cell(value: Option<f64>) -> Markup {
    html! {
        @match value.filter(|value| value.is_finite()) {
            Some(value) => td data-v=(value) { (number(value)) },
            None => td {},
        }
    }
}

fn measured(line: &Line) -> Markup {
    let summary = Summary::of(&line.runs);
    let spread = summary.filter(|summary| summary.count > 1).map(|summary| summary.spread() * 100.0);
    let verdict = line.target.zip(summary).map(|(target, summary)| target.verdict(&summary));
    html! {
        tr data-suite=(line.suite) data-both[line.published.is_some()] {
            td { (line.suite) }
            td { (case(line)) @if let Some(name) = &line.name { " " em { (name) } } }
            td { (line.metric.name()) " " small { (line.unit) } @if let Some(verdict) = verdict { " " small { (verdict) } } }
            (cell(Some(line.value)))
            (cell(spread))
            (cell(summary.map(|summary| summary.min)))
            (cell(summary.map(|summary| summary.max)))
            td data-v=(line.runs.len()) { (line.runs.len()) }
            (cell(line.published))
            (cell(line.published.map(|published| line.value / published)))
        }
    }
}

fn published(number_of: usize, place: &Place<'_>) -> Markup {
    let figure = place.figure;
    html! {
        tr id={ "p" (number_of) } data-suite=(figure.suite) data-both[place.ratio().is_some()] {
            td { (figure.suite) }
            td { (figure.text) @if let Found::Alone(why) = &place.found { " " em { (why) } } }
            td { (figure.metric) " " small { (figure.unit) } }
            td data-v=(number_of) { (number_of) }
            (cell(Some(figure.value)))
            @match &place.found {
                Found::Beside(line) => {
                    td data-v=(line.value) title=(case(line)) { (number(line.value)) " " small { (line.unit) } }
                }
                Found::Alone(_) => td {},
            }
            (cell(place.ratio()))
        }
    }
}

/// The facts of a case without the words that every reader can do without.
fn case(line: &Line) -> String {
    let facts = line.case.facts();
    let words: Vec<String> = facts.iter().map(|(name, value)| format!("{name}={value}")).collect();
    words.join(" ")
}
