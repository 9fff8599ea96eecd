use super::echo_case::{EchoRow, Shape, add_lines, kinds, limit_of, plain_of, rows as rows_of};
use super::peer::Peer;
use super::{ENGINES, Effort, Key, Kind, Lab, Outcome, Servers, Suite, check, echo, limits, overview, peers};
use crate::table::WIDTH;
use crate::{DriverKind, Error, Metric};
use std::sync::atomic::AtomicBool;

const DRIVERS: [DriverKind; 2] = [DriverKind::Epoll, DriverKind::Uring];

/// Number of compositions for each shape.
fn count() -> usize {
    2 * (ENGINES.len() + 2)
}

/// Adds samples of an ordinary machine: tcp costs 2 us, ws 3, and wss more; the second driver is a little cheaper.
fn fill(rows: &mut [EchoRow]) {
    for row in rows {
        let kind = row.subject.kind;
        let base = match kind {
            Kind::Aead(_) => 0.5,
            Kind::Tcp(_) => 2.0,
            Kind::Ws(_) => 3.0,
            Kind::Wss("fused", ..) => 4.0,
            _ => 5.0,
        };
        let cpu = if kind.driver() == Some(DriverKind::Uring) { base * 0.9 } else { base };
        let metric = if matches!(kind, Kind::Aead(_)) { Metric::CpuPerMsg } else { Metric::ServerCpuPerMsg };
        row.samples.insert(metric, vec![cpu, cpu * 1.01, cpu * 0.99]);
        row.samples.insert(Metric::Throughput, vec![1_186_068.0, 1_190_000.0, 1_180_000.0]);
        row.samples.insert(Metric::LatencyP50, vec![12_345.6; 3]);
        row.samples.insert(Metric::LatencyP99, vec![112_345.6; 3]);
    }
}

fn measured() -> Vec<EchoRow> {
    let mut rows = rows_of(&[64, 16_384].map(Shape::of), &kinds(&DRIVERS));
    fill(&mut rows);
    rows[2].subject.is_bounded = true;
    rows
}

#[test]
fn ratios_are_to_the_same_load_and_the_cheapest_limit() {
    let rows = measured();
    assert_eq!(rows.len(), 2 * count());
    let is_large = |row: &&EchoRow| row.subject.shape.size == 16_384;
    let find = |kind| rows.iter().filter(is_large).find(|row| row.subject.kind == kind).unwrap();
    let wss = find(Kind::Wss("fused", Key::P256, DriverKind::Epoll));
    let (limit, plain) = (limit_of(&rows, wss).unwrap(), plain_of(&rows, wss).unwrap());
    assert_eq!((limit.subject.kind, limit.subject.shape.size), (Kind::Tcp(DriverKind::Uring), 16_384));
    assert_eq!((plain.subject.kind, plain.subject.shape.size), (Kind::Ws(DriverKind::Epoll), 16_384));
    assert!((wss.cpu_over(limit).unwrap().summary.median - 4.0 / 1.8).abs() < 1e-9);
    assert!(limit_of(&rows, find(Kind::Tcp(DriverKind::Epoll))).is_none());
    assert!(plain_of(&rows, find(Kind::Ws(DriverKind::Epoll))).is_none());
}

#[test]
fn lines_have_every_metric_and_both_ratios() {
    let mut outcome = Outcome::of("limits");
    add_lines(&mut outcome, &measured());
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
fn one_warning_names_the_noisy_rows() {
    let mut rows = measured();
    for row in &mut rows[4..6] {
        row.samples.insert(Metric::ServerCpuPerMsg, vec![4.0, 6.0, 5.0]);
    }
    let mut outcome = Outcome::of("echo");
    add_lines(&mut outcome, &rows);
    let warning = &outcome.warnings[0];
    assert!(
        warning.starts_with(&format!("2 of {} rows", rows.len())) && warning.contains("most wss fused epoll 64 B with"),
        "{warning}"
    );
}

#[test]
fn every_target_of_the_limits_is_checked() {
    let mut rows = limits::rows(&kinds(&DRIVERS), Effort::Quick);
    fill(&mut rows);
    let mut outcome = Outcome::of("limits");
    check::report(&mut outcome, limits::checks(&rows));
    // 64 B over tcp and over ws, 4 KiB and 64 KiB over sums with the AEAD, 64 B pipelined in us and over tcp.
    let values: Vec<f64> = outcome.lines.iter().map(|line| line.value).collect();
    let expected = [3.6 / 1.8, 3.6 / 2.7, 3.6 / (2.7 + 0.5), 3.6 / (1.8 + 0.5), 3.6, 3.6 / 1.8];
    assert!(values.iter().zip(expected).all(|(is, due)| (is - due).abs() < 0.02), "{values:?}");
    assert_eq!((values.len(), outcome.text.matches("missed").count()), (6, 6), "{}", outcome.text);
    assert!(outcome.lines.iter().all(|line| line.target.is_some()));
}

#[test]
fn every_target_of_the_peers_is_checked() {
    let kinds = peers::kinds(Effort::Thorough, &DRIVERS, &Peer::ECHO);
    let mut rows = rows_of(&[Shape::of(64), Shape { pipeline: 16, ..Shape::of(64) }], &kinds);
    fill(&mut rows);
    for row in rows.iter_mut().filter(|row| matches!(row.subject.kind, Kind::Peer(Peer::Wtx, _))) {
        row.samples.insert(Metric::ServerCpuPerMsg, vec![4.5; 3]);
    }
    let mut outcome = Outcome::of("peers");
    check::report(&mut outcome, peers::checks(&rows));
    assert_eq!(outcome.lines.len(), 4);
    assert!((outcome.lines[0].value - 3.6 / 5.0).abs() < 0.02 && outcome.text.contains("met"), "{}", outcome.text);
    assert!((outcome.lines[1].value - 3.6 / 4.5).abs() < 0.02, "{}", outcome.text);
    assert_eq!(outcome.lines[3].case.peer.as_deref(), Some("fastwebsockets"));
    rows.retain(|row| !matches!(row.subject.kind, Kind::Peer(Peer::Wtx, _)));
    assert_eq!(peers::checks(&rows).len(), 3, "a peer that is missing is not judged");
}

#[test]
fn tables_fit_and_show_published_figures() {
    let rows = measured();
    let mut broadcasts = echo::broadcasts(Effort::Quick, &DRIVERS);
    fill(&mut broadcasts);
    let tables = [overview::echo_table(&rows), limits::table(&rows), echo::table(&rows)];
    for text in tables.iter().chain([&echo::broadcast_table(&broadcasts)]) {
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        // Longer names of optional engines may cost the last column a digit.
        assert!(ENGINES.len() > 2 || !text.contains('…'), "{text}");
        assert!(text.contains("uring"), "{text}");
    }
    let text = overview::echo_table(&rows);
    assert!(text.contains("1,186,068+") && text.contains("1,186,068   ") && text.contains("186,068"), "{text}");
}

#[test]
fn refuses_a_program_that_is_not_a_server() {
    for program in ["/bin/true", "/does/not/exist"] {
        let mut progress = |_: f64, _: &str| {};
        let stop = AtomicBool::new(false);
        let lab = Lab::new(program, Effort::Smoke, &stop, &mut progress);
        assert!(matches!(Servers::start(&lab, [Kind::Ws(DriverKind::Epoll)]), Err(Error::Failed(_))), "{program}");
    }
}

#[test]
fn a_missing_program_with_peers_is_an_error_of_usage() {
    let mut progress = |_: f64, _: &str| {};
    let stop = AtomicBool::new(false);
    let mut lab = Lab::new("/bin/true", Effort::Smoke, &stop, &mut progress);
    lab.peers = Some("/does/not/exist".into());
    let Err(Error::Usage(what)) = Suite::Peers.run(&mut lab) else { panic!("no error of usage") };
    assert!(what.contains("cargo build") && what.contains("--peers"), "{what}");
}
