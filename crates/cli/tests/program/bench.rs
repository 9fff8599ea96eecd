use std::path::Path;
use tautline::Io;
use tautline_lab::cpu::Placement;
use tautline_lab::suites::{ENGINES, Lab, Outcome, Pace, Suite};
use tautline_lab::table::WIDTH;
use tautline_lab::{Line, Metric, Protocol};

/// Runs a suite against this build's servers on one driver, as short as can be.
fn glance(suite: Suite) -> Outcome {
    let mut last = 0.0;
    let mut progress = |share: f64, _: &str| {
        assert!(share >= last && share <= 1.0, "{share} after {last}");
        last = share;
    };
    let program = Path::new(env!("CARGO_BIN_EXE_taut")).to_owned();
    let mut lab = Lab {
        program,
        pace: Pace::Glance,
        placement: Placement::here(),
        drivers: vec![Io::Epoll],
        peers: None,
        progress: &mut progress,
    };
    let outcome = suite.run(&mut lab).unwrap();
    assert!(outcome.text.lines().all(|line| line.chars().count() <= WIDTH), "{}", outcome.text);
    assert!(outcome.lines.iter().all(|line| line.suite == suite.name() && line.value.is_finite()));
    outcome
}

/// Rounds as short as these may pass without the server being let run, and then figures are missing, or connections: the
/// next try has them.
fn tried(test: fn()) {
    if (0..2).all(|_| std::panic::catch_unwind(test).is_err()) {
        test();
    }
}

#[test]
fn the_overview_has_limit_plain_every_engine_and_handshakes() {
    tried(overview);
}

fn overview() {
    let outcome = glance(Suite::Overview);
    let engines = |metric| {
        let lines = outcome.lines.iter().filter(move |line| line.metric == metric && line.case.size == Some(64));
        lines.map(|line| (line.case.protocol, line.case.tls.clone())).collect::<Vec<_>>()
    };
    let mut expected = vec![(Some(Protocol::Tcp), None), (Some(Protocol::Ws), None)];
    expected.extend(ENGINES.iter().map(|&engine| (Some(Protocol::Wss), Some(engine.to_owned()))));
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
    tried(idle);
}

fn idle() {
    let outcome = glance(Suite::Idle);
    let metrics: Vec<Metric> = outcome.lines.iter().map(|line| line.metric).collect();
    // Once they are open, and after an echo on each.
    assert_eq!(metrics, vec![Metric::RssPerConnection; 2 * (1 + ENGINES.len())]);
    assert!(outcome.lines.iter().all(|line| line.case.driver.as_deref() == Some("epoll")));
}

#[test]
fn echo_measures_broadcasts_too() {
    tried(echo);
}

fn echo() {
    let outcome = glance(Suite::Echo);
    let broadcasts = outcome.lines.iter().filter(|line| line.case.subscribers.is_some());
    let mut sizes: Vec<_> = broadcasts.map(|line| (line.case.size, line.case.setup.clone())).collect();
    sizes.dedup();
    assert_eq!(sizes, [(Some(64), None), (Some(1024), None), (Some(1024), Some("permessage-deflate".to_owned()))]);
}

#[test]
fn records_are_measured_without_a_server() {
    let outcome = glance(Suite::Records);
    let values = |strategy: &str| {
        let lines = outcome.lines.iter().filter(|line| line.metric == Metric::CpuPerMsg && line.target.is_none());
        lines.filter(|line| line.case.strategy.as_deref() == Some(strategy)).map(|line| line.value).collect::<Vec<_>>()
    };
    for strategy in ["aead", "fused", "unbuffered"] {
        let values = values(strategy);
        assert!(values.len() == 5 && values.iter().all(|us| *us > 0.0), "{strategy}: {values:?}");
    }
    assert_eq!(outcome.lines.iter().filter(|line| line.target.is_some()).count(), 4);
}

#[test]
fn handshakes_are_measured_beside_signatures_and_in_storms() {
    tried(handshakes);
}

fn handshakes() {
    let outcome = glance(Suite::Handshake);
    let count = |metric| outcome.lines.iter().filter(|line| line.metric == metric).count();
    assert_eq!(count(Metric::CpuPerSignature), 4);
    // Without TLS; by the default engine with four kinds of key and two groups, inline with one group, resumed with every kind,
    // and with RSA-2048 inline and with the other group too; by the others with two kinds of key, with one resumed too, where
    // they do that. And three storms.
    let forgetful = ENGINES.iter().filter(|engine| **engine == "libressl").count();
    let connections = 1 + 8 + 4 + 4 + 2 + 3 * (ENGINES.len() - 1) - forgetful;
    assert_eq!(count(Metric::Handshakes), connections + 3);
    // A busy machine may make no connection in so short a round.
    assert!((1..=connections).contains(&count(Metric::ClientCpuPerHandshake)));
    let setups: Vec<_> = outcome
        .lines
        .iter()
        .filter(|line| line.metric == Metric::LatencyP99)
        .filter_map(|line| Some((line.case.setup.as_deref()?, line.case.execution.as_deref()?)))
        .collect();
    assert_eq!(setups, [("quiet", "gated"), ("storm", "gated"), ("storm", "inline")]);
}

#[test]
fn offloading_is_measured_beside_inline_and_published() {
    tried(offloading);
}

fn offloading() {
    let outcome = glance(Suite::Offload);
    let throughput = |line: &&Line| line.metric == Metric::Throughput && line.case.direction.is_none();
    let cases: Vec<_> = outcome
        .lines
        .iter()
        .filter(throughput)
        .map(|line| (line.case.execution.as_deref().unwrap_or_default(), line.case.size, line.published.is_some()))
        .collect();
    // Two loads that the report has for what it measured, and one that it has not.
    let each = |size, published: [bool; 3]| {
        ["inline", "always-offload", "gated"].into_iter().zip(published).map(move |(name, has)| (name, Some(size), has))
    };
    let published = [true, true, false];
    let expected: Vec<_> = each(64, published).chain(each(64, published)).chain(each(1 << 20, [false; 3])).collect();
    assert_eq!(cases, expected);
    assert!(outcome.text.contains("Crossover: "), "{}", outcome.text);
    let targets: Vec<_> = outcome.lines.iter().filter(|line| line.target.is_some()).collect();
    assert!(targets.iter().all(|line| line.metric == Metric::RatioToInline), "{targets:?}");
}

#[test]
fn models_are_measured_over_threads() {
    tried(models);
}

fn models() {
    let outcome = glance(Suite::Scaling);
    let cases: Vec<_> = outcome
        .lines
        .iter()
        .filter(|line| line.metric == Metric::Transfer && line.case.setup.is_none())
        .map(|line| (line.case.model.as_deref().unwrap_or_default(), line.case.threads, line.published.is_some()))
        .collect();
    let expected = [
        ("shared-loop", Some(1), true),
        ("loop-per-core", Some(1), true),
        ("shared-loop", Some(2), true),
        ("loop-per-core", Some(2), true),
    ];
    assert_eq!(cases, expected);
    assert!(outcome.text.contains(" 2 loop-per-core #"), "{}", outcome.text);
    // In pairs too, one and two of each model, where there are two processors.
    let is_pair = |line: &&Line| line.case.setup.as_deref() == Some("pairs") && line.metric == Metric::Transfer;
    let pairs = outcome.lines.iter().filter(is_pair).count();
    let scaled = outcome.lines.iter().filter(|line| line.metric == Metric::RatioToOneLoop).count();
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert_eq!((pairs, scaled), if cpus > 1 { (4, 1) } else { (0, 0) }, "{}", outcome.text);
}

#[test]
fn every_way_of_records_to_buffers_is_measured() {
    let outcome = glance(Suite::Windows);
    let count = |metric, setup: Option<&str>, direction: &str| {
        let is_it = |line: &&Line| {
            line.metric == metric
                && line.target.is_none()
                && line.case.setup.as_deref() == setup
                && line.case.direction.as_deref().unwrap_or_default() == direction
        };
        outcome.lines.iter().filter(is_it).count()
    };
    // rustls buffered and unbuffered, fused; of each other library two ways, and a third where it has BIOs. The AEAD is no
    // connection, and what is behind a library's handshake is `fused` again.
    let others = ENGINES.iter().skip(2).filter(|engine| !engine.contains('+')).count();
    let is_family = |engine: &&&str| ["openssl", "aws-lc", "boringssl", "libressl"].contains(engine);
    let ways = 3 + 2 * others + ENGINES.iter().filter(is_family).count();
    for direction in ["seal", "open"] {
        assert_eq!(count(Metric::CpuPerMsg, None, direction), 6 * (ways + 1));
    }
    for direction in ["read", "write"] {
        assert_eq!(count(Metric::Transfer, None, direction), ways);
        assert_eq!(count(Metric::Transfer, Some("spill"), direction), others);
    }
    assert_eq!(count(Metric::CpuPerMsg, Some("multiplexed"), ""), ways);
    for setup in ["keep-alive", "close"] {
        assert_eq!(count(Metric::Throughput, Some(setup), ""), ways);
    }
    let (checks, says_how) = (outcome.text.contains("openssl window-bio, x mem"), !outcome.warnings.is_empty());
    assert!(if ENGINES.contains(&"openssl") { checks } else { says_how && !checks }, "{}", outcome.text);
}

#[test]
#[cfg(feature = "xdp")]
fn both_stacks_are_measured_over_one_wire() {
    tried(wire);
}

#[cfg(feature = "xdp")]
fn wire() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let outcome = glance(Suite::Wire);
    let lines = outcome.lines.iter().filter(|line| line.metric == Metric::LatencyP50 && line.target.is_none());
    let found: Vec<_> =
        lines.map(|line| (line.case.driver.as_deref().unwrap(), line.case.connections.unwrap())).collect();
    let busy = [("epoll", 100), ("xdp", 100)];
    let spinning = [("spin", 1), ("xdp-spin", 1)];
    assert_eq!(found, [busy, busy, spinning, spinning].concat());
}

#[test]
fn a_server_that_dies_ends_the_run() {
    // Serves nothing, but says that it does: connections are refused.
    let folder = std::env::temp_dir().join(format!("taut-bench-test-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join("gone");
    std::fs::write(&program, "#!/bin/sh\necho listening on tcp://127.0.0.1:1\n").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let mut progress = |_: f64, _: &str| {};
    let mut lab = Lab {
        program,
        pace: Pace::Glance,
        placement: Placement::here(),
        drivers: vec![Io::Epoll],
        peers: None,
        progress: &mut progress,
    };
    let result = Suite::Limits.run(&mut lab);
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(result.is_err());
}

#[test]
fn stages_are_measured_on_every_driver() {
    tried(stages);
}

fn stages() {
    let outcome = glance(Suite::Stages);
    let stages = |driver: &str, setup: &str| {
        let lines = outcome.lines.iter().filter(|line| line.metric == Metric::LatencyP50 && line.target.is_none());
        let lines = lines.filter(|line| {
            line.case.tls.as_deref() == Some("fused")
                && line.case.driver.as_deref() == Some(driver)
                && line.case.setup.as_deref() == Some(setup)
        });
        lines.filter_map(|line| line.case.stage.clone()).collect::<Vec<_>>()
    };
    let root = rustix::process::geteuid().is_root();
    for place in ["loopback", "veth"] {
        if place == "veth" && !root {
            assert!(outcome.warnings.iter().any(|note| note.contains("it takes root")), "{:?}", outcome.warnings);
            continue;
        }
        assert_eq!(stages("epoll", &format!("steady over {place}")).len(), 7);
        let setup = format!("market over {place}");
        for driver in ["epoll", "select", "spin"] {
            let all = ["nic", "loop", "read", "tls", "parse", "callback", "total"];
            assert_eq!(stages(driver, &setup), all, "{driver} over {place}");
        }
        if Io::Uring.probe().is_ok() {
            // It receives while it waits.
            assert_eq!(stages("uring", &setup), ["nic", "loop", "tls", "parse", "callback", "total"]);
        }
    }
    for (mode, why) in [(1, "wolfssl"), (4, "ktls")] {
        let name = format!("{mode}. {why}");
        let told = outcome.text.contains(&name) || outcome.warnings.iter().any(|note| note.contains(&name));
        assert!(told, "{name} is neither measured nor skipped with a reason: {:?}", outcome.warnings);
    }
    assert!(outcome.lines.iter().filter(|line| line.target.is_some()).count() >= 2 * 3);
    let cost = outcome.lines.iter().find(|line| line.metric == Metric::RatioToUnprobed);
    assert!(cost.is_some_and(|line| line.value > 0.0), "{cost:?}");
}
