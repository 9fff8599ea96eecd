use super::Home;
use serde_json::Value;
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use tautline_lab::DriverKind;
use tautline_lab::suites::{ENGINES, Effort, Lab, Outcome, Suite};
use tautline_lab::table::WIDTH;
use tautline_lab::{Line, Metric, Protocol};

/// Runs a suite against the servers of this build on one driver, in one short round.
fn smoke(suite: Suite) -> Outcome {
    let mut last = 0.0;
    let mut progress = |share: f64, _: &str| {
        assert!(share >= last && share <= 1.0, "{share} after {last}");
        last = share;
    };
    let program = Path::new(env!("CARGO_BIN_EXE_taut")).to_owned();
    let stop = AtomicBool::new(false);
    let mut lab = Lab::new(program, Effort::Smoke, &stop, &mut progress);
    let outcome = suite.run(&mut lab).unwrap();
    assert!(outcome.text.lines().all(|line| line.chars().count() <= WIDTH), "{}", outcome.text);
    assert!(outcome.lines.iter().all(|line| line.suite == suite.name() && line.value.is_finite()));
    outcome
}

/// Tries a test up to three times. On a busy machine the server may not run during such short rounds, and then figures
/// or connections are missing.
fn tried(test: fn()) {
    if (0..2).all(|_| std::panic::catch_unwind(test).is_err()) {
        test();
    }
}

#[test]
fn overview_measures_limit_plain_every_engine_and_handshakes() {
    tried(overview);
}

fn overview() {
    let outcome = smoke(Suite::Overview);
    let engines = |metric| {
        let lines = outcome.lines.iter().filter(move |line| line.metric == metric && line.case.size == Some(64));
        lines.map(|line| (line.case.protocol, line.case.tls.clone())).collect::<Vec<_>>()
    };
    let mut expected = vec![(Some(Protocol::Tcp), None), (Some(Protocol::Ws), None)];
    expected.extend(ENGINES.iter().map(|&engine| (Some(Protocol::Wss), Some(engine.to_owned()))));
    assert_eq!(engines(Metric::Throughput), expected);
    // There is no ratio if the server does not run at all in such a short round.
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
    let outcome = smoke(Suite::Idle);
    let metrics: Vec<Metric> = outcome.lines.iter().map(|line| line.metric).collect();
    // One metric once they are open, and one after an echo on each.
    assert_eq!(metrics, vec![Metric::RssPerConnection; 2 * (1 + ENGINES.len())]);
    assert!(outcome.lines.iter().all(|line| line.case.driver.as_deref() == Some("epoll")));
}

#[test]
fn echo_measures_broadcasts_too() {
    tried(echo);
}

fn echo() {
    let outcome = smoke(Suite::Echo);
    let broadcasts = outcome.lines.iter().filter(|line| line.case.subscribers.is_some());
    let mut sizes: Vec<_> = broadcasts.map(|line| (line.case.size, line.case.setup.clone())).collect();
    sizes.dedup();
    assert_eq!(sizes, [(Some(64), None), (Some(1024), None), (Some(1024), Some("permessage-deflate".to_owned()))]);
}

#[test]
fn latency_measures_shares_of_each_servers_capacity() {
    tried(latency);
}

fn latency() {
    let outcome = smoke(Suite::Latency);
    let setups = |metric| {
        let lines = outcome.lines.iter().filter(move |line| line.metric == metric);
        lines.map(|line| line.case.setup.clone().unwrap_or_default()).collect::<Vec<_>>()
    };
    for metric in [Metric::LatencyP50, Metric::LatencyP999, Metric::LatencyMax] {
        assert_eq!(setups(metric), ["", "rate=60%", "rate=common"]);
    }
    assert!(outcome.lines.iter().all(|line| line.case.protocol == Some(Protocol::Wss)));
}

#[test]
fn storm_measures_each_way_to_lose_a_server() {
    tried(storm);
}

fn storm() {
    let outcome = smoke(Suite::Storm);
    for metric in [Metric::ReturnTime, Metric::LatencyP99] {
        let lines = outcome.lines.iter().filter(|line| line.metric == metric);
        let setups: Vec<_> = lines.map(|line| (line.case.setup.as_deref(), line.value > 0.0)).collect();
        let ways = ["killed", "drained", "drained beside clients"];
        assert_eq!(setups, ways.map(|way| (Some(way), true)), "{metric:?}");
    }
}

#[test]
fn edge_measures_the_proxy_beside_its_two_ends() {
    tried(edge);
}

fn edge() {
    let outcome = smoke(Suite::Edge);
    let ours = |metric| {
        let is_ours = move |line: &&Line| line.metric == metric && line.case.peer.as_deref() == Some("tautline");
        outcome.lines.iter().filter(is_ours).collect::<Vec<_>>()
    };
    // Four loads of messages, passed as bytes and as messages, requests and a fixed rate. A row that a busy machine leaves out
    // is named.
    let loads = ours(Metric::ServerCpuPerMsg);
    let loads: Vec<&str> = loads.iter().map(|line| line.case.setup.as_deref().unwrap_or_default()).collect();
    let expected = ["", "messages", "", "messages", "", "messages", "", "messages", "GET", "rate=5000"];
    let mut due = expected.iter();
    assert!(loads.iter().all(|load| due.any(|name| name == load)), "{loads:?}");
    assert!(expected.iter().all(|name| loads.contains(name)), "{loads:?}");
    let handshakes = ours(Metric::ServerCpuPerHandshake);
    let is_whole = loads.len() == expected.len() && handshakes.len() == 2;
    assert!(is_whole || !outcome.warnings.is_empty(), "{loads:?}, {handshakes:?}");
    assert!(!handshakes.is_empty());
    assert_eq!(ours(Metric::RssPerConnection).len(), 4);
    // Nobody else takes part in such a run: the ends and the bytes of the same proxy judge.
    let judged: Vec<_> = outcome.lines.iter().filter(|line| line.target.is_some()).map(|line| line.metric).collect();
    assert_eq!(judged[0], Metric::RatioToLimit);
    assert!(judged.len() > 1 && judged[1..].iter().all(|metric| *metric == Metric::RatioToPeer), "{judged:?}");
    assert!(judged.len() == 5 || !is_whole, "{judged:?}");
}

#[cfg(feature = "http2")]
#[test]
fn http2_measures_streams_beside_http1() {
    tried(http2);
}

#[cfg(feature = "http2")]
fn http2() {
    let outcome = smoke(Suite::Http2);
    let setups = |metric| {
        let of = outcome.lines.iter().filter(move |line| line.metric == metric && line.target.is_none());
        of.filter_map(|line| line.case.setup.as_deref()).collect::<Vec<_>>()
    };
    // A row that a busy machine leaves out is named.
    let (loads, expected) = (setups(Metric::ServerCpuPerMsg), ["h1", "h2 x1", "h2 x10", "h1", "h2 x1", "h2 GET"]);
    let mut due = expected.iter();
    assert!(loads.iter().all(|load| due.any(|name| name == load)), "{loads:?}");
    assert!(loads.len() == expected.len() || !outcome.warnings.is_empty(), "{loads:?}");
    assert_eq!(setups(Metric::RssPerConnection).len(), 3);
    // Nobody else takes part in such a run.
    let judged: Vec<_> = outcome.lines.iter().filter(|line| line.target.is_some()).map(|line| line.metric).collect();
    let (ratios, memory) = judged.split_at(judged.len() - 2);
    assert!(ratios.iter().all(|metric| *metric == Metric::RatioToPlain) && ratios.len() <= 3, "{ratios:?}");
    assert!(ratios.len() == 3 || loads.len() < expected.len(), "{ratios:?}");
    assert_eq!(memory, [Metric::RssPerConnection; 2]);
}

#[cfg(not(feature = "http2"))]
#[test]
fn http2_names_the_feature_that_is_missing() {
    let mut progress = |_: f64, _: &str| {};
    let stop = AtomicBool::new(false);
    let mut lab = Lab::new("/bin/true", Effort::Smoke, &stop, &mut progress);
    let why = Suite::Http2.run(&mut lab).unwrap_err().to_string();
    assert!(why.contains("--features http2"), "{why}");
}

#[test]
fn fleet_measures_a_hub_that_has_no_broker() {
    tried(fleet);
}

fn fleet() {
    let outcome = smoke(Suite::Fleet);
    let setups = |metric| {
        let lines = outcome.lines.iter().filter(move |line| line.metric == metric);
        lines.map(|line| line.case.setup.clone().unwrap_or_default()).collect::<Vec<_>>()
    };
    let all = ["memory", "memory, to all", "memory, history", "memory, history, to all"];
    for metric in [Metric::ServerCpuPerMsg, Metric::LatencyP50, Metric::LatencyP99] {
        assert_eq!(setups(metric), all, "{metric:?}: {:?}", outcome.warnings);
    }
    assert_eq!(setups(Metric::RssPerConnection), ["memory", "memory, history"]);
    assert!(outcome.lines.iter().all(|line| line.case.peer.as_deref() == Some("tautline")));
}

#[test]
fn deflate_measures_both_directions_and_memory() {
    tried(deflate);
}

fn deflate() {
    let outcome = smoke(Suite::Deflate);
    let of = |metric| outcome.lines.iter().filter(move |line| line.metric == metric);
    // Two sizes, with context takeover and without; in JSON a message is at least halved.
    let ratios: Vec<f64> = of(Metric::RatioToWire).map(|line| line.value).collect();
    assert!(ratios.len() == 4 && ratios.iter().all(|ratio| *ratio > 2.0), "{ratios:?}");
    assert_eq!(of(Metric::ServerCpuPerMsg).filter(|line| line.case.direction.as_deref() == Some("write")).count(), 4);
    assert_eq!(of(Metric::RssPerConnection).count(), 2);
}

#[test]
fn records_needs_no_server() {
    let outcome = smoke(Suite::Records);
    let values = |strategy: &str| {
        let lines = outcome.lines.iter().filter(|line| line.metric == Metric::CpuPerMsg && line.target.is_none());
        lines.filter(|line| line.case.strategy.as_deref() == Some(strategy)).map(|line| line.value).collect::<Vec<_>>()
    };
    // Each provider's bare AEAD is measured.
    let providers: HashSet<_> = outcome.lines.iter().filter_map(|line| line.case.aead.as_deref()).collect();
    assert!(providers.contains("aws-lc") && providers.contains("ring"), "{providers:?}");
    for (strategy, rows) in [("aead", 10), ("fused", 5), ("unbuffered", 5)] {
        let values = values(strategy);
        assert!(values.len() == rows && values.iter().all(|us| *us > 0.0), "{strategy}: {values:?}");
    }
    assert_eq!(outcome.lines.iter().filter(|line| line.target.is_some()).count(), 4);
}

#[test]
fn handshake_measures_signatures_and_storms_too() {
    tried(handshakes);
}

fn handshakes() {
    let outcome = smoke(Suite::Handshake);
    let count = |metric| outcome.lines.iter().filter(|line| line.metric == metric).count();
    assert_eq!(count(Metric::CpuPerSignature), 4);
    // Without TLS: one. Default engine: four kinds of key in two groups, inline in one group, and resumed. RSA-2048 is also
    // measured inline and in the other group. Other engines: two kinds of key, one of them also resumed if the engine can.
    // Three storms are added below.
    let forgetful = ENGINES.iter().filter(|engine| **engine == "libressl").count();
    let connections = 1 + 8 + 4 + 4 + 2 + 3 * (ENGINES.len() - 1) - forgetful;
    assert_eq!(count(Metric::Handshakes), connections + 3);
    // A busy machine may open no connection in such a short round.
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
fn offload_stands_beside_inline_and_published_figures() {
    tried(offloading);
}

fn offloading() {
    let outcome = smoke(Suite::Offload);
    let throughput = |line: &&Line| line.metric == Metric::Throughput && line.case.direction.is_none();
    let cases: Vec<_> = outcome
        .lines
        .iter()
        .filter(throughput)
        .map(|line| (line.case.execution.as_deref().unwrap_or_default(), line.case.size, line.published.is_some()))
        .collect();
    // The report has figures for two of these loads, except for gated. No gated row follows always-offload.
    let loads = [(64, true), (64, true), (1 << 20, false)];
    let gate = loads.into_iter().flat_map(|(size, has)| [("inline", Some(size), has), ("gated", Some(size), false)]);
    let always = loads.into_iter().map(|(size, has)| ("always-offload", Some(size), has));
    let expected: Vec<_> = gate.chain(always).collect();
    assert_eq!(cases, expected);
    assert!(outcome.text.contains("Crossover: "), "{}", outcome.text);
    let targets: Vec<_> = outcome.lines.iter().filter(|line| line.target.is_some()).collect();
    assert!(targets.iter().all(|line| line.metric == Metric::RatioToInline), "{targets:?}");
}

#[test]
fn scaling_measures_models_by_threads() {
    tried(models);
}

fn models() {
    let outcome = smoke(Suite::Scaling);
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
    // In pairs too, one and two of each model, if there are two CPUs.
    let is_pair = |line: &&Line| line.case.setup.as_deref() == Some("pairs") && line.metric == Metric::Transfer;
    let pairs = outcome.lines.iter().filter(is_pair).count();
    let scaled = outcome.lines.iter().filter(|line| line.metric == Metric::RatioToOneLoop).count();
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert_eq!((pairs, scaled), if cpus > 1 { (4, 1) } else { (0, 0) }, "{}", outcome.text);
}

#[test]
fn windows_measures_every_variant() {
    let outcome = smoke(Suite::Windows);
    let count = |metric, setup: Option<&str>, direction: &str| {
        let is_it = |line: &&Line| {
            line.metric == metric
                && line.target.is_none()
                && line.case.setup.as_deref() == setup
                && line.case.direction.as_deref().unwrap_or_default() == direction
        };
        outcome.lines.iter().filter(is_it).count()
    };
    // rustls buffered and unbuffered, and fused. Each other library has two variants, and a third if it has BIOs. The AEAD
    // has no connection. Records behind another library's handshake are those of `fused`.
    let others = ENGINES.iter().skip(2).filter(|engine| !engine.contains('+')).count();
    let is_family = |engine: &&&str| ["openssl", "aws-lc", "boringssl", "libressl"].contains(engine);
    let variants = 3 + 2 * others + ENGINES.iter().filter(is_family).count();
    for direction in ["seal", "open"] {
        assert_eq!(count(Metric::CpuPerMsg, None, direction), 6 * (variants + 1));
    }
    for direction in ["read", "write"] {
        assert_eq!(count(Metric::Transfer, None, direction), variants);
        assert_eq!(count(Metric::Transfer, Some("spill"), direction), others);
    }
    assert_eq!(count(Metric::CpuPerMsg, Some("multiplexed"), ""), variants);
    for setup in ["keep-alive", "close"] {
        assert_eq!(count(Metric::Throughput, Some(setup), ""), variants);
    }
    let (checks, says_how) = (outcome.text.contains("openssl window-bio, x mem"), !outcome.warnings.is_empty());
    assert!(if ENGINES.contains(&"openssl") { checks } else { says_how && !checks }, "{}", outcome.text);
}

#[test]
fn feed_measures_our_client_at_every_number_of_symbols() {
    tried(feed);
}

fn feed() {
    let outcome = smoke(Suite::Feed);
    // Others are not built in a smoke run.
    for metric in [Metric::Throughput, Metric::CpuPerMsg, Metric::LatencyP50, Metric::LatencyP999] {
        let lines = outcome.lines.iter().filter(|line| line.metric == metric);
        let setups: Vec<_> = lines.map(|line| line.case.setup.clone().unwrap()).collect();
        assert_eq!(setups, ["1 symbols", "100 symbols", "500 symbols"], "{:?}", outcome.warnings);
        // The venue's stamps and the client's clock count from the same moment.
        let mut lines = outcome.lines.iter().filter(|line| line.metric == metric);
        assert!(lines.all(|line| line.value > 0.0 && line.value < 60e6), "{}", outcome.text);
    }
}

#[test]
#[cfg(feature = "xdp")]
fn wire_measures_both_stacks() {
    tried(wire);
}

#[cfg(feature = "xdp")]
fn wire() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let outcome = smoke(Suite::Wire);
    let lines = outcome.lines.iter().filter(|line| line.metric == Metric::LatencyP50 && line.target.is_none());
    let found: Vec<_> =
        lines.map(|line| (line.case.driver.as_deref().unwrap(), line.case.connections.unwrap())).collect();
    let busy = [("epoll", 100), ("xdp", 100)];
    let spinning = [("spin", 1), ("xdp-spin", 1)];
    assert_eq!(found, [busy, busy, spinning, spinning].concat());
}

#[test]
fn a_refused_connection_ends_the_run() {
    // The program claims to listen, but connections to it are refused.
    let folder = std::env::temp_dir().join(format!("taut-bench-test-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join("gone");
    std::fs::write(&program, "#!/bin/sh\necho listening on tcp://127.0.0.1:1\n").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let mut progress = |_: f64, _: &str| {};
    let stop = AtomicBool::new(false);
    let mut lab = Lab::new(program, Effort::Smoke, &stop, &mut progress);
    let result = Suite::Limits.run(&mut lab);
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(result.is_err());
}

#[test]
fn stages_measures_every_driver() {
    tried(stages);
}

fn stages() {
    let outcome = smoke(Suite::Stages);
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
        assert_eq!(stages("epoll", &format!("steady over {place}")).len(), 8);
        let setup = format!("market over {place}");
        for driver in ["epoll", "select", "spin"] {
            let all = ["nic", "loop", "read", "tls", "parse", "callback", "app", "total"];
            assert_eq!(stages(driver, &setup), all, "{driver} over {place}");
        }
        if DriverKind::Uring.probe().is_ok() {
            // It receives while it waits, so there is no stage for reading.
            assert_eq!(stages("uring", &setup), ["nic", "loop", "tls", "parse", "callback", "app", "total"]);
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

/// The figures of a crowd in several tables of descriptors, whose loops and threads each hold a part of it.
#[test]
fn million_holds_a_crowd_in_several_tables_of_descriptors() {
    tried(million);
}

fn million() {
    let said = Home::new().run(&[
        "bench",
        "million",
        "--quick",
        "--connections",
        "400",
        "--per-table",
        "150",
        "--driver",
        "epoll",
        "--json",
        "-",
    ]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let lines: Vec<Value> = said.out.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
    let value = |metric: &str| {
        let line = lines.iter().find(|line| line["metric"] == metric).unwrap_or_else(|| panic!("no {metric}"));
        assert_eq!(line["case"]["connections"], 400, "{line}");
        assert!(line["case"]["threads"].as_u64().unwrap() > 2, "{line}");
        line["value"].as_f64().unwrap()
    };
    for metric in ["handshakes", "latency_p50", "latency_p99", "latency_max", "rss", "drain_time"] {
        assert!(value(metric) > 0.0, "{metric}");
    }
}
