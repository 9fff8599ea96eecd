//! The Pusher protocol: each message and each error.

use crate::bench::{Bench, next, subscribe, token, until};
use crate::helpers::PATIENCE;
use aws_lc_rs::hmac;
use md5::{Digest as _, Md5};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{SystemTime, UNIX_EPOCH};
use tautline::{Address, Bridge, MemoryBroker, Socket};

/// `other.key` of the bench.
const SECRET: &str = crate::bench::OTHER_KEY;
const RULES: &str = "
[[namespace]]
topics = \"shop:*\"
users = [\"subscribe\", \"publish\"]

[[app]]
id = \"7\"
key = \"shop-key\"
file = \"other.key\"
prefix = \"shop:\"
client-events = true
max-members = 2
max-connections = 6

[[app]]
id = \"8\"
key = \"off\"
file = \"other.key\"
prefix = \"off:\"
enabled = false
";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sign(text: &str) -> String {
    hex(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), text.as_bytes()).as_ref())
}

/// A client with its socket's name.
pub(crate) struct Client {
    pub(crate) socket: Socket,
    id: String,
}

impl Client {
    pub(crate) fn new(bench: &Bench) -> Self {
        let mut socket = bench.try_connect("/app/shop-key?protocol=7&client=test", &[]).unwrap();
        let established = parsed(&next(&mut socket));
        assert_eq!(established["event"], "pusher:connection_established");
        let data: Value = serde_json::from_str(established["data"].as_str().unwrap()).unwrap();
        assert_eq!(data["activity_timeout"], json!(120));
        let id = data["socket_id"].as_str().unwrap().to_owned();
        assert!(id.split('.').all(|part| part.parse::<u64>().is_ok()), "{id}");
        Self { socket, id }
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.socket.text(&message.to_string()).unwrap();
    }

    pub(crate) fn next(&mut self) -> Value {
        parsed(&next(&mut self.socket))
    }

    /// Subscribes with a good signature. Returns the answer.
    pub(crate) fn subscribe(&mut self, channel: &str, member: Option<&Value>) -> Value {
        let member = member.map(Value::to_string);
        let text = member.as_ref().map_or_else(String::new, |member| format!(":{member}"));
        let auth = format!("shop-key:{}", sign(&format!("{}:{channel}{text}", self.id)));
        let mut data = json!({ "channel": channel, "auth": auth });
        if let Some(member) = member {
            data["channel_data"] = member.into();
        }
        self.send(&json!({ "event": "pusher:subscribe", "data": data }));
        self.next()
    }

    /// Signs in. Returns the answer.
    pub(crate) fn sign_in(&mut self, user: &str) -> Value {
        let user = json!({ "id": user }).to_string();
        let auth = format!("shop-key:{}", sign(&format!("{}::user::{user}", self.id)));
        self.send(&json!({ "event": "pusher:signin", "data": { "auth": auth, "user_data": user } }));
        self.next()
    }

    pub(crate) fn client_event(&mut self, channel: &str, data: &Value) {
        self.send(&json!({ "event": "client-moved", "channel": channel, "data": data }));
    }

    /// Whether nothing has come before the answer to a ping.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.send(&json!({ "event": "pusher:ping", "data": {} }));
        self.next()["event"] == "pusher:pong"
    }
}

pub(crate) fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

/// The data of a message, which is a text with JSON.
fn data(message: &Value) -> Value {
    serde_json::from_str(message["data"].as_str().unwrap()).unwrap()
}

pub(crate) fn assert_subscribed(answer: &Value) {
    assert_eq!(answer["event"], "pusher_internal:subscription_succeeded", "{answer}");
}

/// A request of a server library with this change to its signed query.
fn request(bench: &Bench, line: &str, body: &str, change: impl Fn(String) -> String) -> (u16, Value) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let (method, target) = line.split_once(' ').unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut parts =
        vec!["auth_key=shop-key".to_owned(), format!("auth_timestamp={now}"), "auth_version=1.0".to_owned()];
    parts.extend(query.split('&').filter(|part| !part.is_empty()).map(str::to_owned));
    if !body.is_empty() {
        parts.push(format!("body_md5={}", hex(&Md5::digest(body.as_bytes()))));
    }
    parts.sort();
    let signature = sign(&format!("{method}\n{path}\n{}", parts.join("&")));
    let query = change(format!("{}&auth_signature={signature}", parts.join("&")));
    let Address::Tcp(address) = bench.server.addresses()[0] else { unreachable!("a TCP address") };
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("{method} {path}?{query} HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n");
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), parsed(body))
}

fn get(bench: &Bench, target: &str) -> Value {
    let (status, answer) = request(bench, &format!("GET {target}"), "", |query| query);
    assert_eq!(status, 200, "{target} {answer}");
    answer
}

pub(crate) fn post(bench: &Bench, path: &str, body: &Value) -> (u16, Value) {
    request(bench, &format!("POST {path}"), &body.to_string(), |query| query)
}

fn trigger(bench: &Bench, body: &Value) {
    assert_eq!(post(bench, "/apps/7/events", body), (200, json!({})));
}

#[test]
fn connections_are_refused_with_the_codes_of_the_protocol() {
    let bench = Bench::new("required = true", RULES);
    for (path, code) in [
        ("/app/none?protocol=7", 4001),
        ("/app/off?protocol=7", 4003),
        ("/app/?protocol=7", 4005),
        ("/app/a/b?protocol=7", 4005),
        ("/app/shop-key?protocol=seven", 4006),
        ("/app/shop-key?protocol=4", 4007),
        ("/app/shop-key", 4008),
    ] {
        let mut socket = bench.try_connect(path, &[]).unwrap();
        let error = parsed(&next(&mut socket));
        assert_eq!((&error["event"], &error["data"]["code"]), (&json!("pusher:error"), &json!(code)), "{path}");
        assert!(next(&mut socket).contains(&code.to_string()), "{path}");
    }
    let _clients: Vec<Client> = (0..6).map(|_| Client::new(&bench)).collect();
    let mut socket = bench.try_connect("/app/shop-key?protocol=7", &[]).unwrap();
    assert!(next(&mut socket).contains("4004"));
    bench.end();
}

#[test]
fn messages_that_are_none_are_answered_with_errors() {
    let bench = Bench::new("", RULES);
    let mut client = Client::new(&bench);
    for text in ["", "[]", "{}", "1", "{\"event\":1}", "{\"event\":\"pusher:subscribe\"}", "{\"event\":\"other\"}"] {
        client.socket.text(text).unwrap();
        let error = client.next();
        assert_eq!((&error["event"], &error["data"]["code"]), (&json!("pusher:error"), &Value::Null), "{text}");
    }
    client.socket.binary(b"{}").unwrap();
    assert_eq!(client.next()["event"], "pusher:error");
    for name in ["", "a:b", "a b", "#server", "$presence/x", &"x".repeat(165), "a\u{e4}"] {
        let answer = client.subscribe(name, None);
        assert_eq!((&answer["event"], &answer["data"]["status"]), (&json!("pusher:subscription_error"), &json!(400)));
    }
    assert_subscribed(&client.subscribe(&"x".repeat(164), None));
    assert_subscribed(&client.subscribe("room", None));
    assert!(client.subscribe("room", None)["data"]["message"].as_str().unwrap().contains("Existing subscription"));
    // The rules make a topic with history of it.
    bench.reload("", &format!("[[namespace]]\ntopics = \"shop:old\"\nkind = \"history\"\n{RULES}"));
    let begin = std::time::Instant::now();
    while client.subscribe("old", None)["event"] != "pusher:subscription_error" {
        client.send(&json!({ "event": "pusher:unsubscribe", "data": { "channel": "old" } }));
        assert!(begin.elapsed() < PATIENCE);
    }
    bench.end();
}

#[test]
fn private_channels_need_a_signature_for_this_socket_and_channel() {
    let bench = Bench::new("", RULES);
    let (mut ann, bob) = (Client::new(&bench), Client::new(&bench));
    let text = format!("{}:private-a", ann.id);
    let mut bad = vec![
        Value::Null,
        json!(""),
        json!("shop-key"),
        json!(format!("shop-key:{}", sign(&format!("{}:private-a", bob.id)))),
        json!(format!("shop-key:{}", sign(&format!("{}:private-b", ann.id)))),
        json!(format!("other:{}", sign(&text))),
        json!(format!("shop-key:{}0", sign(&text))),
        json!(format!("shop-key:{}", &sign(&text)[2..])),
        json!("shop-key:zz"),
    ];
    bad.push(json!(format!("shop-key:{}", sign(&format!("{text}:{{}}")))));
    for auth in bad {
        ann.send(&json!({ "event": "pusher:subscribe", "data": { "channel": "private-a", "auth": auth } }));
        let answer = ann.next();
        assert_eq!((&answer["channel"], &answer["data"]["type"]), (&json!("private-a"), &json!("AuthError")), "{auth}");
    }
    assert_subscribed(&ann.subscribe("private-a", None));
    bench.end();
}

#[test]
fn events_reach_subscribers_but_not_the_socket_that_is_left_out() {
    let bench = Bench::new("", RULES);
    let (mut ann, mut bob) = (Client::new(&bench), Client::new(&bench));
    for client in [&mut ann, &mut bob] {
        assert_subscribed(&client.subscribe("room", None));
    }
    trigger(&bench, &json!({ "name": "greet", "channels": ["room", "empty"], "data": "{\"n\":1}" }));
    let expected = json!({ "event": "greet", "channel": "room", "data": "{\"n\":1}" });
    assert_eq!((ann.next(), bob.next()), (expected.clone(), expected));
    trigger(&bench, &json!({ "name": "greet", "channel": "room", "data": "two", "socket_id": ann.id }));
    assert_eq!(bob.next()["data"], "two");
    let batch = json!({ "batch": [{ "channel": "room", "name": "a", "data": "3" }, { "channel": "room", "name": "b", "data": "4",
        "info": "subscription_count" }] });
    let (status, answer) = post(&bench, "/apps/7/batch_events", &batch);
    assert_eq!((status, &answer["batch"][1]), (200, &json!({ "subscription_count": 2 })));
    for client in [&mut ann, &mut bob] {
        assert_eq!([client.next()["event"].clone(), client.next()["event"].clone()], [json!("a"), json!("b")]);
    }
    ann.send(&json!({ "event": "pusher:unsubscribe", "data": { "channel": "room" } }));
    assert!(ann.is_quiet());
    trigger(&bench, &json!({ "name": "greet", "channel": "room", "data": "5" }));
    assert_eq!(bob.next()["data"], "5");
    assert!(ann.is_quiet());
    bench.end();
}

#[test]
fn messages_reach_the_other_protocol() {
    let bench = Bench::new("", RULES);
    let mut ann = bench.connect(&token("ann", 60.0, &json!({})));
    let mut bob = Client::new(&bench);
    assert!(subscribe(&mut ann, "shop:private-a").contains("subscribed"));
    assert_subscribed(&bob.subscribe("private-a", None));
    trigger(&bench, &json!({ "name": "greet", "channel": "private-a", "data": "{\"n\":1}" }));
    let expected = json!({ "type": "message", "topic": "shop:private-a", "event": "greet", "data": { "n": 1 } });
    assert_eq!(parsed(&next(&mut ann)), expected);
    assert_eq!(bob.next()["data"], "{\"n\":1}");
    bob.client_event("private-a", &json!({ "x": [1] }));
    let expected =
        json!({ "type": "message", "topic": "shop:private-a", "event": "client-moved", "data": { "x": [1] } });
    assert_eq!(parsed(&next(&mut ann)), expected);
    let publish = json!({ "type": "publish", "topic": "shop:private-a", "data": { "y": 2 } });
    ann.text(&publish.to_string()).unwrap();
    assert_eq!(bob.next(), json!({ "event": "message", "channel": "private-a", "data": "{\"y\":2}" }));
    assert!(until(&mut ann, "\"y\":2").contains("shop:private-a"));
    bench.end();
}

#[test]
fn members_come_and_go_once_per_user() {
    let bench = Bench::new("", RULES);
    let (of_ann, of_bob) = (json!({ "user_id": "ann", "user_info": { "name": "Ann" } }), json!({ "user_id": 5 }));
    let (mut ann, mut bob) = (Client::new(&bench), Client::new(&bench));
    let answer = ann.subscribe("presence-x", Some(&of_ann));
    assert_subscribed(&answer);
    let members = json!({ "presence": { "count": 1, "ids": ["ann"], "hash": { "ann": { "name": "Ann" } } } });
    assert_eq!(data(&answer), members);
    let answer = bob.subscribe("presence-x", Some(&of_bob));
    assert_eq!(data(&answer)["presence"]["ids"], json!(["5", "ann"]));
    let added = ann.next();
    assert_eq!(
        (&added["event"], data(&added)),
        (&json!("pusher_internal:member_added"), json!({ "user_id": "5", "user_info": null }))
    );
    // A second connection of the same user is no other member.
    let mut second = Client::new(&bench);
    assert_eq!(data(&second.subscribe("presence-x", Some(&of_bob)))["presence"]["count"], json!(2));
    let mut third = Client::new(&bench);
    let full = third.subscribe("presence-x", Some(&json!({ "user_id": "carl" })));
    assert_eq!(full["data"]["type"], "LimitReached");
    for wrong in [
        json!({}),
        json!({ "user_id": "" }),
        json!({ "user_id": [1] }),
        json!({ "user_id": "x".repeat(129) }),
        json!({ "user_id": "x", "user_info": "y".repeat(2000) }),
    ] {
        assert_eq!(third.subscribe("presence-x", Some(&wrong))["data"]["type"], "AuthError", "{wrong}");
    }
    assert_eq!(third.subscribe("presence-x", None)["data"]["type"], "AuthError");
    let users = get(&bench, "/apps/7/channels/presence-x/users");
    assert_eq!(users, json!({ "users": [{ "id": "5" }, { "id": "ann" }] }));
    let facts = get(&bench, "/apps/7/channels/presence-x?info=user_count,subscription_count");
    assert_eq!(facts, json!({ "occupied": true, "user_count": 2, "subscription_count": 3 }));
    let all = get(&bench, "/apps/7/channels?filter_by_prefix=presence-&info=user_count");
    assert_eq!(all, json!({ "channels": { "presence-x": { "user_count": 2 } } }));
    assert_eq!(get(&bench, "/apps/7/channels/none"), json!({ "occupied": false }));
    drop(bob);
    assert!(ann.is_quiet() && second.is_quiet());
    drop(second);
    let removed = ann.next();
    assert_eq!(
        (&removed["event"], data(&removed)),
        (&json!("pusher_internal:member_removed"), json!({ "user_id": "5" }))
    );
    assert_subscribed(&third.subscribe("presence-x", Some(&json!({ "user_id": "carl" }))));
    bench.end();
}

#[test]
fn events_of_clients_reach_others_and_are_bounded() {
    let bench = Bench::new("", RULES);
    let (mut ann, mut bob) = (Client::new(&bench), Client::new(&bench));
    ann.client_event("presence-x", &json!(1));
    assert!(ann.next()["data"]["message"].as_str().unwrap().contains("not subscribed"));
    assert_subscribed(&ann.subscribe("room", None));
    assert_subscribed(&ann.subscribe("private-encrypted-a", None));
    for channel in ["room", "private-encrypted-a"] {
        ann.client_event(channel, &json!(1));
        assert!(ann.next()["data"]["message"].as_str().unwrap().contains("only supported on"), "{channel}");
    }
    for (client, user) in [(&mut ann, "ann"), (&mut bob, "bob")] {
        assert_subscribed(&client.subscribe("presence-x", Some(&json!({ "user_id": user }))));
    }
    assert_eq!(ann.next()["event"], "pusher_internal:member_added");
    ann.client_event("presence-x", &json!("x".repeat(20_000)));
    assert!(ann.next()["data"]["message"].as_str().unwrap().contains("too large"));
    (0..30).for_each(|n| ann.client_event("presence-x", &json!({ "n": n })));
    // The second in which they come may change once or more often, but they come faster than ten in a second.
    let error = ann.next();
    assert_eq!((&error["event"], &error["data"]["code"]), (&json!("pusher:error"), &json!(4301)));
    let first = bob.next();
    let expected = json!({ "event": "client-moved", "channel": "presence-x", "data": { "n": 0 }, "user_id": "ann" });
    assert_eq!(first, expected);
    bench.end();
}

#[test]
fn users_sign_in_get_their_events_and_are_ended() {
    let bench = Bench::new("", RULES);
    let (mut ann, mut bob) = (Client::new(&bench), Client::new(&bench));
    let user = json!({ "id": "ann", "name": "Ann" }).to_string();
    let channel = json!({ "event": "pusher:subscribe", "data": { "channel": "#server-to-user-ann" } });
    ann.send(&channel);
    assert_eq!(ann.next()["data"]["type"], "AuthError");
    let auth = format!("shop-key:{}", sign(&format!("{}::user::{user}", ann.id)));
    ann.send(&json!({ "event": "pusher:signin", "data": { "auth": auth, "user_data": user } }));
    let answer = ann.next();
    assert_eq!((&answer["event"], &data(&answer)["user_data"]), (&json!("pusher:signin_success"), &json!(user)));
    ann.send(&channel);
    assert_subscribed(&ann.next());
    trigger(&bench, &json!({ "name": "hello", "channel": "#server-to-user-ann", "data": "1" }));
    assert_eq!((ann.next()["event"].clone(), ann.is_quiet()), (json!("hello"), true));
    // The signature of another socket.
    bob.send(&json!({ "event": "pusher:signin", "data": { "auth": auth, "user_data": user } }));
    assert_eq!(bob.next()["data"]["code"], json!(4009));
    assert!(bob.next().as_str().unwrap().contains("4009"));
    assert_eq!(post(&bench, "/apps/7/users/ann/terminate_connections", &json!({})), (200, json!({})));
    assert!(ann.next().as_str().unwrap().contains("4009"));
    bench.end();
}

#[test]
fn cache_channels_begin_with_their_last_event() {
    let bench = Bench::new("", RULES);
    let mut ann = Client::new(&bench);
    assert_subscribed(&ann.subscribe("cache-a", None));
    assert_eq!(ann.next()["event"], "pusher:cache_miss");
    trigger(&bench, &json!({ "name": "price", "channel": "cache-a", "data": "7" }));
    assert_eq!(ann.next()["data"], "7");
    let mut bob = Client::new(&bench);
    assert_subscribed(&bob.subscribe("cache-a", None));
    assert_eq!(bob.next(), json!({ "event": "price", "channel": "cache-a", "data": "7" }));
    bench.end();
}

#[test]
fn requests_with_faults_are_refused() {
    let bench = Bench::new("", RULES);
    let good = json!({ "name": "e", "channel": "room", "data": "1" });
    let with = |name: &str, value: Value| {
        let mut body = good.clone();
        body[name] = value;
        body
    };
    let many: Vec<String> = (0..101).map(|n| format!("c{n}")).collect();
    for (body, status) in [
        (with("name", json!("")), 400),
        (with("name", json!("x".repeat(201))), 400),
        (with("name", json!("pusher:error")), 400),
        (with("name", json!("pusher_internal:member_added")), 400),
        (with("name", json!("pushed")), 200),
        (with("name", json!("pushers-met")), 200),
        (with("data", json!({})), 400),
        (with("data", json!("x".repeat(10_241))), 413),
        (with("data", json!("x".repeat(10_240))), 200),
        (with("channel", json!("a b")), 400),
        (json!({ "name": "e", "channels": many, "data": "1" }), 400),
        (json!({ "name": "e", "channels": many[..100], "data": "1" }), 200),
        (json!({ "name": "e", "data": "1" }), 400),
        (json!([]), 400),
    ] {
        assert_eq!(post(&bench, "/apps/7/events", &body).0, status, "{body}");
    }
    let batch: Vec<Value> = (0..11).map(|_| good.clone()).collect();
    assert_eq!(post(&bench, "/apps/7/batch_events", &json!({ "batch": batch })).0, 400);
    assert_eq!(post(&bench, "/apps/7/batch_events", &json!({ "batch": batch[..10] })).0, 200);
    let body = good.to_string();
    let changed = |from: &'static str, to: &'static str| {
        request(&bench, "POST /apps/7/events", &body, move |query| query.replace(from, to)).0
    };
    assert_eq!(changed("", ""), 200);
    for (from, to) in [
        ("auth_key=shop-key", "auth_key=other"),
        ("auth_version=1.0", "auth_version=2.0"),
        ("body_md5=", "body_md6="),
        ("auth_signature=", "auth_signature=00"),
        ("auth_signature=", "signature="),
        ("auth_timestamp=1", "auth_timestamp=2"),
    ] {
        assert_eq!(changed(from, to), 401, "{from}");
    }
    // Signed for another body, and long ago.
    let other = request(&bench, "POST /apps/7/events", &body, |_| String::new());
    assert_eq!(other.0, 401);
    for (line, status) in [
        ("GET /apps/7/none", 404),
        ("GET /apps/9/channels", 401),
        ("GET /apps/8/channels", 401),
        ("GET /apps/7/channels?info=user_count", 400),
        ("GET /apps/7/channels/room?info=user_count", 400),
        ("GET /apps/7/channels/room/users", 400),
    ] {
        assert_eq!(request(&bench, line, "", |query| query).0, status, "{line}");
    }
    bench.end();
}

#[test]
fn other_rules_end_connections_of_apps_that_are_gone_or_changed() {
    let bench = Bench::new("", RULES);
    let mut client = Client::new(&bench);
    assert_subscribed(&client.subscribe("private-a", None));
    // Other limits do not.
    bench.reload("", &RULES.replace("client-events = true", ""));
    let begin = std::time::Instant::now();
    loop {
        client.client_event("private-a", &json!(1));
        client.send(&json!({ "event": "pusher:ping", "data": {} }));
        let answer = client.next();
        if answer["data"]["message"].as_str().is_some_and(|message| message.contains("client-events")) {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{answer}");
    }
    assert_eq!(client.next()["event"], "pusher:pong");
    bench.reload("", &RULES.replace("shop:", "store:"));
    assert!(until(&mut client.socket, "4200").contains("4200"));
    let mut client = Client::new(&bench);
    bench.reload("", "");
    assert!(client.next().as_str().unwrap().contains("4001"));
    bench.end();
}

#[test]
fn events_members_and_ends_reach_other_hosts() {
    let broker = MemoryBroker::new();
    let [one, two] = [(), ()].map(|()| Bench::on(Some(Bridge::start(broker.clone()).unwrap()), "", RULES));
    let (mut ann, mut bob) = (Client::new(&one), Client::new(&two));
    let user = "u".repeat(128);
    assert_subscribed(&ann.subscribe("presence-x", Some(&json!({ "user_id": "ann", "user_info": "x".repeat(1000) }))));
    let answer = bob.subscribe("presence-x", Some(&json!({ "user_id": user, "user_info": [1] })));
    assert_subscribed(&answer);
    // Each is told of the other, also where a list came before.
    let added = ann.next();
    assert_eq!(data(&added), json!({ "user_id": user, "user_info": [1] }));
    let begin = std::time::Instant::now();
    while get(&two, "/apps/7/channels/presence-x/users")["users"].as_array().unwrap().len() < 2 {
        assert!(begin.elapsed() < PATIENCE);
    }
    if data(&answer)["presence"]["count"] == json!(1) {
        assert_eq!(data(&bob.next())["user_id"], "ann");
    }
    // A user who comes from the other host too is no other member.
    let mut second = Client::new(&one);
    assert_subscribed(&second.subscribe("presence-x", Some(&json!({ "user_id": user }))));
    trigger(&one, &json!({ "name": "greet", "channel": "presence-x", "data": "1", "socket_id": bob.id }));
    assert_eq!((ann.next()["event"].clone(), second.next()["event"].clone()), (json!("greet"), json!("greet")));
    bob.client_event("presence-x", &json!(2));
    let moved = ann.next();
    assert_eq!((&moved["event"], &moved["user_id"]), (&json!("client-moved"), &json!(user)));
    assert_eq!(second.next()["event"], "client-moved");
    drop(bob);
    assert!(ann.is_quiet() && second.is_quiet());
    drop(second);
    assert_eq!(ann.next()["event"], "pusher_internal:member_removed");
    assert_eq!(ann.sign_in("ann")["event"], "pusher:signin_success");
    let begin = std::time::Instant::now();
    // Until the broker knows of the channel.
    while !ann.id.is_empty() {
        assert_eq!(post(&two, "/apps/7/users/ann/terminate_connections", &json!({})).0, 200);
        // The end may come before the ping leaves.
        let ping = ann.socket.text(&json!({ "event": "pusher:ping" }).to_string());
        let end = ping.map_or_else(|error| json!(error.to_string()), |_| ann.next());
        if end.as_str().is_some_and(|end| end.contains("4009")) {
            break;
        }
        assert!(begin.elapsed() < PATIENCE);
    }
    one.end();
    two.end();
}

/// Waits until a client is told this number of subscribers. Returns the number of messages.
fn reaches(client: &mut Client, channel: &str, expected: u64) -> usize {
    let told = |client: &mut Client| {
        let told = client.next();
        assert_eq!((&told["event"], &told["channel"]), (&json!(COUNT), &json!(channel)), "{told}");
        data(&told)["subscription_count"].as_u64().unwrap()
    };
    (1..).find(|_| told(client) == expected).unwrap()
}

const COUNT: &str = "pusher_internal:subscription_count";

#[test]
fn subscribers_are_told_their_number_on_all_hosts_if_the_app_says_so() {
    let broker = MemoryBroker::new();
    let rules = RULES
        .replace("client-events = true", "subscription-counts = true")
        .replace("connections = 6", "connections = 60");
    let [one, two] = [(), ()].map(|()| Bench::on(Some(Bridge::start(broker.clone()).unwrap()), "", &rules));
    let mut ann = Client::new(&one);
    assert_subscribed(&ann.subscribe("news", None));
    assert_eq!(reaches(&mut ann, "news", 1), 1);
    let begin = std::time::Instant::now();
    let mut others: Vec<Client> = (0..20).map(|n| Client::new(if n % 2 == 0 { &one } else { &two })).collect();
    others.iter_mut().for_each(|other| assert_subscribed(&other.subscribe("news", None)));
    let told = reaches(&mut ann, "news", 21) as u64;
    assert!(told <= 2 + begin.elapsed().as_secs(), "{told} messages in {:?}", begin.elapsed());
    let info = get(&one, "/apps/7/channels/news?info=subscription_count");
    assert_eq!(info, json!({ "occupied": true, "subscription_count": 21 }));
    drop(others);
    reaches(&mut ann, "news", 1);
    // Members of presence channels are known, and each user has its channel alone.
    assert_subscribed(&ann.subscribe("presence-x", Some(&json!({ "user_id": "ann" }))));
    assert_eq!(ann.sign_in("ann")["event"], "pusher:signin_success");
    ann.send(&json!({ "event": "pusher:unsubscribe", "data": { "channel": "news" } }));
    assert!(ann.is_quiet());
    one.end();
    two.end();
}

#[test]
fn the_policy_for_slow_readers_holds_for_channels() {
    let slow = "users = [\"subscribe\", \"publish\"]\nslow-readers = \"drop-newest\"\nmax-waiting = 1024\n";
    let bench = Bench::new("", &RULES.replace("users = [\"subscribe\", \"publish\"]", slow));
    let (mut reader, mut writer) = (Client::new(&bench), bench.connect(&token("ann", 60.0, &json!({}))));
    assert_subscribed(&reader.subscribe("room", None));
    let message = json!({ "type": "publish", "topic": "shop:room", "data": "x".repeat(30_000), "id": "i" }).to_string();
    let (begin, loops) = (std::time::Instant::now(), bench.server.shards());
    while loops.iter().all(|one| one.counters().dropped_newest == 0) {
        assert!(begin.elapsed() < PATIENCE);
        writer.text(&message).unwrap();
        until(&mut writer, "\"published\"");
        assert!(loops.iter().all(|one| one.counters().slow_consumers == 0), "the reader was disconnected");
    }
    bench.end();
}
