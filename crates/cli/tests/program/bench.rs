use std::path::Path;
use tautline_lab::cpu::Placement;
use tautline_lab::suites::{ENGINES, Lab, Outcome, Pace, Suite};
use tautline_lab::table::WIDTH;
use tautline_lab::{Metric, Protocol};

/// Runs a suite against this build's servers, as short as can be.
fn glance(suite: Suite) -> Outcome {
    let mut last = 0.0;
    let mut progress = |share: f64, _: &str| {
        assert!(share >= last && share <= 1.0, "{share} after {last}");
        last = share;
    };
    let program = Path::new(env!("CARGO_BIN_EXE_taut")).to_owned();
    let mut lab = Lab { program, pace: Pace::Glance, placement: Placement::here(), progress: &mut progress };
    let outcome = suite.run(&mut lab).unwrap();
    assert!(outcome.text.lines().all(|line| line.chars().count() <= WIDTH), "{}", outcome.text);
    assert!(outcome.lines.iter().all(|line| line.suite == suite.name() && line.value.is_finite()));
    outcome
}

#[test]
fn the_overview_has_limit_plain_every_engine_and_handshakes() {
    let outcome = glance(Suite::Overview);
    let engines = |metric| {
        let lines = outcome.lines.iter().filter(move |line| line.metric == metric && line.case.size == Some(64));
        lines.map(|line| (line.case.protocol, line.case.tls.clone())).collect::<Vec<_>>()
    };
    let mut expected = vec![(Some(Protocol::Tcp), None), (Some(Protocol::Ws), None)];
    expected.extend(ENGINES.map(|engine| (Some(Protocol::Wss), Some(engine.to_owned()))));
    assert_eq!(engines(Metric::Throughput), expected);
    // A busy machine may not let the server run at all in so short a round; there is no ratio then.
    assert!(engines(Metric::RatioToLimit).iter().all(|case| expected[1..].contains(case)));
    assert!(engines(Metric::RatioToPlain).iter().all(|case| expected[2..].contains(case)));
    let handshakes = outcome.lines.iter().filter(|line| line.metric == Metric::ServerCpuPerHandshake);
    assert_eq!(handshakes.count(), 5);
    assert!(outcome.advice.unwrap().starts_with("run --tls "));
}

#[test]
fn idle_measures_memory_of_every_composition() {
    let outcome = glance(Suite::Idle);
    let metrics: Vec<Metric> = outcome.lines.iter().map(|line| line.metric).collect();
    assert_eq!(metrics, vec![Metric::RssPerConnection; 1 + ENGINES.len()]);
}
