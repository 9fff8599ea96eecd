use super::Home;
use serde_json::Value;

/// Parses the JSON lines of a run: the first describes the machine, the others are the results.
fn results(text: &str) -> Vec<Value> {
    let mut objects = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert!(objects.next().unwrap()["machine"]["cpu"].is_string());
    objects.collect()
}

fn value(results: &[Value], metric: &str) -> f64 {
    let line = results.iter().find(|line| line["metric"] == metric).unwrap_or_else(|| panic!("no {metric}"));
    line["value"].as_f64().unwrap()
}

#[test]
fn results_are_json_lines() {
    let home = Home::new();
    let server = home.serve(&[]);
    let short = ["--duration", "0.3", "--warmup", "0.1", "--json", "--server-pid", &server.pid()];
    let load = |more: &[&str]| {
        let said = home.run(&[&["load", &server.url], &short[..], more].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
        results(&said.out)
    };
    let closed = load(&["--connections", "10", "--size", "1000", "--pipeline", "2"]);
    let case = &closed[0]["case"];
    assert_eq!((&case["protocol"], &case["size"], &case["pipeline"]), (&"wss".into(), &1000.into(), &2.into()));
    assert!(value(&closed, "throughput") > 0.0 && value(&closed, "server_cpu_per_msg") > 0.0);
    assert!(value(&closed, "latency_p50") <= value(&closed, "latency_p999"));

    let open = load(&["--connections", "3", "--rate", "500"]);
    assert_eq!(open[0]["case"]["setup"], "rate=500");
    assert!(value(&open, "throughput") < 600.0);

    let handshakes = load(&["--connections", "2", "--handshakes"]);
    let resumed: Vec<&Value> =
        handshakes.iter().filter(|line| line["metric"] == "handshakes").map(|line| &line["case"]["resumed"]).collect();
    assert_eq!(resumed, [&Value::from(false), &Value::from(true)]);

    let idle = load(&["--connections", "30", "--idle"]);
    assert_eq!(idle[0]["metric"], "rss_per_connection");
}

#[test]
fn the_default_output_is_text() {
    let home = Home::new();
    let server = home.serve(&["--plain"]);
    let said =
        home.run(&["load", &server.url, "--duration", "0.2", "--driver", "select", "--server-pid", &server.pid()]);
    assert_eq!(said.code, Some(0), "{said:?}");
    for word in ["msg/s", "p99", "server CPU", "load CPU"] {
        assert!(said.out.contains(word), "{word} is missing in {}", said.out);
    }
}

#[test]
fn rejects_messages_that_are_too_large() {
    let said = Home::new().run(&["load", "ws://localhost:1/", "--size", "99999999999"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("at most 268435456 bytes"), "{said:?}");
}

#[test]
fn wrong_replies_exit_with_1() {
    let home = Home::new();
    // Each connection gets the messages of all connections, so it gets too many replies, and wrong ones.
    let server = home.serve(&["--plain", "--app", "broadcast"]);
    let said = home.run(&["load", &server.url, "--connections", "3", "--duration", "1"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.starts_with("taut: wrong reply"), "{said:?}");
}

#[test]
fn messages_above_the_servers_limit_end_the_run() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--max-message", "1000"]);
    let said = home.run(&["load", &server.url, "--size", "1001", "--duration", "1"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("1009"), "{said:?}");
}

#[test]
fn idle_connections_come_from_the_addresses_that_were_asked_for() {
    let home = Home::new();
    let server = home.serve(&["--shards", "2", "--own-descriptors"]);
    let idle = ["load", &server.url, "--idle", "--duration", "0.2", "--connections", "40"];
    let said = home.run(&[&idle[..], &["--source", "127.0.0.7", "--json", "--server-pid", &server.pid()]].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(results(&said.out)[0]["metric"], "rss_per_connection");
    let said = home.run(&[&idle[..], &["--source", "192.0.2.1"]].concat());
    assert_eq!(said.code, Some(3), "no interface has this address: {said:?}");
    let said = home.run(&["load", &server.url, "--source", "127.0.0.7"]);
    assert_eq!(said.code, Some(2), "only with --idle: {said:?}");
}
