//! Server-sent events.

use crate::bench::{API_KEY, Bench, send, token, until};
use crate::helpers::PATIENCE;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use tautline::http::StatusCode;
use tautline::{Address, Reply, Server, ServerHandle};
use tautline_hub::Hub;

const RULES: &str = "
[[namespace]]
topics = \"log:*\"
anyone = [\"subscribe\", \"publish\"]
users = [\"history\"]

[[namespace]]
topics = \"room*\"
anyone = [\"subscribe\", \"publish\"]

[[namespace]]
topics = \"secret\"
users = [\"subscribe\"]

[[key]]
name = \"app\"
file = \"api.key\"
scopes = [\"publish\"]
topics = [\"*\"]
";

/// A client of events.
pub(crate) struct Events {
    stream: TcpStream,
    /// Bytes that were not taken yet, without chunks' sizes.
    text: String,
    pub(crate) head: String,
}

/// An event: its name, identifier and data.
pub(crate) type Event = (String, String, Value);

impl Events {
    pub(crate) fn get(bench: &Bench, path: &str, headers: &str) -> Self {
        Self::ask(bench, &format!("GET {path} HTTP/1.0"), headers)
    }

    /// With HTTP/1.0 there are no chunks to undo.
    fn ask(bench: &Bench, line: &str, headers: &str) -> Self {
        Self::ask_server(&bench.server, line, headers)
    }

    fn ask_server(server: &ServerHandle, line: &str, headers: &str) -> Self {
        let Address::Tcp(address) = server.addresses()[0] else { unreachable!("a TCP address") };
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(format!("{line}\r\nHost: hub.example\r\n{headers}\r\n").as_bytes()).unwrap();
        let mut events = Self { stream, text: String::new(), head: String::new() };
        events.head = events.up_to("\r\n\r\n").unwrap();
        events
    }

    pub(crate) fn status(&self) -> u16 {
        self.head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn up_to(&mut self, end: &str) -> Option<String> {
        loop {
            if let Some((first, rest)) = self.text.split_once(end) {
                let (first, rest) = (first.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(first);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes).unwrap() {
                0 => return None,
                read => self.text += std::str::from_utf8(&bytes[..read]).unwrap(),
            }
        }
    }

    /// The next event; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Event> {
        loop {
            let block = self.up_to("\n\n")?;
            let field = |name: &str| {
                let found = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                found.unwrap_or_default().to_owned()
            };
            if !field("data").is_empty() {
                return Some((field("event"), field("id"), serde_json::from_str(&field("data")).unwrap()));
            }
        }
    }

    /// The next message, and its identifier.
    fn message(&mut self) -> (Value, String) {
        loop {
            let (event, id, data) = self.next().unwrap();
            if event.is_empty() {
                return (data["data"].clone(), id);
            }
            assert!(["subscribed", "late", "token"].contains(&&*event), "{event} {data}");
        }
    }
}

fn publish(bench: &Bench, topic: &str, data: &Value) {
    let Address::Tcp(address) = bench.server.addresses()[0] else { unreachable!("a TCP address") };
    let body = json!({ "topic": topic, "data": data }).to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    let head = "POST /api/publish HTTP/1.1\r\nHost: hub\r\nConnection: close\r\nAuthorization: Bearer";
    stream.write_all(format!("{head} {API_KEY}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn a_client_that_returns_with_its_place_misses_nothing_and_gets_nothing_twice() {
    let bench = Bench::new("query = \"token\"", RULES);
    let path = format!("/events?topic=log%3Aa&topic=room&token={}", token("ann", 60.0, &json!({})));
    let mut events = Events::get(&bench, &path, "");
    assert_eq!(events.status(), 200, "{}", events.head);
    assert!(events.head.contains("text/event-stream") && events.head.contains("no-store"), "{}", events.head);
    for _ in 0..2 {
        assert_eq!(events.next().unwrap().0, "subscribed");
    }
    (0..3).for_each(|n| publish(&bench, "log:a", &json!(n)));
    let taken: Vec<(Value, String)> = (0..2).map(|_| events.message()).collect();
    assert_eq!((&taken[0].0, &taken[1].0), (&json!(0), &json!(1)));
    drop(events);
    publish(&bench, "log:a", &json!(3));
    let last = format!("Last-Event-ID: {}\r\n", taken[1].1);
    let mut again = Events::get(&bench, &path, &last);
    assert_eq!([again.message().0, again.message().0], [json!(2), json!(3)]);
    publish(&bench, "room", &json!({ "text": "hello" }));
    let (data, id) = again.message();
    assert_eq!((data, id.is_empty()), (json!({ "text": "hello" }), true), "plain topics have no place");
    // A page that begins anew has its place in the query.
    let query = format!("{path}&last-event-id={}", taken[0].1.replace(',', "%2C"));
    assert_eq!(Events::get(&bench, &query, "").message().0, json!(1));
    // An epoch that is gone.
    let mut late = Events::get(&bench, &path, "Last-Event-ID: other.7,-\r\n");
    let event = std::iter::from_fn(|| late.next()).find(|(event, ..)| event == "late").unwrap();
    assert_eq!(event.2["topic"], json!("log:a"));
    assert_eq!(late.message().0, json!(0));
    bench.end();
}

#[test]
fn a_stream_begins_with_all_that_is_kept_or_after_an_offset() {
    let bench = Bench::new("query = \"token\"", RULES);
    (0..3).for_each(|n| publish(&bench, "log:a", &json!(n)));
    publish(&bench, "log:b", &json!("b"));
    let token = token("ann", 60.0, &json!({}));
    let path = |rest: &str| format!("/events?topic=log:a{rest}&token={token}");
    let mut all = Events::get(&bench, &path("&after=0"), "");
    let first = all.message();
    assert_eq!([&first.0, &all.message().0, &all.message().0], [&json!(0), &json!(1), &json!(2)]);
    // Two topics; a browser that comes back has the same query, and its place.
    let mut both = Events::get(&bench, &path("&topic=log:b&after=0"), "");
    let (mut got, mut last) = (Vec::new(), String::new());
    for _ in 0..4 {
        let (data, id) = both.message();
        got.push(data.to_string());
        last = id;
    }
    got.sort();
    assert_eq!(got, ["\"b\"", "0", "1", "2"]);
    drop(both);
    publish(&bench, "log:a", &json!(3));
    let mut again = Events::get(&bench, &path("&topic=log:b&after=0"), &format!("Last-Event-ID: {last}\r\n"));
    assert_eq!(again.message().0, json!(3));
    let (epoch, offset) = first.1.rsplit_once('.').unwrap();
    let mut after = Events::get(&bench, &path(&format!("&after={offset}&epoch={epoch}")), "");
    assert_eq!(after.message().0, json!(1));
    let mut late = Events::get(&bench, &path(&format!("&after={offset}&epoch=another")), "");
    assert_eq!(late.next().unwrap().0, "late");
    assert_eq!(late.message().0, json!(0));
    bench.end();
}

#[test]
fn requests_without_a_right_or_with_faults_are_refused() {
    let bench = Bench::new("cookie = \"session\"", &format!("{RULES}\n[events]\norigins = [\"https://app.example\"]"));
    let good = token("ann", 60.0, &json!({}));
    let bearer = format!("Authorization: Bearer {good}\r\n");
    let (evil, page) = ("Origin: https://evil.example\r\n", "Origin: https://app.example\r\n");
    for (line, headers, status) in [
        ("GET /events?topic=room HTTP/1.1", "", 200),
        ("GET /events?topic=secret HTTP/1.1", "", 403),
        ("GET /events?topic=secret HTTP/1.1", &*bearer, 200),
        ("GET /events?topic=secret HTTP/1.1", "Authorization: Bearer x\r\n", 401),
        ("GET /events?topic=room&topic=secret HTTP/1.1", "", 403),
        ("GET /events HTTP/1.1", "", 400),
        ("GET /events?topic= HTTP/1.1", "", 400),
        ("GET /events?topic=$presence/x HTTP/1.1", "", 400),
        ("GET /events?topic=room&topic=room HTTP/1.1", "", 400),
        ("GET /events?topic=%ff HTTP/1.1", "", 400),
        ("GET /events?topic=log:a HTTP/1.1", "Last-Event-ID: nonsense\r\n", 400),
        ("GET /events?topic=log:a&after=1 HTTP/1.1", &*bearer, 400),
        ("GET /events?topic=log:a&after=0 HTTP/1.1", &*bearer, 200),
        ("GET /events?topic=log:a&after=0 HTTP/1.1", "", 403),
        ("GET /events?topic=room&after=0 HTTP/1.1", "", 200),
        ("POST /events?topic=room HTTP/1.1", "Content-Length: 0\r\n", 405),
        ("GET /events?topic=room HTTP/1.1", evil, 403),
        ("GET /events?topic=room HTTP/1.1", page, 200),
        ("GET /events?topic=room HTTP/1.1", "Origin: http://hub.example\r\n", 200),
        ("OPTIONS /events HTTP/1.1", page, 204),
        ("OPTIONS /events HTTP/1.1", evil, 403),
    ] {
        let events = Events::ask(&bench, line, headers);
        assert_eq!(events.status(), status, "{line} {headers}");
        let shared = events.head.to_lowercase().contains("access-control-allow-origin: https://app.example");
        assert_eq!(shared, headers == page, "{line} {headers}");
    }
    bench.end();
}

#[test]
fn a_gate_decides_who_reads_events_as_it_decides_who_connects() {
    let hub = Hub::default().on_request(|request| {
        let is_known = request.http.headers().get("authorization").is_some_and(|value| value == "Bearer secret");
        if is_known { Reply::upgrade() } else { Reply::status(StatusCode::UNAUTHORIZED) }
    });
    let server = Server::plain().listen("127.0.0.1:0".parse().unwrap()).beside_others(true);
    let server = server.start(hub.handlers()).unwrap();
    for (headers, status) in
        [("", 401), ("Authorization: Bearer x\r\n", 401), ("Authorization: Bearer secret\r\n", 200)]
    {
        let events = Events::ask_server(&server, "GET /events?topic=room HTTP/1.0", headers);
        assert_eq!(events.status(), status, "{headers}");
    }
    // A browser asks without the header whether its page may send it.
    let origin = "Origin: http://hub.example\r\n";
    assert_eq!(Events::ask_server(&server, "OPTIONS /events?topic=room HTTP/1.0", origin).status(), 204);
    crate::helpers::stop(server);
}

#[test]
fn a_stream_ends_with_its_token_and_says_why() {
    let bench = Bench::new("", RULES);
    let bearer = format!("Authorization: Bearer {}\r\n", token("ann", 2.0, &json!({})));
    let mut events = Events::get(&bench, "/events?topic=secret", &bearer);
    let end = std::iter::from_fn(|| events.next()).find(|(event, ..)| event == "close").unwrap();
    assert_eq!((&end.2["code"], events.next()), (&json!(4001), None));
    bench.end();
}

#[test]
fn other_rules_end_subscriptions_and_a_restart_ends_streams() {
    let bench = Bench::new("", RULES);
    let mut events = Events::get(&bench, "/events?topic=room&topic=log:a", "");
    for _ in 0..2 {
        assert_eq!(events.next().unwrap().0, "subscribed");
    }
    bench.reload("", &RULES.replace("\"room*\"", "\"hall*\""));
    let (event, _, data) = events.next().unwrap();
    assert_eq!((&*event, &data["topic"]), ("unsubscribed", &json!("room")));
    publish(&bench, "log:a", &json!("still"));
    assert_eq!(events.message().0, json!("still"));
    bench.server.drain(tautline::CloseCode::SERVICE_RESTART, "retry-after=1.5s", PATIENCE);
    let block = events.up_to("\n\n").unwrap();
    assert_eq!(block, "retry: 1500");
    assert_eq!(events.next().unwrap().0, "close");
    assert!(events.next().is_none());
    bench.end();
}

#[test]
fn streams_are_bounded_by_address_and_end_free_their_place() {
    let bench = Bench::new("", &format!("{RULES}\n[events]\nper-address = 2\nretry = 50"));
    let mut first = Events::get(&bench, "/events?topic=room", "");
    assert_eq!(first.up_to("\n\n").unwrap(), "retry: 50");
    let second = Events::get(&bench, "/events?topic=room", "");
    assert_eq!(Events::get(&bench, "/events?topic=room", "").status(), 429);
    drop(second);
    let begin = std::time::Instant::now();
    while Events::get(&bench, "/events?topic=room", "").status() != 200 {
        assert!(begin.elapsed() < PATIENCE);
    }
    bench.end();
}

#[test]
fn a_slow_reader_of_a_history_is_cut_off_and_returns_with_its_place() {
    let bench = Bench::new("query = \"token\"", RULES);
    let path = format!("/events?topic=log:a&token={}", token("ann", 600.0, &json!({})));
    let mut events = Events::get(&bench, &path, "");
    assert_eq!(events.next().unwrap().0, "subscribed");
    publish(&bench, "log:a", &json!(0));
    let (_, mut id) = events.message();
    // It does not read meanwhile. More than it may lag and than sockets take are on their way.
    let large = "x".repeat(60_000);
    let mut socket = bench.try_connect("/", &[]).unwrap();
    for n in 1..=400 {
        let message = json!({ "type": "publish", "topic": "log:a", "id": format!("m{n}"), "data": [n, large] });
        socket.text(&message.to_string()).unwrap();
        assert!(until(&mut socket, "\"published\"").contains("offset"));
    }
    let mut next = 1;
    let mut returns = 0;
    while next <= 400 {
        match events.next() {
            Some((event, own, data)) if event.is_empty() => {
                assert_eq!(data["data"][0], json!(next));
                (id, next) = (own, next + 1);
            }
            Some((event, _, data)) => assert!(event == "close" || event == "subscribed", "{event} {data}"),
            None => {
                returns += 1;
                events = Events::get(&bench, &path, &format!("Last-Event-ID: {id}\r\n"));
            }
        }
    }
    assert!(returns > 0, "it was never cut off");
    assert!(send(&mut socket, "room").contains("published"));
    bench.end();
}
