//! The HTTP interface.

use crate::bench::{API_KEY, Bench, OTHER_KEY, named_token, next, subscribe, token, until};
use crate::hosts::eventually;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use tautline::Address;
use tautline_hub::{Append, Config, Done, Following, Kind, Log, MemoryLog, Page, Position, Sink};

const RULES: &str = "
[[namespace]]
topics = \"*\"
users = [\"subscribe\", \"presence\"]
max-message = 1000

[[key]]
name = \"app\"
file = \"api.key\"
scopes = [\"publish\", \"history\", \"presence\", \"users\", \"statistics\"]
topics = [\"*\"]

[[key]]
name = \"little\"
file = \"other.key\"
scopes = [\"publish\"]
topics = [\"news:*\"]
rate = 3
";

/// A request: the status, and the body as JSON.
pub(crate) fn request(bench: &Bench, head: &str, body: &str) -> (u16, Value) {
    let Address::Tcp(address) = bench.server.addresses()[0] else { unreachable!("a TCP address") };
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let request = format!("{head}\r\nHost: hub\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_default())
}

pub(crate) fn post(bench: &Bench, operation: &str, body: &Value) -> (u16, Value) {
    let head = format!("POST /api/{operation} HTTP/1.1\r\nAuthorization: Bearer {API_KEY}");
    request(bench, &head, &body.to_string())
}

#[test]
fn messages_reach_topics_histories_and_users() {
    let bench = Bench::new("", RULES);
    let mut ann = bench.connect(&token("ann", 60.0, &json!({})));
    for topic in ["room", "log:a"] {
        assert!(subscribe(&mut ann, topic).contains("subscribed"));
    }
    let (status, answer) = post(&bench, "publish", &json!({ "topic": "room", "data": { "n": 1 } }));
    assert_eq!((status, &answer["topic"]), (200, &json!("room")));
    assert!(next(&mut ann).contains(r#""data":{"n":1}"#));
    let messages: Vec<Value> = (0..5).map(|n| json!({ "topic": "log:a", "data": n })).collect();
    let (status, answer) = post(&bench, "batch", &json!({ "messages": messages }));
    assert_eq!((status, answer["published"].as_array().unwrap().len()), (200, 5), "{answer}");
    for n in 0..5 {
        assert!(next(&mut ann).contains(&format!(r#""data":{n}"#)));
    }
    let after = &answer["published"][1]["offset"];
    let epoch = &answer["published"][1]["epoch"];
    let (status, page) = post(&bench, "history", &json!({ "topic": "log:a", "after": after, "epoch": epoch }));
    assert_eq!(&page["epoch"], epoch);
    let data: Vec<&Value> = page["messages"].as_array().unwrap().iter().map(|entry| &entry["data"]).collect();
    assert_eq!((status, data), (200, vec![&json!(2), &json!(3), &json!(4)]));
    let mut second = bench.connect(&token("ann", 60.0, &json!({})));
    subscribe(&mut second, "room");
    let (status, answer) = post(&bench, "publish", &json!({ "user": "ann", "data": "hello" }));
    assert_eq!((status, &answer["connections"]), (200, &json!(2)));
    for socket in [&mut ann, &mut second] {
        assert_eq!(next(socket), r#"{"type":"direct","data":"hello"}"#);
    }
    bench.end();
}

#[test]
fn users_are_listed_disconnected_and_revoked() {
    let bench = Bench::new("", RULES);
    let (of_ann, of_bob) = (token("ann", 60.0, &json!({})), token("bob", 60.0, &json!({})));
    let (mut ann, mut bob) = (bench.connect(&of_ann), bench.connect(&of_bob));
    let member = json!({ "type": "subscribe", "topic": "room", "as": "x" });
    assert!(crate::ask(&mut ann, &member).contains("subscribed"));
    subscribe(&mut bob, "room");
    let (_, presence) = post(&bench, "presence", &json!({ "topic": "room" }));
    assert_eq!(presence["members"][0][1], json!("ann"), "{presence}");
    let (_, all) = post(&bench, "connections", &json!({}));
    assert_eq!(all["number"], json!(2));
    let of_user = post(&bench, "connections", &json!({ "user": "bob" })).1;
    assert_eq!((&of_user["connections"], of_user["names"].as_array().unwrap().len()), (&json!(1), 1), "{of_user}");
    assert_eq!(post(&bench, "statistics", &json!({})).1["users"], json!(2));
    assert_eq!(post(&bench, "disconnect", &json!({ "user": "bob" })).0, 200);
    assert!(until(&mut bob, "4002").contains("the application"));
    let mut again = bench.connect(&of_bob);
    assert!(subscribe(&mut again, "room").contains("subscribed"), "it may come again");
    assert_eq!(post(&bench, "revoke", &json!({ "user": "bob", "seconds": 600 })).0, 200);
    until(&mut again, "4002");
    let header = format!("Bearer {of_bob}");
    assert!(bench.try_connect("/", &[("authorization", &header)]).unwrap_err().contains("401"));
    let mut late = bench.try_connect("/", &[]).unwrap();
    assert!(crate::ask(&mut late, &json!({ "type": "token", "token": of_bob })).contains("4004"));
    assert!(crate::ask(&mut ann, &json!({ "type": "ping" })).contains("pong"), "others go on");
    bench.end();
}

#[test]
fn one_connection_is_ended_alone() {
    let rules = format!("{RULES}[[namespace]]\ntopics = \"hall\"\nanyone = [\"subscribe\", \"presence\"]\n");
    // The namespace of RULES comes first, and has all topics.
    let bench = Bench::new("", &rules.replacen("\"*\"", "\"room\"", 1));
    let of_ann = token("ann", 60.0, &json!({}));
    let names = |count: usize| {
        let (_, of_user) = post(&bench, "connections", &json!({ "user": "ann" }));
        let names: Vec<String> = serde_json::from_value(of_user["names"].clone()).unwrap();
        assert_eq!((names.len(), &of_user["connections"]), (count, &json!(count)), "{of_user}");
        names
    };
    let mut first = bench.connect(&of_ann);
    assert!(subscribe(&mut first, "room").contains("subscribed"));
    let name = names(1).remove(0);
    let mut second = bench.connect(&of_ann);
    assert!(subscribe(&mut second, "room").contains("subscribed"));
    assert!(names(2).contains(&name));
    let one = json!({ "connection": name });
    // The scope is that of `disconnect`, and other operations have no such member.
    let head = format!("POST /api/disconnect HTTP/1.1\r\nAuthorization: Bearer {OTHER_KEY}");
    assert_eq!(request(&bench, &head, &one.to_string()).1["error"]["code"], json!("forbidden"));
    let table = [
        ("connections", one.clone(), "bad-request"),
        ("revoke", json!({ "connection": name, "seconds": 1 }), "bad-request"),
        ("disconnect", json!({ "connection": name, "user": "ann" }), "bad-request"),
        ("disconnect", json!({ "connection": name, "seconds": 1 }), "bad-request"),
        ("disconnect", json!({ "connection": "ann" }), "bad-connection"),
        ("disconnect", json!({ "connection": format!("{name} ") }), "bad-connection"),
        ("disconnect", json!({ "connection": name.replacen('/', "/0", 1) }), "bad-connection"),
        ("disconnect", json!({ "connection": name.replacen('/', "/+", 1) }), "bad-connection"),
    ];
    for (operation, body, code) in table {
        let (status, answer) = post(&bench, operation, &body);
        assert_eq!((status, &answer["error"]["code"]), (400, &json!(code)), "{operation} {body}");
    }
    let head = format!("POST /api/disconnect HTTP/1.1\r\nAuthorization: Bearer {API_KEY}\r\nIdempotency-Key: e");
    for _ in 0..2 {
        assert_eq!(request(&bench, &head, &one.to_string()), (200, one.clone()));
    }
    assert!(until(&mut first, "4002").contains("the application"));
    assert!(crate::ask(&mut second, &json!({ "type": "ping" })).contains("pong"), "the other one goes on");
    let left = names(1).remove(0);
    assert_ne!(left, name);
    assert_eq!(post(&bench, "disconnect", &one), (200, one), "one that is gone is no error");
    // A connection without a user has its name among the members of a topic.
    let mut anyone = bench.try_connect("/", &[]).unwrap();
    let member = json!({ "type": "subscribe", "topic": "hall", "as": "guest" });
    assert!(crate::ask(&mut anyone, &member).contains("subscribed"));
    let (_, presence) = post(&bench, "presence", &json!({ "topic": "hall" }));
    let guest = json!({ "connection": presence["members"][0][0] });
    assert_eq!(post(&bench, "disconnect", &guest), (200, guest));
    until(&mut anyone, "4002");
    assert!(crate::ask(&mut second, &json!({ "type": "ping" })).contains("pong"));
    bench.end();
}

#[test]
fn a_repeated_request_is_done_once() {
    let bench = Bench::new("", RULES);
    let named = |name: &str, body: &Value| {
        let head = "POST /api/publish HTTP/1.1\r\nAuthorization: Bearer";
        request(&bench, &format!("{head} {API_KEY}\r\nIdempotency-Key: {name}"), &body.to_string())
    };
    let body = json!({ "topic": "log:a", "data": 1 });
    let first = named("a", &body);
    assert_eq!((first.0, named("a", &body)), (200, first.clone()));
    assert_eq!(named("a", &json!({ "topic": "log:a", "data": 2 })).1["error"]["code"], json!("other-request"));
    assert_ne!(named("b", &body), first);
    for bad in [&"x".repeat(100), "", "a b", "\u{e9}", "c\r\nIdempotency-Key: d"] {
        assert_eq!(named(bad, &body).1["error"]["code"], json!("bad-idempotency-key"), "{bad:?}");
    }
    let (_, page) = post(&bench, "history", &json!({ "topic": "log:a" }));
    assert_eq!(page["messages"].as_array().unwrap().len(), 2, "{page}");
    bench.end();
}

/// A log that stores messages once it is told to.
#[derive(Default)]
struct Held {
    log: MemoryLog,
    waiting: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl Held {
    fn is_asked(&self) -> bool {
        !self.waiting.lock().unwrap().is_empty()
    }

    fn let_go(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap());
        waiting.into_iter().for_each(|store| store());
    }
}

impl Log for Held {
    fn append(&self, topic: &Arc<str>, append: Append, done: Done<Position>) {
        let (log, topic) = (self.log.clone(), topic.clone());
        self.waiting.lock().unwrap().push(Box::new(move || log.append(&topic, append, done)));
    }

    fn follow(&self, topic: &Arc<str>, kind: Kind, sink: Arc<dyn Sink>) -> Following {
        self.log.follow(topic, kind, sink)
    }

    fn read(&self, topic: &Arc<str>, kind: Kind, after: Option<u64>, done: Done<Page>) {
        self.log.read(topic, kind, after, done);
    }
}

#[test]
fn a_repetition_is_refused_while_the_first_request_is_under_way() {
    let log = Arc::new(Held::default());
    let bench = Bench::with_log(Config::default(), (log.clone(), None), "", RULES);
    let named = |name: &str, data: u32| {
        let head = format!("POST /api/publish HTTP/1.1\r\nAuthorization: Bearer {API_KEY}\r\nIdempotency-Key: {name}");
        request(&bench, &head, &json!({ "topic": "log:a", "data": data }).to_string())
    };
    let code = |(status, answer): (u16, Value)| (status, answer["error"]["code"].clone());
    std::thread::scope(|scope| {
        let first = scope.spawn(|| named("a", 1));
        eventually("the log is asked", || log.is_asked());
        for _ in 0..3 {
            assert_eq!(code(named("a", 1)), (409, json!("running")));
        }
        assert_eq!(code(named("a", 2)), (409, json!("other-request")));
        // Other requests do not wait for it.
        let plain = json!({ "topic": "room", "data": 1 });
        assert_eq!(post(&bench, "publish", &plain).0, 200);
        log.let_go();
        let first = first.join().unwrap();
        assert_eq!((first.0, named("a", 1)), (200, first), "the answer is given again");
        assert!(!log.is_asked(), "no repetition has come to the log");
    });
    let (_, page) = post(&bench, "history", &json!({ "topic": "log:a" }));
    assert_eq!(page["messages"].as_array().unwrap().len(), 1, "{page}");
    bench.end();
}

#[test]
fn nobody_takes_the_identifier_of_a_message_of_somebody_else() {
    let bench = Bench::new("", RULES);
    let grants = json!({ "log:*": ["publish"] });
    let users = ["ann", "3:ann", "3:an"].map(|user| bench.connect(&token(user, 60.0, &grants)));
    let mut sent = 0;
    for mut socket in users {
        for id in ["app/publish/x/0", "x", "n/x", "3:ann/x"] {
            let message = json!({ "type": "publish", "topic": "log:a", "data": sent, "id": id });
            let first = crate::ask(&mut socket, &message);
            assert!(first.contains(&format!(r#""id":"{id}""#)) && first.contains("offset"), "{first}");
            assert_eq!(crate::ask(&mut socket, &message), first, "a repetition of its own is stored once");
            sent += 1;
        }
    }
    let head = format!("POST /api/publish HTTP/1.1\r\nAuthorization: Bearer {API_KEY}\r\nIdempotency-Key: x");
    let (status, _) = request(&bench, &head, &json!({ "topic": "log:a", "data": sent }).to_string());
    let (_, page) = post(&bench, "history", &json!({ "topic": "log:a" }));
    assert_eq!((status, page["messages"].as_array().unwrap().len()), (200, sent + 1), "{page}");
    bench.end();
}

#[test]
fn a_repeated_batch_with_a_long_answer_is_done_once() {
    let bench = Bench::new("", RULES);
    let topic = "t".repeat(200);
    let mut ann = bench.connect(&token("ann", 60.0, &json!({})));
    assert!(subscribe(&mut ann, &topic).contains("subscribed"));
    let messages = vec![json!({ "topic": topic, "data": 1 }); 64];
    let head = format!("POST /api/batch HTTP/1.1\r\nAuthorization: Bearer {API_KEY}\r\nIdempotency-Key: a");
    let body = json!({ "messages": messages }).to_string();
    let first = request(&bench, &head, &body);
    assert_eq!(first.0, 200);
    assert_eq!(request(&bench, &head, &body), first);
    assert_eq!(post(&bench, "publish", &json!({ "topic": topic, "data": 2 })).0, 200);
    for _ in 0..64 {
        assert!(next(&mut ann).contains(r#""data":1"#));
    }
    assert!(next(&mut ann).contains(r#""data":2"#), "the repetition was not published");
    bench.end();
}

#[test]
fn requests_without_right_and_form_are_refused() {
    let bench = Bench::new("", RULES);
    let with = |key: &str, operation: &str, body: &str| {
        request(&bench, &format!("POST /api/{operation} HTTP/1.1\r\nAuthorization: {key}"), body)
    };
    let (app, little) = (format!("Bearer {API_KEY}"), format!("Bearer {OTHER_KEY}"));
    let news = r#"{"topic":"news:a","data":1}"#;
    let deep = format!(r#"{{"topic":"a","data":{}1{}}}"#, "[".repeat(129), "]".repeat(129));
    let deepest = format!(r#"{{"topic":"a","data":{}"#, "[".repeat(50_000));
    let long = format!(r#"{{"topic":"a","data":"{}"}}"#, "x".repeat(2_000));
    let many = json!({ "messages": vec![json!({ "topic": "a", "data": 1 }); 65] }).to_string();
    let token = format!("Bearer {}", token("ann", 60.0, &json!({ "*": ["publish"] })));
    let table: [(&str, &str, &str, u16); 37] = [
        ("", "publish", news, 401),
        ("Bearer x", "publish", news, 401),
        (&format!("{app}0"), "publish", news, 401),
        (&app[..app.len() - 1], "publish", news, 401),
        (&token, "publish", news, 401),
        (&app, "publish", news, 200),
        (&app, "nothing", "{}", 404),
        (&app, "../publish", news, 404),
        (&app, "publish/", news, 404),
        (&little, "history", r#"{"topic":"log:a"}"#, 403),
        (&little, "publish", r#"{"topic":"room","data":1}"#, 403),
        (&little, "publish", r#"{"user":"ann","data":1}"#, 403),
        (&app, "publish", "", 400),
        (&app, "publish", "[]", 400),
        (&app, "connections", "[null,null]", 400),
        (&app, "connections", r#"{"user":null}"#, 400),
        (&app, "statistics", r#"{"x":1}"#, 400),
        (&app, "batch", r#"{"messages":[["a",null,null,1]]}"#, 400),
        (&app, "revoke", r#"{"user":"nobody","seconds":1.0}"#, 200),
        (&app, "revoke", r#"{"user":"nobody","seconds":1.5}"#, 400),
        (&app, "publish", r#"{"topic":"a"}"#, 400),
        (&app, "publish", r#"{"topic":"a","data":1,"histroy":true}"#, 400),
        (&app, "publish", r#"{"topic":"$presence/room","data":1}"#, 400),
        (&app, "publish", r#"{"topic":"a\u0000","data":1}"#, 400),
        (&app, "publish", r#"{"topic":"a","user":"b","data":1}"#, 400),
        (&app, "publish", &deep, 400),
        (&app, "publish", &deepest, 400),
        (&app, "publish", &long, 400),
        (&app, "batch", &many, 400),
        (&app, "history", r#"{"topic":"room"}"#, 404),
        (&app, "history", r#"{"topic":"log:a","count":true}"#, 400),
        (&app, "history", r#"{"topic":"log:a","epoch":"e"}"#, 410),
        (&app, "history", r#"{"topic":"log:a","after":0,"epoch":"of another life"}"#, 410),
        (&app, "presence", r#"{"topic":"log:a","after":1}"#, 400),
        (&app, "presence", r#"{"topic":"room","count":true}"#, 200),
        (&app, "presence", r#"{"topic":"room","count":null}"#, 400),
        (&app, "presence", r#"{"topic":"room","after":1}"#, 400),
    ];
    for (key, operation, body, expected) in table {
        let (status, answer) = with(key, operation, body);
        assert_eq!(status, expected, "{key} {operation} {answer}");
        if status != 200 {
            let error = &answer["error"];
            assert!(error["code"].is_string() && error["remedy"].is_string(), "{operation}: {answer}");
        }
    }
    let get = format!("GET /api/publish HTTP/1.1\r\nAuthorization: {app}");
    assert_eq!(request(&bench, &get, "").0, 405);
    let begin = std::time::Instant::now();
    let often = (0..100).map(|_| with(&little, "publish", news).0).filter(|status| *status == 429).count();
    assert!(often > 0 || begin.elapsed().as_secs() > 25, "a key has three requests in a second");
    // Rules without keys have no interface.
    bench.reload("", "");
    assert_eq!(with(&app, "publish", news).0, 404);
    bench.end();
}

#[test]
fn a_process_that_takes_over_goes_on_with_revocations() {
    let (before, after) = (Bench::new("", RULES), Bench::new("", RULES));
    let named = named_token("bob", "7f3a");
    for (name, seconds) in [("ann", 600), ("carl", 0)] {
        assert_eq!(post(&before, "revoke", &json!({ "user": name, "seconds": seconds })).0, 200);
    }
    assert_eq!(post(&before, "revoke", &json!({ "token": "7f3a", "seconds": 600 })).0, 200);
    after.hub.add_totals(&before.hub.totals());
    let is_refused = |token: &str| after.try_connect("/", &[("authorization", &format!("Bearer {token}"))]).is_err();
    assert!(is_refused(&token("ann", 60.0, &json!({}))) && is_refused(&named));
    assert!(!is_refused(&token("bob", 60.0, &json!({}))) && !is_refused(&token("carl", 60.0, &json!({}))));
    before.end();
    after.end();
}
