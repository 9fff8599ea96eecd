//! Revocations and ends of connections reach all hosts behind a broker, and those that come later.

use crate::api::post;
use crate::bench::{Bench, ask, named_token, next, subscribe, token, until};
use crate::helpers::PATIENCE;
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tautline::{Bridge, Broker, BrokerError, BrokerLink, Inbox, MemoryBroker, Order, Outgoing, Socket};
use tautline_hub::Config;

const RULES: &str = "
[[namespace]]
topics = \"*\"
users = [\"subscribe\", \"presence\"]

[[key]]
name = \"app\"
file = \"api.key\"
scopes = [\"users\", \"presence\", \"publish\"]
topics = [\"*\"]
";

fn host(broker: &MemoryBroker) -> Bench {
    Bench::on(Some(Bridge::start(broker.clone()).unwrap()), "", RULES)
}

fn is_refused(bench: &Bench, token: &str) -> bool {
    let header = format!("Bearer {token}");
    bench.try_connect("/", &[("authorization", &header)]).is_err_and(|error| error.contains("401"))
}

pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
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

/// A host's way to a broker that passes everything to all others, until it is cut.
struct Way {
    all: Arc<Mutex<Vec<(u64, Inbox)>>>,
    number: u64,
    is_cut: Arc<AtomicBool>,
}

impl Broker for Way {
    fn name(&self) -> &str {
        "a way that can be cut"
    }

    fn run(&mut self, link: &mut BrokerLink) -> Result<(), BrokerError> {
        let is_open = |link: &BrokerLink| !link.is_stopped() && !self.is_cut.load(Ordering::Relaxed);
        if is_open(link) {
            self.all.lock().unwrap().push((self.number, link.inbox()));
            link.connected();
        }
        while is_open(link) {
            while let Some(order) = link.next_order() {
                let Order::Publish { topic, message } = order else { continue };
                for (_, inbox) in self.all.lock().unwrap().iter().filter(|(number, _)| *number != self.number) {
                    inbox.deliver(&topic, message.kind(), message.payload());
                }
            }
            link.wait(Duration::from_millis(20));
        }
        self.all.lock().unwrap().retain(|(number, _)| *number != self.number);
        if link.is_stopped() { Ok(()) } else { Err("it is cut".into()) }
    }
}

#[test]
fn a_revocation_that_was_taken_back_does_not_return_from_a_host_that_was_away() {
    let (all, is_cut) = (Arc::default(), Arc::new(AtomicBool::new(false)));
    let [one, two] = [0, 1].map(|number| {
        let bridge = Bridge::start(Way { all: Arc::clone(&all), number, is_cut: is_cut.clone() }).unwrap();
        Bench::on(Some(bridge), "", RULES)
    });
    let [ann, bob, carl] = ["ann", "bob", "carl"].map(|user| token(user, 600.0, &json!({})));
    let revoke = |host: &Bench, user: &str, seconds: u64| {
        assert_eq!(post(host, "revoke", &json!({ "user": user, "seconds": seconds })).0, 200);
    };
    let both_refuse = |token: &str| is_refused(&one, token) && is_refused(&two, token);
    let both_accept = |token: &str| !is_refused(&one, token) && !is_refused(&two, token);
    for (user, token) in [("ann", &ann), ("bob", &bob)] {
        eventually("it reaches both", || {
            revoke(&one, user, 500);
            both_refuse(token)
        });
    }
    is_cut.store(true, Ordering::Relaxed);
    eventually("both are alone", || all.lock().unwrap().is_empty());
    // The other host does not hear that ann's is taken back, and bob's is taken back there and decided anew.
    revoke(&one, "ann", 0);
    revoke(&two, "bob", 0);
    revoke(&two, "bob", 300);
    revoke(&one, "carl", 300);
    assert!(!is_refused(&one, &ann) && is_refused(&two, &ann) && !is_refused(&two, &carl));
    is_cut.store(false, Ordering::Relaxed);
    eventually("both hear each other again", || both_refuse(&carl));
    eventually("it is taken back on both", || both_accept(&ann));
    assert!(both_refuse(&bob));
    one.end();
    two.end();
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
fn one_connection_to_another_host_is_ended_alone() {
    let broker = MemoryBroker::new();
    let [one, two] = hosts(&broker);
    let of_ann = token("ann", 600.0, &json!({}));
    // They have the same number on their hosts, or may have.
    let mut here = [one.connect(&of_ann), one.connect(&of_ann)];
    let mut there = [two.connect(&of_ann), two.connect(&of_ann)];
    here.iter_mut().chain(&mut there).for_each(|socket| assert!(subscribe(socket, "room").contains("subscribed")));
    let names = |host: &Bench| post(host, "connections", &json!({ "user": "ann" })).1["names"].clone();
    let of_two = names(&two);
    assert_eq!(of_two.as_array().unwrap().len(), 2, "{of_two}");
    let body = json!({ "connection": of_two[0] });
    assert_eq!(post(&one, "disconnect", &body), (200, body));
    eventually("one is gone", || names(&two).as_array().unwrap().len() == 1);
    assert_eq!(names(&two)[0], of_two[1]);
    let lives = |socket: &mut Socket| {
        let ping = json!({ "type": "ping" }).to_string();
        socket.text(&ping).is_ok() && next(socket).contains("pong")
    };
    assert_eq!(there.iter_mut().map(lives).filter(|lives| *lives).count(), 1);
    assert!(here.iter_mut().all(lives), "those of the asked host go on");
    // The word of another host names no connection but by its whole name.
    let evil = Bridge::start(broker).unwrap();
    let name = of_two[1].as_str().unwrap();
    let conn = name.split_once('/').unwrap().1;
    let wrong = [format!("x/{conn}"), format!("{name}9"), format!("{name}/"), format!("/{conn}")];
    let words = [conn.to_owned(), "/".to_owned(), String::new()].into_iter().chain(wrong);
    let words: Vec<String> = words.map(|word| format!("\u{2}{word}")).collect();
    let words = json!({ "host": "evil", "end": words, "send": [["ann", 7]] });
    let mut last = there.into_iter().find_map(|mut socket| lives(&mut socket).then_some(socket)).unwrap();
    eventually("the words are heard", || {
        evil.publish("$hub/control", Outgoing::text(&words.to_string()));
        ask(&mut last, &json!({ "type": "ping" })) == r#"{"type":"direct","data":7}"#
    });
    assert_eq!(names(&two)[0], of_two[1]);
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
    let many: Vec<_> = (0..20_000).map(|number| (format!("user{number}"), u64::MAX, u64::MAX)).collect();
    let words = [
        "garbage".to_owned(),
        "[]".to_owned(),
        json!({ "host": "evil", "end": [long, "a\u{7}", ""] }).to_string(),
        json!({ "host": "evil", "revoked": [["x", -1, 1]] }).to_string(),
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

fn member_of(socket: &mut Socket, topic: &str) {
    let member = json!({ "type": "subscribe", "topic": topic, "as": "x" });
    assert!(ask(socket, &member).contains("subscribed"));
}

/// Somebody who is told the members of a room, and those who are there.
fn watcher_of(host: &Bench, topic: &str) -> (Socket, String) {
    let mut watcher = host.connect(&token("watcher", 600.0, &json!({})));
    ask(&mut watcher, &json!({ "type": "subscribe", "topic": topic, "presence": true }));
    let members = next(&mut watcher);
    (watcher, members)
}

#[test]
fn a_user_on_two_hosts_joins_once_and_leaves_with_the_last_connection() {
    let broker = MemoryBroker::new();
    let [one, two] = hosts(&broker);
    let (mut here, members) = watcher_of(&one, "room");
    assert!(members.contains(r#""members":[]"#));
    let (mut there, _) = watcher_of(&two, "room");
    let of_ann = token("ann", 600.0, &json!({}));
    let mut tabs = [one.connect(&of_ann), two.connect(&of_ann), two.connect(&of_ann)];
    tabs.iter_mut().for_each(|tab| member_of(tab, "room"));
    let joins = |user: &str| {
        let mut socket = two.connect(&token(user, 600.0, &json!({})));
        member_of(&mut socket, "room");
        socket
    };
    let changes = |watcher: &mut Socket, kind: &str, user: &str| {
        let told = next(watcher);
        let expected = format!(r#"{{"type":"{kind}","topic":"room","member":"user:{user}""#);
        assert!(told.starts_with(&expected), "{told} instead of {expected}");
    };
    let _bob = joins("bob");
    for watcher in [&mut here, &mut there] {
        changes(watcher, "join", "ann");
        changes(watcher, "join", "bob");
    }
    // Somebody who comes later gets ann once.
    for host in [&one, &two] {
        let (_, members) = watcher_of(host, "room");
        assert_eq!(members.matches("user:ann").count(), 1, "{members}");
        let (status, listed) = post(host, "presence", &json!({ "topic": "room" }));
        assert_eq!((status, &listed["number"]), (200, &json!(2)), "{listed}");
        assert_eq!(listed["members"], json!([["user:ann", "ann"], ["user:bob", "bob"]]));
    }
    let [first, second, last] = tabs;
    drop(first);
    eventually("the first host has none any more", || {
        post(&one, "connections", &json!({ "user": "ann" })).1["connections"] == json!(0)
    });
    drop(second);
    let _carl = joins("carl");
    changes(&mut here, "join", "carl");
    changes(&mut there, "join", "carl");
    drop(last);
    changes(&mut here, "leave", "ann");
    changes(&mut there, "leave", "ann");
    let _dave = joins("dave");
    changes(&mut here, "join", "dave");
    changes(&mut there, "join", "dave");
    one.end();
    two.end();
}

#[test]
fn a_user_of_a_dead_host_leaves_with_its_lease_unless_another_host_has_it() {
    let broker = MemoryBroker::new();
    let mut config = Config::default();
    config.lease = Duration::from_secs(2);
    let host = Bench::with(config, Some(Bridge::start(broker.clone()).unwrap()), "", RULES);
    let dead = Bridge::start(broker).unwrap();
    let heard = Arc::new(AtomicU64::new(0));
    let count = heard.clone();
    let _ear = dead.listen("$presence/room", move |_, _| _ = count.fetch_add(1, Ordering::Relaxed));
    let (mut watcher, _) = watcher_of(&host, "room");
    let [mut ann, mut bob] = ["ann", "bob"].map(|user| host.connect(&token(user, 600.0, &json!({}))));
    for (user, socket) in [("ann", &mut ann), ("bob", &mut bob)] {
        member_of(socket, "room");
        assert!(next(&mut watcher).contains(&format!("user:{user}")));
    }
    eventually("the dead host is connected", || heard.load(Ordering::Relaxed) > 0);
    let all = json!({ "dead/user:ann": "ann", "dead/user:bob": "bob", "dead/user:eve": "eve" });
    dead.publish("$presence/room", Outgoing::text(&json!({ "host": "dead", "all": all }).to_string()));
    // It is the only one that is new.
    let told = next(&mut watcher);
    assert!(told.contains("join") && told.contains("user:eve"), "{told}");
    // The dead host still has bob.
    drop(bob);
    let mut left = [next(&mut watcher), next(&mut watcher)];
    left.sort();
    for (told, user) in left.iter().zip(["bob", "eve"]) {
        assert!(told.contains("leave") && told.contains(&format!("\"user:{user}\"")), "{told}");
    }
    drop(ann);
    let told = next(&mut watcher);
    assert!(told.contains("leave") && told.contains("user:ann"), "{told}");
    host.end();
}

#[test]
fn a_message_for_a_user_reaches_the_connections_of_all_hosts_and_nobody_else() {
    let broker = MemoryBroker::new();
    let [one, two] = hosts(&broker);
    let of_ann = token("ann", 600.0, &json!({}));
    let mut sockets = [one.connect(&of_ann), two.connect(&of_ann), two.connect(&of_ann)];
    let mut bob = two.connect(&token("bob", 600.0, &json!({})));
    let message = json!({ "user": "ann", "data": { "hello": [1, null] } });
    let (status, answer) = post(&one, "publish", &message);
    assert_eq!((status, answer), (200, json!({ "user": "ann", "connections": 1 })));
    for socket in &mut sockets {
        assert_eq!(next(socket), r#"{"type":"direct","data":{"hello":[1,null]}}"#);
    }
    assert!(ask(&mut bob, &json!({ "type": "ping" })).contains("pong"));
    // The words of another host have bounds, too.
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let evil = Bridge::start(broker).unwrap();
    let word = format!(r#"{{"host":"evil","send":[["ann",{deep}],["",1],["ann",2]]}}"#);
    eventually("the word is heard", || {
        evil.publish("$hub/control", Outgoing::text(&word));
        let told = ask(&mut sockets[0], &json!({ "type": "ping" }));
        assert!(!told.contains("[[["), "{told}");
        told == r#"{"type":"direct","data":2}"#
    });
    one.end();
    two.end();
}

#[test]
fn the_connections_of_a_user_are_limited_over_all_hosts() {
    let broker = MemoryBroker::new();
    let mut config = Config::default();
    config.lease = Duration::from_secs(3);
    let rules = format!("[limits]\nsessions-per-user = 2\n{RULES}");
    let host = || Bench::with(config.clone(), Some(Bridge::start(broker.clone()).unwrap()), "", &rules);
    let [one, two] = [host(), host()];
    let of_ann = token("ann", 600.0, &json!({}));
    let comes_in = |host: &Bench| {
        let mut socket = host.connect(&of_ann);
        // One too many may be closed before it sends anything.
        let is_in = socket.text(&json!({ "type": "ping" }).to_string()).is_ok() && next(&mut socket).contains("pong");
        is_in.then_some(socket)
    };
    let first = comes_in(&one).unwrap();
    // Hosts tell each other about once in a second.
    eventually("the other host knows of the first", || {
        let [_second, third] = [comes_in(&two), comes_in(&two)];
        third.is_none()
    });
    let mut second = None;
    eventually("there is a place for one more", || {
        second = comes_in(&two);
        second.is_some()
    });
    eventually("the first host knows of it", || comes_in(&one).is_none());
    let mut bob = one.connect(&token("bob", 600.0, &json!({})));
    assert!(ask(&mut bob, &json!({ "type": "ping" })).contains("pong"), "others come in");
    drop(first);
    eventually("a place is free on each host", || comes_in(&two).is_some());
    // A host that comes later learns of both, and one that is gone counts for a lease more.
    let three = host();
    let mut third = None;
    eventually("it is free", || {
        third = comes_in(&one);
        third.is_some()
    });
    eventually("the third host knows of the others", || comes_in(&three).is_none());
    two.end();
    eventually("those of the host that is gone do not count any more", || comes_in(&three).is_some());
    one.end();
    three.end();
}
