use super::echo_case::{EchoCase, Shape, add_lines, beside, cases};
use super::*;
use crate::table::WIDTH;
use crate::{Metric, Protocol};

/// Cases of two sizes with made-up samples: tcp costs 2, ws 3, wss 4 and 5 us.
fn measured() -> Vec<EchoCase> {
    let shapes = [64, 16_384].map(|size| Shape { size, connections: 100, pipeline: 1 });
    let mut cases = cases(&shapes, true);
    let count = ENGINES.len() + 2;
    for (i, case) in cases.iter_mut().enumerate() {
        let cpu = 2.0 + (i % count) as f64;
        case.samples.insert(Metric::ServerCpuPerMsg, vec![cpu, cpu * 1.01, cpu * 0.99]);
        case.samples.insert(Metric::Throughput, vec![186_068.0, 190_000.0, 180_000.0]);
        case.samples.insert(Metric::LatencyP99, vec![12_345.6; 3]);
    }
    cases[1].is_bounded = true;
    cases
}

#[test]
fn ratios_are_to_the_same_load_only() {
    let cases = measured();
    assert_eq!(cases.len(), 2 * (ENGINES.len() + 2));
    let wss = cases.iter().find(|case| case.kind.protocol() == Protocol::Wss && case.shape.size == 16_384).unwrap();
    let plain = beside(&cases, wss, Protocol::Ws).unwrap();
    assert_eq!(plain.shape.size, 16_384);
    assert!((wss.cpu_over(plain).unwrap().summary.median - 4.0 / 3.0).abs() < 1e-9);
    assert!(beside(&cases, &cases[0], Protocol::Tcp).is_none());
    assert!(beside(&cases, &cases[1], Protocol::Ws).is_none());
}

#[test]
fn lines_have_every_metric_and_both_ratios() {
    let mut outcome = Outcome::default();
    add_lines(&mut outcome, Suite::Limits, &measured());
    let count = |metric| outcome.lines.iter().filter(|line| line.metric == metric).count();
    assert_eq!(count(Metric::ServerCpuPerMsg), 2 * (ENGINES.len() + 2));
    assert_eq!(count(Metric::RatioToLimit), 2 * (ENGINES.len() + 1));
    assert_eq!(count(Metric::RatioToPlain), 2 * ENGINES.len());
    assert!(outcome.lines.iter().all(|line| line.runs.len() == 3 && line.suite == "limits"));
    assert_eq!(outcome.warnings.len(), 1, "{:?}", outcome.warnings);
}

#[test]
fn noisy_rows_are_named() {
    let mut cases = measured();
    cases[2].samples.insert(Metric::ServerCpuPerMsg, vec![4.0, 6.0, 5.0]);
    let mut outcome = Outcome::default();
    add_lines(&mut outcome, Suite::Echo, &cases);
    assert!(outcome.warnings[0].starts_with("wss fused, 64 B"), "{:?}", outcome.warnings);
}

#[test]
fn tables_fit_and_show_what_is_published() {
    let cases = measured();
    for text in [overview::echo_table(&cases), limits::table(&cases), echo::table(&cases)] {
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(!text.contains('…'), "{text}");
        assert!(text.contains("wss fused"), "{text}");
    }
    let text = overview::echo_table(&cases);
    assert!(text.contains("186,068+") && text.contains("186,068   "), "{text}");
}

#[test]
fn a_program_that_is_no_server_is_an_error() {
    for program in ["/bin/true", "/does/not/exist"] {
        let mut progress = |_: f64, _: &str| {};
        let placement = Placement::here();
        let lab = Lab { program: program.into(), pace: Pace::Glance, placement, progress: &mut progress };
        assert!(matches!(lab.servers(&[server::Kind::Ws]), Err(Error::Failed(_))), "{program}");
    }
}
