use super::echo_case::{EchoCase, Shape, add_lines, cases as cases_of, kinds, limit_of, plain_of};
use super::server::{Key, Kind};
use super::*;
use crate::Metric;
use crate::table::WIDTH;

const DRIVERS: [Io; 2] = [Io::Epoll, Io::Uring];

/// Compositions for each shape.
fn count() -> usize {
    2 * (ENGINES.len() + 2)
}

/// Samples of an ordinary machine: tcp costs 2 us, ws 3, wss more; the second driver is a little cheaper.
fn fill(cases: &mut [EchoCase]) {
    for case in cases {
        let base = match case.kind {
            Kind::Aead => 0.5,
            Kind::Tcp(_) => 2.0,
            Kind::Ws(_) => 3.0,
            Kind::Wss("fused", ..) => 4.0,
            _ => 5.0,
        };
        let cpu = if case.kind.driver() == Some(Io::Uring) { base * 0.9 } else { base };
        let metric = if case.kind == Kind::Aead { Metric::CpuPerMsg } else { Metric::ServerCpuPerMsg };
        case.samples.insert(metric, vec![cpu, cpu * 1.01, cpu * 0.99]);
        case.samples.insert(Metric::Throughput, vec![1_186_068.0, 1_190_000.0, 1_180_000.0]);
        case.samples.insert(Metric::LatencyP50, vec![12_345.6; 3]);
        case.samples.insert(Metric::LatencyP99, vec![112_345.6; 3]);
    }
}

fn measured() -> Vec<EchoCase> {
    let mut cases = cases_of(&[64, 16_384].map(Shape::of), &kinds(&DRIVERS));
    fill(&mut cases);
    cases[2].is_bounded = true;
    cases
}

#[test]
fn ratios_are_to_the_same_load_and_the_cheapest_limit() {
    let cases = measured();
    assert_eq!(cases.len(), 2 * count());
    let find = |kind| cases.iter().find(|case| case.kind == kind && case.shape.size == 16_384).unwrap();
    let wss = find(Kind::Wss("fused", Key::P256, Io::Epoll));
    let (limit, plain) = (limit_of(&cases, wss).unwrap(), plain_of(&cases, wss).unwrap());
    assert_eq!((limit.kind, limit.shape.size), (Kind::Tcp(Io::Uring), 16_384));
    assert_eq!((plain.kind, plain.shape.size), (Kind::Ws(Io::Epoll), 16_384));
    assert!((wss.cpu_over(limit).unwrap().summary.median - 4.0 / 1.8).abs() < 1e-9);
    assert!(limit_of(&cases, find(Kind::Tcp(Io::Epoll))).is_none());
    assert!(plain_of(&cases, find(Kind::Ws(Io::Epoll))).is_none());
}

#[test]
fn lines_have_every_metric_and_both_ratios() {
    let mut outcome = Outcome::default();
    add_lines(&mut outcome, Suite::Limits, &measured());
    let lines = |metric| outcome.lines.iter().filter(|line| line.metric == metric).count();
    assert_eq!(lines(Metric::ServerCpuPerMsg), 2 * count());
    assert_eq!(lines(Metric::RatioToLimit), 2 * (count() - 2));
    assert_eq!(lines(Metric::RatioToPlain), 2 * (count() - 4));
    assert!(outcome.lines.iter().all(|line| line.runs.len() == 3 && line.suite == "limits"));
    for driver in ["epoll", "uring"] {
        assert!(outcome.lines.iter().any(|line| line.case.driver.as_deref() == Some(driver)), "{driver}");
    }
    assert_eq!(outcome.warnings.len(), 1, "{:?}", outcome.warnings);
}

#[test]
fn noisy_rows_are_named_in_one_warning() {
    let mut cases = measured();
    for case in &mut cases[4..6] {
        case.samples.insert(Metric::ServerCpuPerMsg, vec![4.0, 6.0, 5.0]);
    }
    let mut outcome = Outcome::default();
    add_lines(&mut outcome, Suite::Echo, &cases);
    let warning = &outcome.warnings[0];
    assert!(
        warning.starts_with(&format!("2 of {} rows", cases.len()))
            && warning.contains("most wss fused epoll 64 B with"),
        "{warning}"
    );
}

#[test]
fn every_target_of_the_limits_is_checked() {
    let mut cases = limits::cases(&kinds(&DRIVERS), Pace::Quick);
    fill(&mut cases);
    let mut outcome = Outcome::default();
    check::report(&mut outcome, Suite::Limits, limits::checks(&cases));
    // 64 B over tcp and over ws, 4 KiB and 64 KiB over what the AEAD leaves, 64 B pipelined in us and over tcp.
    let values: Vec<f64> = outcome.lines.iter().map(|line| line.value).collect();
    let expected = [3.6 / 1.8, 3.6 / 2.7, 3.6 / (2.7 + 0.5), 3.6 / (1.8 + 0.5), 3.6, 3.6 / 1.8];
    assert!(values.iter().zip(expected).all(|(is, due)| (is - due).abs() < 0.02), "{values:?}");
    assert_eq!((values.len(), outcome.text.matches("missed").count()), (6, 6), "{}", outcome.text);
    assert!(outcome.lines.iter().all(|line| line.target.is_some()));
}

#[test]
fn every_target_of_the_peers_is_checked() {
    let kinds = peers::kinds(Pace::Thorough, &DRIVERS);
    let mut cases = cases_of(&[Shape::of(64), Shape { pipeline: 16, ..Shape::of(64) }], &kinds);
    fill(&mut cases);
    let mut outcome = Outcome::default();
    check::report(&mut outcome, Suite::Peers, peers::checks(&cases));
    assert_eq!(outcome.lines.len(), 3);
    assert!((outcome.lines[0].value - 3.6 / 5.0).abs() < 0.02 && outcome.text.contains("met"), "{}", outcome.text);
    assert_eq!(outcome.lines[2].case.peer.as_deref(), Some("fastwebsockets"));
}

#[test]
fn tables_fit_and_show_what_is_published() {
    let cases = measured();
    let mut broadcasts = echo::broadcasts(Pace::Quick, &DRIVERS);
    fill(&mut broadcasts);
    let mut beside = cases_of(&[64, 65_536].map(Shape::of), &peers::kinds(Pace::Thorough, &DRIVERS));
    fill(&mut beside);
    let tables = [overview::echo_table(&cases), limits::table(&cases), echo::table(&cases), peers::table(&beside)];
    for text in tables.iter().chain([&echo::broadcast_table(&broadcasts)]) {
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        // The longer names of engines that not every build has may cost the last column a digit.
        assert!(ENGINES.len() > 2 || !text.contains('…'), "{text}");
        assert!(text.contains("uring"), "{text}");
    }
    let text = overview::echo_table(&cases);
    assert!(text.contains("1,186,068+") && text.contains("1,186,068   ") && text.contains("186,068"), "{text}");
}

#[test]
fn a_program_that_is_no_server_is_an_error() {
    for program in ["/bin/true", "/does/not/exist"] {
        let mut progress = |_: f64, _: &str| {};
        let lab = Lab {
            program: program.into(),
            pace: Pace::Glance,
            placement: Placement::here(),
            drivers: vec![Io::Epoll],
            peers: None,
            progress: &mut progress,
        };
        assert!(matches!(lab.servers(&[Kind::Ws(Io::Epoll)]), Err(Error::Failed(_))), "{program}");
    }
}

#[test]
fn peers_that_are_not_there_are_a_matter_of_usage() {
    let mut progress = |_: f64, _: &str| {};
    let mut lab = Lab {
        program: "/bin/true".into(),
        pace: Pace::Glance,
        placement: Placement::here(),
        drivers: vec![Io::Epoll],
        peers: Some("/does/not/exist".into()),
        progress: &mut progress,
    };
    let Err(Error::Usage(what)) = Suite::Peers.run(&mut lab) else { panic!("no error of usage") };
    assert!(what.contains("cargo build") && what.contains("--peers"), "{what}");
}
