use super::Home;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tautline_lab::suites::{Effort, Lab, Outcome, Suite};
use tautline_lab::{Case, Line, Machine, Metric, write_json};

/// Stored results whose costs are `cost` times as high.
fn store(path: &Path, cost: f64) {
    let lines = [64, 1024].map(|size| {
        let case = Case { size: Some(size), ..Case::default() };
        Line::new("limits", &case, Metric::ServerCpuPerMsg, &[2.0 * cost, 2.01 * cost, 1.99 * cost]).unwrap()
    });
    write_json(&mut File::create(path).unwrap(), &Machine::here(), &lines).unwrap();
}

#[test]
fn a_page_is_made_from_stored_results() {
    let home = Home::new();
    let (first, second) = (home.0.join("first.jsonl"), home.0.join("second.jsonl"));
    store(&first, 1.0);
    fs::write(&second, fs::read_to_string(&first).unwrap().replace("\"limits\"", "\"peers\"")).unwrap();
    let said = home.run(&["bench", "report", "first.jsonl", "second.jsonl", "--output", "page.html"]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), ""), "{said:?}");
    let page = fs::read_to_string(home.0.join("page.html")).unwrap();
    assert!(page.contains("suite-limits") && page.contains("suite-peers"));
    fs::write(&second, "no results").unwrap();
    let said = home.run(&["bench", "report", "first.jsonl", "second.jsonl"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("second.jsonl, line 1: is no result of `taut bench --json`"), "{said:?}");
    assert_eq!(home.run(&["bench", "report", "missing.jsonl"]).code, Some(2));
    assert_eq!(home.run(&["bench", "report"]).code, Some(2));
}

#[test]
fn a_regression_is_an_exit_code() {
    let home = Home::new();
    for (name, cost) in [("a", 1.0), ("b", 1.01), ("c", 1.3)] {
        store(&home.0.join(name), cost);
    }
    let said = home.run(&["bench", "diff", "a", "b"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("2 figures in both runs, 0 only in one; 0 worse"), "{said:?}");
    let said = home.run(&["bench", "diff", "a", "c"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("Worse:") && said.err.contains("2 of 2 figures are worse"), "{said:?}");
    assert_eq!(home.run(&["bench", "diff", "c", "a"]).code, Some(0), "faster is no regression");
    assert_eq!(home.run(&["bench", "diff", "a", "c", "--tolerance", "50"]).code, Some(0));
    assert_eq!(home.run(&["bench", "diff", "a", "c", "--tolerance", "-1"]).code, Some(2));
    store(&home.0.join("d"), 1.0);
    let other = fs::read_to_string(home.0.join("d")).unwrap().replace("limits", "echo");
    fs::write(home.0.join("d"), other).unwrap();
    let said = home.run(&["bench", "diff", "a", "d"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("no figure in common"), "{said:?}");
}

#[test]
fn ctrl_c_keeps_what_was_measured() {
    let home = Home::new();
    let arguments = ["bench", "records", "offload", "--quick", "--json", "all.jsonl", "--report", "page.html"];
    let mut bench = home.taut(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let outcomes = || -> Vec<Value> {
        let text = fs::read_to_string(home.0.join("all.jsonl")).unwrap_or_default();
        let objects = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        objects.filter_map(|mut object| object.get_mut("outcome").map(Value::take)).collect()
    };
    let end = Instant::now() + Duration::from_secs(120);
    while outcomes().is_empty() {
        assert!(Instant::now() < end && bench.try_wait().unwrap().is_none(), "the first suite did not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = Pid::from_raw(i32::try_from(bench.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let ended = bench.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(130), "{told}");
    assert!(told.contains("interrupted: what was measured until then is kept"), "{told}");
    let found = outcomes();
    let found: Vec<_> = found.iter().map(|it| (it["suite"].as_str().unwrap(), it["is_interrupted"] == true)).collect();
    assert_eq!(found, [("records", false), ("offload", true)]);
    let page = fs::read_to_string(home.0.join("page.html")).unwrap();
    assert!(page.contains("suite-records") && page.contains("suite-offload"));
}

/// Runs a suite that is stopped after a number of measurements.
fn stopped(suite: Suite, after: usize) -> Outcome {
    let (stop, mut calls) = (AtomicBool::new(after == 0), 0);
    let mut progress = |_: f64, _: &str| {
        calls += 1;
        stop.store(calls >= after, Ordering::Relaxed);
    };
    let mut lab = Lab::new(env!("CARGO_BIN_EXE_taut"), Effort::Smoke, &stop, &mut progress);
    lab.has_chosen_drivers = true;
    suite.run(&mut lab).unwrap()
}

#[test]
fn an_interrupted_suite_reports_what_it_has() {
    let suites = [
        Suite::Overview,
        Suite::Echo,
        Suite::Limits,
        Suite::Idle,
        Suite::Latency,
        Suite::Deflate,
        Suite::Records,
        Suite::Handshake,
        Suite::Stages,
        Suite::Offload,
        Suite::Scaling,
        Suite::Windows,
    ];
    for suite in suites {
        for after in [0, 2] {
            let outcome = stopped(suite, after);
            assert!(outcome.is_interrupted && !outcome.warnings.is_empty(), "{}", suite.name());
            assert!(outcome.lines.iter().all(|line| line.value.is_finite()), "{}", suite.name());
            assert!(after == 0 || !outcome.lines.is_empty(), "{} has nothing", suite.name());
        }
    }
}
