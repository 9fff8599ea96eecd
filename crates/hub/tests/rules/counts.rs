//! Members that are counted and not listed.

use crate::api::post;
use crate::bench::{Bench, ask, next, token, until};
use crate::hosts::eventually;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tautline::{Bridge, MemoryBroker, Socket};

const RULES: &str = "
[[namespace]]
topics = \"crowd:*\"
anyone = [\"subscribe\", \"presence\"]
members = \"count\"

[[namespace]]
topics = \"few:*\"
anyone = [\"subscribe\", \"presence\"]
members = \"count\"
max-members = 1

[[namespace]]
topics = \"*\"
anyone = [\"subscribe\"]
users = [\"presence\"]

[[key]]
name = \"app\"
file = \"api.key\"
scopes = [\"presence\"]
topics = [\"*\"]
";

fn member(host: &Bench, user: &str, topic: &str) -> Socket {
    let mut socket = host.connect(&token(user, 600.0, &json!({})));
    let answer = ask(&mut socket, &json!({ "type": "subscribe", "topic": topic, "as": "x" }));
    assert!(answer.contains("subscribed"), "{answer}");
    socket
}

fn counter(host: &Bench, topic: &str) -> (Socket, u64) {
    let mut socket = host.try_connect("/", &[]).unwrap();
    assert!(ask(&mut socket, &json!({ "type": "subscribe", "topic": topic, "count": true })).contains("subscribed"));
    let number = number(&next(&mut socket), topic);
    (socket, number)
}

fn number(text: &str, topic: &str) -> u64 {
    let told: Value = serde_json::from_str(text).unwrap();
    assert_eq!((&told["type"], &told["topic"]), (&json!("count"), &json!(topic)), "{text}");
    told["number"].as_u64().unwrap()
}

/// Waits until the number is this one. Returns the number of messages.
fn reaches(socket: &mut Socket, topic: &str, expected: u64) -> u64 {
    (1..).find(|_| number(&next(socket), topic) == expected).unwrap()
}

#[test]
fn members_of_a_counted_topic_are_a_number_on_all_hosts_and_nobody_names_them() {
    let broker = MemoryBroker::new();
    let hosts = [(); 2].map(|()| Bench::on(Some(Bridge::start(broker.clone()).unwrap()), "", RULES));
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (sniffer, words) = (Bridge::start(broker).unwrap(), heard.clone());
    let _ear = sniffer.listen("$presence/crowd:a", move |_, payload| {
        words.lock().unwrap().push(String::from_utf8_lossy(payload).into_owned());
    });
    let (mut here, first) = counter(&hosts[0], "crowd:a");
    let (mut there, _) = counter(&hosts[1], "crowd:a");
    assert_eq!(first, 0);
    eventually("the broker knows all ears", || !heard.lock().unwrap().is_empty());
    let begin = Instant::now();
    let mut members = Vec::new();
    for number in 0..150 {
        // Each user has two tabs.
        let user = format!("u{}", number / 2);
        members.push((number % 4 < 2, member(&hosts[usize::from(number % 4 < 2)], &user, "crowd:a")));
    }
    let told = reaches(&mut here, "crowd:a", 75) + reaches(&mut there, "crowd:a", 75);
    let seconds = begin.elapsed().as_secs() + 2;
    assert!(told <= 4 * seconds, "{told} messages for two clients in {seconds} s");
    let words = heard.lock().unwrap().clone();
    assert!(words.len() as u64 <= 8 + 4 * seconds, "{} words of two hosts in {seconds} s", words.len());
    assert!(words.iter().all(|word| !word.contains("u1") && word.len() < 100), "{words:?}");
    for host in &hosts {
        let counted = post(host, "presence", &json!({ "topic": "crowd:a" })).1;
        assert_eq!(counted, json!({ "topic": "crowd:a", "number": 75, "members": [] }));
        let counted = post(host, "presence", &json!({ "topic": "crowd:a", "count": true })).1;
        assert_eq!(counted, json!({ "topic": "crowd:a", "number": 75 }));
    }
    members.retain(|(is_here, _)| *is_here);
    reaches(&mut here, "crowd:a", 38);
    reaches(&mut there, "crowd:a", 38);
    drop(members);
    reaches(&mut here, "crowd:a", 0);
    reaches(&mut there, "crowd:a", 0);
    hosts.into_iter().for_each(Bench::end);
}

#[test]
fn a_counted_topic_lists_nobody_and_has_a_bound() {
    let bench = Bench::new("", RULES);
    let mut socket = bench.try_connect("/", &[]).unwrap();
    let list = json!({ "type": "subscribe", "topic": "crowd:a", "presence": true });
    assert!(ask(&mut socket, &list).contains("counted and not listed"));
    let count = json!({ "type": "subscribe", "topic": "room", "count": true });
    assert!(ask(&mut socket, &count).contains("no right to the presence"));
    let _one = member(&bench, "ann", "few:a");
    let _again = member(&bench, "ann", "few:a");
    let mut other = bench.connect(&token("bob", 600.0, &json!({})));
    let full = ask(&mut other, &json!({ "type": "subscribe", "topic": "few:a", "as": "x" }));
    assert!(full.contains("too many members"), "{full}");
    bench.end();
}

#[test]
fn the_number_of_a_topic_with_a_list_is_told_to_those_who_want_no_more() {
    let bench = Bench::new("", RULES);
    let mut counter = bench.connect(&token("counter", 600.0, &json!({})));
    let count = json!({ "type": "subscribe", "topic": "room", "count": true, "as": "x" });
    assert!(ask(&mut counter, &count).contains("subscribed"));
    assert_eq!(number(&next(&mut counter), "room"), 1, "it is a member itself");
    let tabs = [member(&bench, "ann", "room"), member(&bench, "ann", "room"), member(&bench, "bob", "room")];
    reaches(&mut counter, "room", 3);
    drop(tabs);
    reaches(&mut counter, "room", 1);
    // It is not told any more.
    assert!(ask(&mut counter, &json!({ "type": "unsubscribe", "topic": "room" })).contains("unsubscribed"));
    let _ann = member(&bench, "ann", "room");
    std::thread::sleep(std::time::Duration::from_millis(2_500));
    assert!(ask(&mut counter, &json!({ "type": "ping" })).contains("pong"));
    bench.end();
}

#[test]
fn rules_that_count_members_in_place_of_a_list_end_subscriptions_of_before() {
    let bench = Bench::new("", RULES);
    let mut ann = member(&bench, "ann", "room");
    bench.reload("", &RULES.replace("topics = \"*\"\nanyone", "topics = \"*\"\nmembers = \"count\"\nanyone"));
    let ended = until(&mut ann, "unsubscribed");
    assert!(ended.contains("whether this topic lists its members has changed"), "{ended}");
    bench.end();
}
