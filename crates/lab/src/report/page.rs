//! The page: verdicts first, then charts, then tables.

use super::claims::{Claim, Verdict, claims};
use super::places::{Found, Place, places};
use super::reported::{self, Report};
use super::{figure::figure, figures, measured};
use crate::stats::Summary;
use crate::suites::Outcome;
use crate::table::number;
use crate::{Line, Machine, Results};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::fmt::Display;
use std::io;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Lets the page load nothing, whatever stands in it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; \
                      base-uri 'none'; form-action 'none'";

/// Writes a self-contained page.
///
/// # Errors
/// `out` failed.
pub fn write_html(out: &mut impl io::Write, results: &Results) -> io::Result<()> {
    out.write_all(page(results).into_string().as_bytes())?;
    out.flush()
}

fn page(results: &Results) -> Markup {
    let places = places(results);
    let claims = claims(&places);
    let lines: Vec<&Line> = results.lines().collect();
    let date = results.machines.last().map_or("", |machine| machine.date.as_str());
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="color-scheme" content="light dark";
                link rel="icon" href="data:,";
                title { "taut bench, " (date) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#glance" { "Skip to the verdicts" }
                header {
                    div.name { h1 { "taut bench" } p { (headline(&results.machines)) } }
                    button type="button" id="theme" aria-label="Switch between light and dark" { "◐" }
                }
                nav aria-label="Sections" { ul {
                    @for (id, name) in SECTIONS { li { a href={ "#" (id) } { (name) } } }
                } }
                main {
                    (glance(results, &places, &claims, &lines))
                    (targets(&lines))
                    (conclusions(&claims))
                    (reports(results, &places))
                    (suites(results))
                    section id="figures" {
                        h2 { "Every figure" }
                        p.paper { "These tables are left out on paper." }
                        (figures::tables(&lines, &places))
                    }
                    (machines(&results.machines))
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
}

const SECTIONS: [(&str, &str); 7] = [
    ("glance", "At a glance"),
    ("targets", "Targets"),
    ("claims", "Conclusions"),
    ("reports", "Published"),
    ("suites", "Measured"),
    ("figures", "Every figure"),
    ("machine", "Machine"),
];

fn headline(machines: &[Machine]) -> String {
    let Some(machine) = machines.last() else { return String::new() };
    format!("{}, {} cores, Linux {}, {}", machine.cpu, machine.cores, machine.kernel, machine.date)
}

/// A number with its meaning.
fn tile(count: impl Display, what: &str, class: &str) -> Markup {
    html! { li class={ "tile " (class) } { strong { (count.to_string()) } " " span { (what) } } }
}

fn glance(results: &Results, places: &[Place<'_>], claims: &[Claim], lines: &[&Line]) -> Markup {
    let verdicts: Vec<_> = judged(lines).map(|(_, _, verdict)| verdict).collect();
    let targets = |is: fn(&str) -> bool| verdicts.iter().filter(|verdict| is(verdict)).count();
    let of = |verdict| claims.iter().filter(|claim| claim.verdict == verdict).count();
    let beside = places.iter().filter(|place| matches!(place.found, Found::Beside(_))).count();
    let lost = places.iter().filter(|place| matches!(&place.found, Found::Alone(why) if why.is_empty())).count();
    let failed: Vec<_> = results.outcomes.iter().filter(|outcome| outcome.failure.is_some()).collect();
    let seconds: f64 = results.outcomes.iter().map(|outcome| outcome.seconds).sum();
    html! {
        section id="glance" {
            h2 { "At a glance" }
            div.tiles {
                div { h3 { "Targets" } ul {
                    (tile(targets(|verdict| verdict == "met"), "met", "good"))
                    (tile(targets(|verdict| verdict == "missed"), "missed", "bad"))
                    (tile(targets(|verdict| verdict.ends_with("uncertain")), "uncertain", "open"))
                } }
                div { h3 { "Conclusions of the reports" } ul {
                    (tile(of(Verdict::Reproduced), "reproduced", "good"))
                    (tile(of(Verdict::Contradicted), "contradicted", "bad"))
                    (tile(of(Verdict::NotHere), "not here", "open"))
                } }
                div { h3 { "Published figures" } ul {
                    (tile(beside, "beside a measured one", "good"))
                    (tile(places.len() - beside, "with a reason", "open"))
                    (tile(lost, "without a place", if lost == 0 { "plain" } else { "bad" }))
                } }
                div { h3 { "This run" } ul {
                    (tile(results.outcomes.len(), "suites", "plain"))
                    (tile(lines.len(), "figures", "plain"))
                    (tile(format!("{:.0}", seconds / 60.0), "minutes", "plain"))
                } }
            }
            @for outcome in &failed {
                p.note.bad { strong { (outcome.suite) } ": " (outcome.failure.as_deref().unwrap_or_default()) }
            }
            @for advice in results.outcomes.iter().filter_map(|outcome| outcome.advice.as_ref()) {
                p.note { strong { "Advice: " } (advice) }
            }
        }
    }
}

/// Results with targets and their verdicts.
fn judged<'a>(lines: &'a [&'a Line]) -> impl Iterator<Item = (&'a Line, Summary, &'static str)> {
    lines.iter().filter_map(|line| {
        let summary = Summary::of(&line.runs)?;
        Some((*line, summary, line.target?.verdict(&summary)))
    })
}

/// The class of a target's verdict.
fn class(verdict: &str) -> &'static str {
    match verdict {
        "met" => "good",
        "missed" => "bad",
        _ => "open",
    }
}

fn targets(lines: &[&Line]) -> Markup {
    let rows: Vec<_> = judged(lines).collect();
    html! {
        section id="targets" {
            h2 { "Targets" }
            @if rows.is_empty() { p { "No suite of this run has targets." } } @else {
                p { "Figures that this project holds itself to. A verdict is uncertain if the 95 % interval has the bound in it." }
                div.scroll tabindex="0" role="region" aria-label="Targets" {
                    table.targets {
                        caption.hidden { "Targets with their verdicts" }
                        thead { tr {
                            @for title in ["suite", "target"] { th scope="col" { (title) } }
                            @for title in ["is", "95 %", "wanted"] { th.number scope="col" { (title) } }
                            th scope="col" { "verdict" }
                        } }
                        tbody { @for (line, summary, verdict) in &rows { (target(line, summary, verdict)) } }
                    }
                }
            }
        }
    }
}

fn target(line: &Line, summary: &Summary, verdict: &str) -> Markup {
    let name = line.name.clone().unwrap_or_else(|| line.metric.name().replace('_', " "));
    let wanted = line.target.map(|target| target.wanted()).unwrap_or_default();
    html! {
        tr {
            td { (line.suite) }
            th scope="row" { (name) }
            td { (number(line.value)) " " small { (line.unit) } }
            td { (number(summary.interval.low)) "–" (number(summary.interval.high)) }
            td { (wanted) }
            td.verdict { span class={ "chip " (class(verdict)) } { (verdict) } }
        }
    }
}

fn conclusions(claims: &[Claim]) -> Markup {
    html! {
        section id="claims" {
            h2 { "Conclusions of the reports" }
            p {
                "Each conclusion is held against the figures measured at its places: reproduced if most ratios go the same \
                 way, at least half as far, and clearly so; contradicted if most go the other way."
            }
            div.claims { @for claim in claims { (conclusion(claim)) } }
        }
    }
}

fn conclusion(claim: &Claim) -> Markup {
    html! {
        details.claim {
            summary {
                span class={ "chip " (claim.verdict.class()) } { (claim.verdict.name()) }
                " " span.said { (claim.title) } " " span.because { (claim.because) }
            }
            div.scroll tabindex="0" role="region" aria-label={ "Figures of: " (claim.title) } {
                table {
                    caption.hidden { (claim.title) ", from the suite " (claim.suite) }
                    thead { tr {
                        th scope="col" { "ratio" }
                        @for title in ["published", "measured", "95 %"] { th.number scope="col" { (title) } }
                        th scope="col" { "verdict" }
                        th scope="col" { "lines" }
                    } }
                    tbody {
                        @for comparison in &claim.comparisons {
                            tr {
                                th scope="row" { (comparison.label) }
                                td { (number(comparison.published)) }
                                @match comparison.measured {
                                    Some([median, low, high]) => {
                                        td { (number(median)) } td { (number(low)) "–" (number(high)) }
                                        td.text {
                                            (comparison.verdict.name())
                                            @if comparison.verdict == Verdict::NotHere { ": " (comparison.reason) }
                                        }
                                    }
                                    None => { td { "–" } td { "–" } td.text { "not here: " (comparison.reason) } }
                                }
                                td.text { @for row in &comparison.rows { a href={ "#p" (row) } { (row) } " " } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn reports(results: &Results, places: &[Place<'_>]) -> Markup {
    let all = reported::reports(results);
    html! {
        section id="reports" {
            h2 { "Published and measured" }
            p {
                "Each figure of five reports, from other machines and years, beside what was measured here. Grey and dashed: \
                 published. Coloured: measured on this machine."
            }
            @for report in &all { (one_report(report, places)) }
        }
    }
}

fn one_report(report: &Report, places: &[Place<'_>]) -> Markup {
    let of: Vec<_> = places.iter().filter(|place| place.figure.suite == report.suite).collect();
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    for place in &of {
        let Found::Alone(why) = &place.found else { continue };
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, count)) => *count += 1,
            None => reasons.push((why.as_str(), 1)),
        }
    }
    let alone: usize = reasons.iter().map(|(_, count)| count).sum();
    html! {
        h3 { (report.title) }
        p.coverage { (of.len() - alone) " of " (of.len()) " figures stand beside a measured one." }
        @if !reasons.is_empty() {
            details.reasons {
                summary { (alone) " figures with a reason" }
                ul { @for (why, count) in &reasons { li { strong { (count) } " " (why) } } }
            }
        }
        div.charts {
            @for (number, chart) in report.charts.iter().enumerate() { (figure(chart, &format!("report-{}-{number}", report.suite))) }
        }
    }
}

fn suites(results: &Results) -> Markup {
    html! {
        section id="suites" {
            h2 { "Measured here" }
            @for outcome in &results.outcomes { (suite(outcome)) }
        }
    }
}

fn suite(outcome: &Outcome) -> Markup {
    let charts = measured::charts(outcome);
    let effort = outcome.effort.map_or("", |effort| effort.name());
    html! {
        h3 id={ "suite-" (outcome.suite) } {
            (outcome.suite)
            @if outcome.seconds > 0.0 { " " small { (effort) ", " (number(outcome.seconds)) " s" } }
        }
        @if let Some(failure) = &outcome.failure { p.note.bad { (failure) } }
        @if !charts.is_empty() {
            div.charts {
                @for (number, chart) in charts.iter().enumerate() { (figure(chart, &format!("{}-{number}", outcome.suite))) }
            }
        }
        @if !outcome.warnings.is_empty() {
            details.notes {
                summary { (outcome.warnings.len()) " notes" }
                ul { @for warning in &outcome.warnings { li { (warning) } } }
            }
        }
        @if !outcome.text.trim().is_empty() {
            details.printed {
                summary { "As printed" }
                div.scroll tabindex="0" role="region" aria-label={ "Printed tables of " (outcome.suite) } {
                    pre { (outcome.text.trim_end()) }
                }
            }
        }
    }
}

fn machines(machines: &[Machine]) -> Markup {
    let join = |pairs: Vec<String>| pairs.join(", ");
    html! {
        section id="machine" {
            h2 { "Machine" }
            @for machine in machines {
                dl {
                    dt { "processor" } dd { (machine.cpu) ", " (machine.cores) " cores, " (machine.arch) }
                    dt { "memory" } dd { (number(machine.memory as f64 / f64::from(1 << 30))) " GiB" }
                    dt { "kernel" } dd { "Linux " (machine.kernel) }
                    dt { "virtual machine" } dd { (machine.hypervisor.as_deref().unwrap_or("no")) }
                    dt { "governor" } dd { (machine.governor.as_deref().unwrap_or("none")) }
                    dt { "load" } dd { (machine.load_1min.map_or_else(|| "unknown".to_owned(), number)) }
                    dt { "features" } dd { (machine.features.join(" ")) }
                    dt { "AEAD" }
                    dd { (join(machine.aead.iter().map(|(name, by)| format!("{name} {by}")).collect())) }
                    dt { "libraries" }
                    dd { (join(machine.libraries.iter().map(|(name, version)| format!("{name} {version}")).collect())) }
                    dt { "commit" } dd { (machine.commit) }
                    dt { "profile" } dd { (machine.profile) }
                    dt { "compiler" } dd { (machine.rustc) }
                    dt { "date" } dd { (machine.date) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Case, Metric, Protocol, Target};

    fn run(text: &str) -> Results {
        let case =
            Case { protocol: Some(Protocol::Wss), size: Some(64), peer: Some(text.to_owned()), ..Case::default() };
        let line = Line::new("echo", &case, Metric::Throughput, &[1000.0, 3000.0, 2000.0]).unwrap();
        let judged = Line { target: Some(Target::AtLeast(10.0)), name: Some(text.to_owned()), ..line.clone() };
        let outcome = Outcome {
            lines: vec![line, judged],
            text: text.to_owned(),
            warnings: vec![text.to_owned()],
            advice: Some(text.to_owned()),
            failure: Some(text.to_owned()),
            ..Outcome::of("echo")
        };
        Results { machines: vec![Machine { cpu: text.to_owned(), ..Machine::here() }], outcomes: vec![outcome] }
    }

    #[test]
    fn a_page_has_every_section_figure_and_place() {
        let page = page(&run("some words")).into_string();
        for (id, _) in SECTIONS {
            assert!(page.contains(&format!("<section id=\"{id}\">")), "{id}");
        }
        assert_eq!(page.matches("<tr id=\"p").count(), 808);
        assert!(page.contains("protocol=wss size=64 peer=some words"));
        assert!(page.contains("data-v=\"2000\">2,000</td>") && page.contains(">met</span>"));
        let count = |part: &str| page.matches(part).count();
        assert!(count("<figure") > 10 && count("<figure") == count("<details class=\"behind\">"));
        assert_eq!(count("role=\"img\""), count("<svg"));
    }

    #[test]
    fn no_value_becomes_markup() {
        for text in ["</style><script>alert(1)</script>", "\" onload=\"alert(1)", "<svg/onload=alert(1)>", "]]>&lt;"] {
            let page = page(&run(text)).into_string();
            assert_eq!(page.matches("<script").count(), 1, "{text}");
            assert_eq!(page.matches(text).count(), 0, "{text}");
        }
    }

    #[test]
    fn a_page_names_no_other_place() {
        let page = page(&run("words")).into_string();
        for part in ["http://", "https://", "//cdn", "@import", "url("] {
            assert!(!page.contains(part), "{part}");
        }
    }

    #[test]
    fn an_empty_run_has_a_page_too() {
        let page = page(&Results::default()).into_string();
        assert!(page.contains("No suite of this run has targets."));
    }
}
