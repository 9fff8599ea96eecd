//! Revocations and ends of connections reach all hosts behind a broker, and those that come later.

use crate::api::post;
use crate::bench::{Bench, ask, named_token, next, subscribe, token, until};
use crate::helpers::PATIENCE;
use serde_json::json;
use std::time::Instant;
use tautline::{Bridge, MemoryBroker, Outgoing};

const RULES: &str = "
[[namespace]]
topics = \"*\"
users = [\"subscribe\", \"presence\"]

[[key]]
name = \"app\"
file = \"api.key\"
scopes = [\"users\", \"presence\"]
topics = [\"*\"]
";

fn host(broker: &MemoryBroker) -> Bench {
    Bench::on(Some(Bridge::start(broker.clone()).unwrap()), "", RULES)
}

fn is_refused(bench: &Bench, token: &str) -> bool {
    let header = format!("Bearer {token}");
    bench.try_connect("/", &[("authorization", &header)]).is_err_and(|error| error.contains("401"))
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Two hosts that hear each other.
fn hosts(broker: &MemoryBroker) -> [Bench; 2] {
    let hosts = [host(broker), host(broker)];
    let mut probe = hosts[1].connect(&token("probe", 600.0, &json!({})));
    eventually("the hosts hear each other", || {
        assert_eq!(post(&hosts[0], "disconnect", &json!({ "user": "probe" })).0, 200);
        let ping = json!({ "type": "ping" }).to_string();
        let over = |error: tautline::Error| error.to_string().contains("4002");
        probe.text(&ping).map_or_else(over, |()| next(&mut probe).contains("4002"))
    });
    hosts
}

#[test]
fn a_user_is_revoked_on_all_hosts_and_on_those_that_come_later() {
    let broker = MemoryBroker::new();
    let [one, two] = hosts(&broker);
    let (of_ann, of_bob) = (token("ann", 600.0, &json!({})), token("bob", 600.0, &json!({})));
    let mut sockets = [one.connect(&of_ann), two.connect(&of_ann), two.connect(&of_bob)];
    assert_eq!(post(&one, "revoke", &json!({ "user": "ann", "seconds": 600 })).0, 200);
    for socket in &mut sockets[..2] {
        until(socket, "4002");
    }
    assert!(is_refused(&one, &of_ann) && is_refused(&two, &of_ann));
    assert!(ask(&mut sockets[2], &json!({ "type": "ping" })).contains("pong"), "others go on");
    // The host that was told goes, and one comes that the other tells.
    one.end();
    let three = host(&broker);
    eventually("a host that comes later is told", || is_refused(&three, &of_ann));
    assert!(!is_refused(&three, &of_bob));
    // It is taken back everywhere.
    assert_eq!(post(&three, "revoke", &json!({ "user": "ann", "seconds": 0 })).0, 200);
    eventually("it is taken back", || !is_refused(&two, &of_ann) && !is_refused(&three, &of_ann));
    two.end();
    three.end();
}

#[test]
fn a_single_token_is_revoked_by_its_name_and_others_of_the_user_go_on() {
    let broker = MemoryBroker::new();
    let [one, two] = hosts(&broker);
    let (lost, other) = (named_token("ann", "phone"), named_token("ann", "desk"));
    let (mut phone, mut desk) = (two.connect(&lost), two.connect(&other));
    let (status, answer) = post(&one, "revoke", &json!({ "token": "phone", "seconds": 600 }));
    assert_eq!((status, answer), (200, json!({ "token": "phone" })));
    until(&mut phone, "4002");
    assert!(subscribe(&mut desk, "room").contains("subscribed"));
    eventually("it is refused", || is_refused(&one, &lost) && is_refused(&two, &lost));
    assert!(!is_refused(&one, &other));
    // A user with the name of a token is another.
    assert!(!is_refused(&one, &token("phone", 600.0, &json!({}))));
    for body in [
        json!({ "token": "phone" }),
        json!({ "token": "", "seconds": 1 }),
        json!({ "user": "a", "token": "b", "seconds": 1 }),
    ] {
        assert_eq!(post(&one, "revoke", &body).0, 400, "{body}");
    }
    assert_eq!(post(&one, "disconnect", &json!({ "token": "phone" })).0, 400);
    one.end();
    two.end();
}

#[test]
fn words_of_other_hosts_without_form_or_bound_harm_nobody() {
    let broker = MemoryBroker::new();
    let [one, two] = hosts(&broker);
    let evil = Bridge::start(broker).unwrap();
    let mut ann = one.connect(&token("ann", 600.0, &json!({})));
    let long = "x".repeat(1_000);
    let many: Vec<(String, u64)> = (0..20_000).map(|number| (format!("user{number}"), u64::MAX)).collect();
    let words = [
        "garbage".to_owned(),
        "[]".to_owned(),
        json!({ "host": "evil", "end": [long, "a\u{7}", ""] }).to_string(),
        json!({ "host": "evil", "revoked": [["x", -1]] }).to_string(),
        json!({ "host": "evil", "revoked": many }).to_string(),
    ];
    eventually("the last word is heard", || {
        words.iter().for_each(|word| _ = evil.publish("$hub/control", Outgoing::text(word)));
        is_refused(&one, &token("user9999", 600.0, &json!({})))
    });
    assert!(ask(&mut ann, &json!({ "type": "ping" })).contains("pong"));
    // The number of all that are revoked is bounded, and no more are taken.
    assert_eq!(post(&one, "revoke", &json!({ "user": "ann", "seconds": 600 })).1["error"]["code"], json!("full"));
    one.end();
    two.end();
}

/// Members of two hosts are two, since each host has its own connections of a user: the number is of places, not of people.
#[test]
fn a_user_on_two_hosts_joins_once_on_each_whatever_its_tabs() {
    let broker = MemoryBroker::new();
    let [one, two] = hosts(&broker);
    let mut watcher = one.connect(&token("watcher", 600.0, &json!({})));
    ask(&mut watcher, &json!({ "type": "subscribe", "topic": "room", "presence": true }));
    assert!(next(&mut watcher).contains(r#""members":[]"#));
    let member = json!({ "type": "subscribe", "topic": "room", "as": "x" });
    let of_ann = token("ann", 600.0, &json!({}));
    let mut tabs = [two.connect(&of_ann), two.connect(&of_ann), two.connect(&of_ann)];
    for tab in &mut tabs {
        assert!(ask(tab, &member).contains("subscribed"));
    }
    let joined = next(&mut watcher);
    assert!(joined.contains(r#""type":"join""#) && joined.contains("/user:ann"), "{joined}");
    let [first, second, last] = tabs;
    drop((first, second));
    let mut bob = two.connect(&token("bob", 600.0, &json!({})));
    assert!(ask(&mut bob, &member).contains("subscribed"));
    let joined = next(&mut watcher);
    assert!(joined.contains("/user:bob"), "the tabs of ann were one member: {joined}");
    drop(last);
    let left = next(&mut watcher);
    assert!(left.contains(r#""type":"leave""#) && left.contains("/user:ann"), "{left}");
    one.end();
    two.end();
}
