//! Figures of namespaces.

use crate::bench::{Bench, subscribe, until};
use crate::helpers::PATIENCE;
use serde_json::json;
use std::time::Instant;
use tautline::{Bridge, MemoryBroker, Socket};
use tautline_hub::{Hub, NamespaceFigures};

const ROOMS: &str = "
[[namespace]]
topics = \"room:*\"
anyone = [\"subscribe\", \"publish\"]
";
const LOGS: &str = "
[[namespace]]
topics = \"log:*\"
anyone = [\"subscribe\", \"publish\", \"history\"]
";

fn figures(hub: &Hub, name: &str) -> NamespaceFigures {
    hub.namespaces().into_iter().find(|figures| &*figures.name == name).unwrap()
}

/// Waits until the figures of a namespace are these.
fn eventually(hub: &Hub, name: &str, is: impl Fn(&NamespaceFigures) -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is(&figures(hub, name)) {
        assert!(Instant::now() < end, "{:?}", figures(hub, name));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn publish(socket: &mut Socket, topic: &str, id: &str) {
    socket.text(&json!({ "type": "publish", "topic": topic, "data": 1, "id": id }).to_string()).unwrap();
    until(socket, r#"{"type":"published""#);
}

#[test]
fn each_namespace_has_figures_that_go_on_over_reloads() {
    let bench = Bench::new("", &format!("{ROOMS}{LOGS}"));
    let mut sockets: Vec<Socket> = (0..3).map(|_| bench.try_connect("/", &[]).unwrap()).collect();
    for socket in &mut sockets {
        for topic in ["room:1", "log:a"] {
            assert!(subscribe(socket, topic).starts_with(r#"{"type":"subscribed""#));
        }
    }
    // A plain topic, and one with history. Those of a namespace count together.
    publish(&mut sockets[0], "room:1", "0");
    publish(&mut sockets[0], "room:without anybody", "1");
    publish(&mut sockets[0], "log:a", "2");
    publish(&mut sockets[0], "log:a", "3");
    let is = |of: &NamespaceFigures, counts: [u64; 4]| {
        // Three connections are on two loops, or on one.
        (1..=2).contains(&of.topics)
            && of.subscribers == 3
            && [of.publications, of.deliveries, of.drops, of.history] == counts
    };
    eventually(&bench.hub, "room:*", |of| is(of, [2, 3, 0, 0]));
    eventually(&bench.hub, "log:*", |of| is(of, [2, 6, 0, 0]));
    let mut reader = bench.try_connect("/", &[]).unwrap();
    reader.text(&json!({ "type": "subscribe", "topic": "log:a", "after": 0 }).to_string()).unwrap();
    until(&mut reader, r#""offset":2,"data""#);
    eventually(&bench.hub, "log:*", |of| of.history == 2 && of.subscribers == 4);
    assert_eq!(figures(&bench.hub, "(none)").subscribers, 0);

    // The rooms move to another place in the file, and the logs to a namespace that is new.
    let all = LOGS.replace("log:*", "*");
    bench.reload("", &format!("{all}{ROOMS}"));
    let names: Vec<_> = bench.hub.namespaces().iter().map(|of| of.name.to_string()).collect();
    assert_eq!(names, ["*", "room:*", "(none)"]);
    eventually(&bench.hub, "*", |of| of.subscribers == 7 && of.publications == 0);
    eventually(&bench.hub, "room:*", |of| of.subscribers == 0 && of.topics == 0 && of.publications == 2);
    publish(&mut sockets[0], "room:1", "4");
    publish(&mut sockets[0], "log:a", "5");
    eventually(&bench.hub, "*", |of| of.publications == 2 && of.deliveries == 3 + 4);
    drop((sockets, reader));
    eventually(&bench.hub, "*", |of| of.subscribers == 0 && of.topics == 0);
    bench.end();
}

#[test]
fn messages_that_slow_readers_miss_are_counted() {
    let slow = "slow-readers = \"drop-newest\"\nmax-waiting = 1024\n";
    let bench = Bench::new("", &format!("{ROOMS}{slow}"));
    let (mut reader, mut writer) = (bench.try_connect("/", &[]).unwrap(), bench.try_connect("/", &[]).unwrap());
    assert!(subscribe(&mut reader, "room:1").starts_with(r#"{"type":"subscribed""#));
    let data = "x".repeat(30_000);
    let end = Instant::now() + PATIENCE;
    let mut sent = 0;
    while figures(&bench.hub, "room:*").drops == 0 {
        assert!(Instant::now() < end, "{:?}", figures(&bench.hub, "room:*"));
        let message = json!({ "type": "publish", "topic": "room:1", "data": data, "id": "i" });
        writer.text(&message.to_string()).unwrap();
        until(&mut writer, r#"{"type":"published""#);
        sent += 1;
    }
    eventually(&bench.hub, "room:*", |of| of.publications == sent && of.deliveries + of.drops == sent);
    bench.end();
}

#[test]
fn the_policy_for_slow_readers_holds_for_messages_of_other_hosts() {
    let slow = "slow-readers = \"drop-newest\"\nmax-waiting = 1024\n";
    let broker = MemoryBroker::new();
    let [here, there] =
        [(); 2].map(|()| Bench::on(Some(Bridge::start(broker.clone()).unwrap()), "", &format!("{ROOMS}{slow}")));
    let (mut reader, mut writer) = (here.try_connect("/", &[]).unwrap(), there.try_connect("/", &[]).unwrap());
    assert!(subscribe(&mut reader, "room:1").starts_with(r#"{"type":"subscribed""#));
    let data = "x".repeat(30_000);
    let end = Instant::now() + PATIENCE;
    while figures(&here.hub, "room:*").drops == 0 {
        assert!(Instant::now() < end, "{:?}", figures(&here.hub, "room:*"));
        let message = json!({ "type": "publish", "topic": "room:1", "data": data, "id": "i" });
        writer.text(&message.to_string()).unwrap();
        until(&mut writer, r#"{"type":"published""#);
        assert_eq!(figures(&here.hub, "room:*").subscribers, 1, "the reader was disconnected");
    }
    here.end();
    there.end();
}
