//! The place of each published figure: beside a measured one, or a reason why there is none.

use crate::published::{self, Figure};
use crate::suites::{Effort, Outcome, Suite};
use crate::{Case, Line, Metric, Protocol, Results};

/// A published figure with its place.
pub(crate) struct Place<'a> {
    pub(crate) figure: &'static Figure,
    pub(crate) found: Found<'a>,
}

/// Where a published figure stands.
pub(crate) enum Found<'a> {
    /// Beside this measured one.
    Beside(&'a Line),
    /// Alone, for this reason.
    Alone(String),
}

impl Place<'_> {
    /// The measured figure over the published one.
    pub(crate) fn ratio(&self) -> Option<f64> {
        match self.found {
            Found::Beside(line) => Some(line.value / self.figure.comparable()).filter(|ratio| ratio.is_finite()),
            Found::Alone(_) => None,
        }
    }
}

/// The places of all published figures, in the order of the reports.
pub(crate) fn places(results: &Results) -> Vec<Place<'_>> {
    published::figures().iter().map(|figure| Place { figure, found: place(figure, results) }).collect()
}

/// The measured figure beside a published one, by the report's words.
pub(crate) fn beside<'a>(results: &'a Results, suite: &str, text: &str, metric: &str) -> Option<&'a Line> {
    match place(published::find(suite, text, Some(metric))?, results) {
        Found::Beside(line) => Some(line),
        Found::Alone(_) => None,
    }
}

fn place<'a>(figure: &'static Figure, results: &'a Results) -> Found<'a> {
    let counterparts = match counterparts(figure) {
        Ok(counterparts) => counterparts,
        Err(why) => return Found::Alone(why.to_owned()),
    };
    let found = counterparts.iter().find_map(|counterpart| counterpart.find(results));
    found.map_or_else(
        || Found::Alone(counterparts.first().map_or_else(String::new, |it| it.reason(figure, results))),
        Found::Beside,
    )
}

/// A measurement of ours that reproduces a published figure.
struct Counterpart {
    suite: Suite,
    case: Case,
    metric: Metric,
}

impl Counterpart {
    fn find<'a>(&self, results: &'a Results) -> Option<&'a Line> {
        results.lines().find(|line| {
            line.suite == self.suite.name()
                && line.metric == self.metric
                && line.target.is_none()
                && line.case.peer.is_none()
                && line.case.setup == self.case.setup
                && self.case.covers(&published::with_defaults(&line.case))
        })
    }

    /// Why this run has no such measurement.
    fn reason(&self, figure: &Figure, results: &Results) -> String {
        let suite = self.suite.name();
        let Some(outcome) = results.outcomes.iter().find(|outcome| outcome.suite == suite) else {
            return format!("the suite `{suite}` was not run");
        };
        if let Some(failure) = &outcome.failure {
            return format!("the suite `{suite}` failed: {failure}");
        }
        if self.suite == Suite::Stages {
            return stage_reason(self, figure, outcome);
        }
        let missing = |tls: &&String| !outcome.lines.iter().any(|line| line.case.tls.as_ref() == Some(*tls));
        if let Some(tls) = self.case.tls.as_ref().filter(missing) {
            return format!("{tls} is not built in: build with `--features engines`");
        }
        general_reason(outcome)
    }
}

/// The reason that the suite itself gave, or the stage that a composition does not have.
fn stage_reason(wanted: &Counterpart, figure: &Figure, outcome: &Outcome) -> String {
    let mode = mode(figure.text).unwrap_or_default();
    let skipped = format!("skipped {mode}. ");
    if let Some(why) = outcome.warnings.iter().find_map(|note| note.strip_prefix(&skipped)) {
        return why.to_owned();
    }
    let of_mode = format!(", mode {mode}");
    let is_there = |line: &Line| line.case.setup.as_ref().is_some_and(|setup| setup.ends_with(&of_mode));
    if outcome.lines.iter().any(is_there) {
        let stage = wanted.case.stage.as_deref().unwrap_or_default();
        return match stage {
            "read" => "this driver receives within the wait: there is no stage for it".to_owned(),
            "nic" => "this driver has no stamp of arrivals".to_owned(),
            stage => format!("this composition has no stage `{stage}`"),
        };
    }
    general_reason(outcome)
}

fn general_reason(outcome: &Outcome) -> String {
    if outcome.is_interrupted {
        "the suite was interrupted before it".to_owned()
    } else if outcome.effort == Some(Effort::Quick) {
        "--quick leaves it out".to_owned()
    } else {
        "this run has no such case".to_owned()
    }
}

/// Measurements that reproduce a figure, the best first.
///
/// # Errors
/// Why no suite does.
fn counterparts(figure: &Figure) -> Result<Vec<Counterpart>, &'static str> {
    match figure.suite {
        "offload" => by_case(figure, Suite::Offload),
        // A rate of bytes does not depend on the size of an answer.
        "scaling" => by_case(figure, Suite::Scaling).map(|mut all| {
            all.iter_mut().for_each(|it| it.case.size = None);
            all
        }),
        "stages" => stages(figure).ok_or("the suite `stages` has no such statistic"),
        "windows" => windows(figure),
        "handshake" => handshakes(figure),
        _ => Err("no suite reproduces this report"),
    }
}

fn by_case(figure: &Figure, suite: Suite) -> Result<Vec<Counterpart>, &'static str> {
    let (Some(case), Some(metric)) = (figure.case.clone(), Metric::named(figure.metric)) else {
        return Err("its case has facts that no suite has");
    };
    Ok(vec![Counterpart { suite, case, metric }])
}

/// The report's number of a composition.
fn mode(text: &str) -> Option<&str> {
    text.strip_prefix("mode=")?.split(' ').next()
}

fn stages(figure: &Figure) -> Option<Vec<Counterpart>> {
    let mode = mode(figure.text)?;
    let (stage, statistic) = match figure.text.split_once("detail=") {
        Some((_, detail)) => (published::STAGES.iter().find(|(_, theirs)| *theirs == detail)?.0, figure.metric),
        None => match figure.metric {
            "stage_tls_mean" => ("tls", "mean"),
            "stage_nic_to_app_mean" => ("nic", "mean"),
            metric => ("total", metric.strip_prefix("end_to_end_")?),
        },
    };
    let metric = Metric::named(&format!("latency_{}", if statistic == "median" { "p50" } else { statistic }))?;
    // The report's client received from a network, and veth is nearer to one.
    let over = ["veth", "loopback"].map(|place| {
        let setup = format!("market over {place}, mode {mode}");
        Counterpart { suite: Suite::Stages, case: Case::default().setup(setup.as_str()).stage(stage), metric }
    });
    Some(over.into())
}

fn windows(figure: &Figure) -> Result<Vec<Counterpart>, &'static str> {
    let text = figure.text;
    let case = Case::default().tls("openssl");
    let of = |case, metric| Ok(vec![Counterpart { suite: Suite::Windows, case, metric }]);
    let direction = if text.contains(" write") { "write" } else { "read" };
    if text.starts_with("forced spill") {
        return of(case.strategy("window-bio").direction(direction).setup("spill"), Metric::Transfer);
    }
    if text.contains("HTTP/2") {
        return Err("there is no HTTP/2 here; `multiplexed` has its pattern of reads, as CPU time of a frame");
    }
    if text.starts_with("handshake") {
        return Err("`windows` measures new connections only with a request on each (GET, close), as a rate");
    }
    if figure.metric == "throughput_per_server_core_percent" {
        return Err("both ends of `windows` are threads of one process, whose CPU time is not told apart");
    }
    let strategy = match text.split_once("strategy=").map(|(_, rest)| rest.split(' ').next().unwrap_or_default()) {
        Some("window-bio+direct-decrypt") => "direct",
        Some(strategy) => strategy,
        None => return Err("its case has facts that no suite has"),
    };
    let case = case.strategy(strategy);
    if text.starts_with("HTTPS GET") {
        let setup = if text.contains("close") { "close" } else { "keep-alive" };
        return of(case.setup(setup), Metric::Throughput);
    }
    of(case.direction(direction), Metric::Transfer)
}

fn handshakes(figure: &Figure) -> Result<Vec<Counterpart>, &'static str> {
    if figure.text.starts_with("openssl speed") {
        return Err("no suite measures a key exchange alone: `handshake` measures connections, and signatures alone");
    }
    let of = |suite, case| Counterpart { suite, case, metric: Metric::CpuPerHandshake };
    let suites = [Suite::Handshake, Suite::Overview];
    let Some((_, tickets)) = figure.text.split_once("tickets=") else {
        return Ok(suites.map(|suite| of(suite, Case::default().protocol(Protocol::Ws))).into());
    };
    let case = Case::default().protocol(Protocol::Wss).tls("fused").key("rsa2048").resumed(tickets == "yes");
    // Go had no hybrid key exchange then, and no other threads.
    let [detailed, overview] = [case.clone().group("x25519"), case];
    Ok(vec![
        of(suites[0], detailed.clone().execution("inline")),
        of(suites[0], detailed.execution("gated")),
        of(suites[1], overview),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Published figures that no suite reproduces, each with a reason.
    const WITHOUT: usize = 13;

    #[test]
    fn every_published_figure_has_a_place_in_an_empty_run() {
        let results = Results::default();
        let places = places(&results);
        assert_eq!(places.len(), 808);
        for place in &places {
            let Found::Alone(why) = &place.found else { panic!("{} is beside nothing", place.figure.text) };
            assert!(!why.is_empty(), "{} {}", place.figure.text, place.figure.metric);
        }
    }

    /// A run that has one result for the best counterpart of each figure.
    fn full() -> Results {
        let mut suites: BTreeMap<&str, Outcome> = BTreeMap::new();
        for figure in published::figures() {
            let Ok(counterparts) = counterparts(figure) else { continue };
            let Counterpart { suite, case, metric } = &counterparts[0];
            let line = Line::new(suite.name(), case, *metric, &[figure.comparable() * 2.0]).unwrap();
            suites.entry(suite.name()).or_insert_with(|| Outcome::of(suite.name())).lines.push(line);
        }
        Results { machines: Vec::new(), outcomes: suites.into_values().collect() }
    }

    #[test]
    fn a_full_run_has_a_figure_beside_every_published_one_that_a_suite_reproduces() {
        let results = full();
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        for place in places(&results) {
            match &place.found {
                Found::Beside(line) => assert!(line.value.is_finite()),
                Found::Alone(why) => *reasons.entry(why.clone()).or_default() += 1,
            }
        }
        assert_eq!(reasons.values().sum::<usize>(), WITHOUT, "{reasons:#?}");
        assert_eq!(reasons.values().copied().collect::<Vec<_>>(), [3, 3, 3, 4], "{reasons:#?}");
    }

    #[test]
    fn every_metric_of_a_counterpart_has_the_unit_of_its_figure() {
        for figure in published::figures() {
            let Ok(counterparts) = counterparts(figure) else { continue };
            let unit = match figure.unit {
                "ns/op" => "us",
                "req/s" => "msg/s",
                unit => unit,
            };
            assert!(counterparts.iter().all(|it| it.metric.unit() == unit), "{} {}", figure.text, figure.metric);
        }
    }

    #[test]
    fn reasons_say_what_to_do() {
        let why = |results: &Results, suite, text, metric| match place(
            published::find(suite, text, Some(metric)).unwrap(),
            results,
        ) {
            Found::Alone(why) => why,
            Found::Beside(line) => panic!("{line:?}"),
        };
        let stages = |results: &Results, text| why(results, "stages", text, "mean");
        let mut outcome = Outcome::of("stages");
        outcome.warnings.push("skipped 1. wolfssl xdp-spin: wolfssl is not built in".to_owned());
        let case = Case::default().setup("market over loopback, mode 7").stage("tls");
        outcome.lines.push(Line::new("stages", &case, Metric::LatencyMean, &[1.0]).unwrap());
        let failed = Outcome { failure: Some("no room".into()), ..Outcome::of("offload") };
        let quick = Outcome { effort: Some(Effort::Quick), ..Outcome::of("scaling") };
        let results = Results { machines: Vec::new(), outcomes: vec![outcome, failed, quick] };
        assert_eq!(stages(&results, "mode=1 detail=Stage_3->4"), "wolfssl xdp-spin: wolfssl is not built in");
        assert!(stages(&results, "mode=7 detail=Stage_2->3").contains("receives within the wait"));
        assert!(stages(&results, "mode=7 detail=Stage_1->2").contains("no stamp"));
        let text = "wss echo size=64 connections=100 execution=inline";
        assert_eq!(why(&results, "offload", text, "transfer"), "the suite `offload` failed: no room");
        let text = "bulk 10MB messages model=shared-loop OpenSSL connections=1 threads=1";
        assert!(why(&results, "scaling", text, "transfer").contains("--features engines"));
        let text = "forced spill 100% read";
        assert_eq!(why(&results, "windows", text, "transfer"), "the suite `windows` was not run");
    }
}
