use super::Home;
use serde_json::Value;

/// Parses the JSON lines of a run: the first describes the machine, the others are the results.
pub(super) fn results(text: &str) -> Vec<Value> {
    let mut objects = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert!(objects.next().unwrap()["machine"]["cpu"].is_string());
    objects.collect()
}

pub(super) fn value(results: &[Value], metric: &str) -> f64 {
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

    let idle = ["load", &server.url, "--connections", "30", "--idle", "--duration", "0.3", "--json"];
    let said = home.run(&[&idle[..], &["--server-pid", &server.pid()]].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    let idle = results(&said.out);
    assert_eq!(idle[1]["metric"], "rss_per_connection");
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
fn wrong_replies_are_counted_and_exit_with_1() {
    let home = Home::new();
    // Each connection gets the messages of all connections, so it gets too many replies, and wrong ones.
    let server = home.serve(&["--plain", "--app", "broadcast"]);
    let load = ["load", &server.url, "--connections", "3", "--duration", "1"];
    let said = home.run(&load);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("throughput") && said.out.contains(" wrong reply: "), "{said:?}");
    assert!(said.err.contains("most of them wrong reply"), "{said:?}");
    let said = home.run(&[&load[..], &["--json", "--slo", "errors=100%"]].concat());
    assert_eq!(said.code, Some(0), "a threshold permits them: {said:?}");
    // A slow machine may also have connections closed.
    let is_counted = |line: &Value| line["metric"] == "errors" && line["case"]["setup"] == "wrong reply";
    assert!(results(&said.out).iter().any(is_counted), "{said:?}");
}

#[test]
fn connections_that_the_server_closes_are_counted_by_their_code() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--max-message", "1000"]);
    let said = home.run(&["load", &server.url, "--size", "1001", "--connections", "7", "--duration", "60"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("errors      7 closed with 1009"), "{said:?}");
}

#[test]
fn a_server_that_refuses_every_connection_ends_the_run() {
    let home = Home::new();
    let said = home.run(&["load", "ws://127.0.0.1:1/", "--duration", "60"]);
    assert!(said.code == Some(3) && said.err.contains("taut serve"), "{said:?}");
}

#[test]
fn a_server_that_does_not_broadcast_fails_a_broadcast() {
    let home = Home::new();
    let server = home.serve(&["--plain"]);
    let said = home.run(&["load", &server.url, "--broadcast", "--connections", "3", "--duration", "1"]);
    assert!(said.code == Some(1) && said.err.contains("only 1 of 3 connections"), "{said:?}");
}

#[test]
fn messages_of_templates_are_echoed_and_others_need_any_reply() {
    let home = Home::new();
    let server = home.serve(&["--plain"]);
    std::fs::write(home.0.join("users"), "ann\nbob\n").unwrap();
    let text = "{\"id\":{{message}},\"user\":\"{{value}}\",\"of\":{{connection}}}";
    let load = ["load", &server.url, "--connections", "3", "--duration", "0.5", "--payload", text];
    let said = home.run(&[&load[..], &["--values", "users", "--think", "1ms-5ms", "--ramp", "50ms"]].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    let said = home.run(&load);
    assert!(said.code == Some(2) && said.err.contains("--values"), "{said:?}");
    // A hub answers something else.
    let hub = home.serve(&["--plain", "--app", "hub"]);
    let subscribe = "{\"type\":\"subscribe\",\"topic\":\"a{{message}}\",\"id\":\"{{connection}}\"}";
    let load = ["load", &hub.url, "--connections", "2", "--duration", "0.5", "--payload", subscribe];
    assert_eq!(home.run(&load).code, Some(1));
    let said = home.run(&[&load[..], &["--any-reply", "--slo", "errors=100%"]].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn a_load_by_stages_ends_with_the_last_one() {
    let home = Home::new();
    let server = home.serve(&["--plain"]);
    let load = ["load", &server.url, "--connections", "2", "--json"];
    let said = home.run(&[&load[..], &["--stage", "200:500ms", "--stage", "0:500ms"]].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(results(&said.out)[0]["case"]["setup"], "2 stages");
}

#[test]
fn listeners_count_what_they_receive() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--app", "feed", "--feed-rate", "500"]);
    let load = ["load", &server.url, "--connections", "4", "--duration", "1"];
    let said = home.run(&[&load[..], &["--subscribe", "a {{connection}}", "--subscribe", "b"]].concat());
    assert!(said.code == Some(0) && said.out.contains("2 subscriptions on each"), "{said:?}");
    let said = home.run(&[&load[..], &["--subscribe", "a", "--slo", "rate=1000000000"]].concat());
    assert!(said.code == Some(1) && said.err.contains("missed rate=1000000000"), "{said:?}");
}

#[test]
fn percentiles_are_chosen() {
    let home = Home::new();
    let server = home.serve(&["--plain"]);
    let load = ["load", &server.url, "--connections", "2", "--duration", "0.3"];
    let said = home.run(&[&load[..], &["--percentiles", "90,99.99"]].concat());
    assert!(said.out.contains("p90 ") && said.out.contains("p99.99 ") && !said.out.contains("p50 "), "{said:?}");
    let said = home.run(&[&load[..], &["--percentiles", "90,99.99", "--json"]].concat());
    let lines = results(&said.out);
    let chosen: Vec<_> = lines.iter().filter(|line| line["metric"] == "latency").collect();
    let setups: Vec<_> = chosen.iter().map(|line| &line["case"]["setup"]).collect();
    assert_eq!(setups, ["p90", "p99.99"], "{said:?}");
    assert!(chosen[0]["value"].as_f64().unwrap() <= chosen[1]["value"].as_f64().unwrap(), "{said:?}");
    assert!(value(&lines, "latency_p50") > 0.0);
    let said = home.run(&[&load[..], &["--slo", "p50=1us"]].concat());
    assert!(said.code == Some(1) && said.err.contains("missed p50=1us"), "{said:?}");
}

#[test]
fn idle_connections_have_figures_without_the_servers_process() {
    let home = Home::new();
    let server = home.serve(&["--plain"]);
    let said = home.run(&["load", &server.url, "--idle", "--json", "--connections", "5", "--duration", "0.2"]);
    assert_eq!((said.code, &results(&said.out)[0]["metric"]), (Some(0), &"opened".into()), "{said:?}");
}

#[test]
fn idle_connections_come_from_the_addresses_that_were_asked_for() {
    let home = Home::new();
    let server = home.serve(&["--shards", "2", "--own-descriptors"]);
    let idle = ["load", &server.url, "--idle", "--duration", "0.2", "--connections", "40"];
    let said = home.run(&[&idle[..], &["--source", "127.0.0.7", "--json", "--server-pid", &server.pid()]].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    let metrics: Vec<_> = results(&said.out).iter().map(|line| line["metric"].clone()).collect();
    assert_eq!(metrics, ["opened", "rss_per_connection"]);
    let said = home.run(&[&idle[..], &["--source", "192.0.2.1"]].concat());
    assert_eq!(said.code, Some(3), "no interface has this address: {said:?}");
    let said = home.run(&["load", &server.url, "--source", "127.0.0.7"]);
    assert_eq!(said.code, Some(2), "only with --idle: {said:?}");
}
