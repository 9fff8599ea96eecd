//! Plain HTTP beside WebSockets: bodies of requests, and responses that are made while they are sent.

use std::time::Duration;
use tautline::http::{Request as Head, Response, StatusCode, header};
use tautline::testing::{App, Fetch};
use tautline::{CloseCode, Config, Conn, Content, Handler, Message, Reply, Request};

/// Answers with the request's body, or with content that `/stream` asks for.
struct Site;

/// Content of this many bytes, in pieces that are not round.
struct Pieces {
    left: usize,
    fails: bool,
}

impl std::io::Read for Pieces {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 && self.fails {
            return Err(std::io::Error::other("the source is gone"));
        }
        let len = buf.len().min(self.left).min(777);
        for (index, byte) in buf[..len].iter_mut().enumerate() {
            *byte = u8::try_from((self.left - index) % 251).unwrap();
        }
        self.left -= len;
        Ok(len)
    }
}

fn expected(len: usize) -> Vec<u8> {
    (0..len).map(|index| u8::try_from((len - index) % 251).unwrap()).collect()
}

impl Handler for Site {
    type State = ();

    fn on_request(&mut self, request: &Request<'_>) -> Reply {
        let query = request.http.uri().query().and_then(|len| len.parse().ok()).unwrap_or(0);
        let pieces = Pieces { left: query, fails: request.http.uri().path() == "/broken" };
        match request.http.uri().path() {
            "/stream" | "/broken" => Reply::Stream(Response::new(Content::new(pieces))),
            "/measured" => Reply::Stream(Response::new(Content::with_len(pieces, query as u64))),
            "/short" => Reply::Stream(Response::new(Content::with_len(pieces, query as u64 + 1))),
            "/up" if request.is_upgrade => Reply::upgrade(),
            "/later" => request.later(move |ticket| {
                ticket.stream(Response::new(Content::new(pieces))).unwrap();
            }),
            _ => Reply::Respond(Response::new(request.body.to_vec())),
        }
    }

    fn on_message(&mut self, _: &mut Conn<'_, ()>, _: Message<'_>) {}
}

fn app() -> App<Site> {
    let mut config = Config::default();
    config.limits.max_body = 1000;
    App::with_config(config, Site).unwrap()
}

fn get(path: &str) -> Head<Vec<u8>> {
    Head::get(path).body(Vec::new()).unwrap()
}

/// A request with these header lines and body, as it is on the wire.
fn post(lines: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n{body}")
}

#[test]
fn bodies_reach_the_application_and_the_connection_stays() {
    let app = app();
    let request = Head::post("/").body(b"hello".to_vec()).unwrap();
    assert_eq!(app.fetch(&request).body(), b"hello");
    let both = post("Content-Length: 3\r\n", "one") + &post("Transfer-Encoding: chunked\r\n", "3\r\ntwo\r\n0\r\n\r\n");
    let fetch = app.begin_raw(&[both.as_bytes(), b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"].concat());
    assert_eq!([fetch.wait(), fetch.wait()].map(Response::into_body), [b"one", b"two"]);
    assert_eq!(fetch.wait().body(), b"");
    assert!(!fetch.is_over());
    // One byte at a time.
    let fetch = app.begin_raw(b"");
    both.bytes().for_each(|byte| fetch.send_raw(&[byte]));
    assert_eq!([fetch.wait(), fetch.wait()].map(Response::into_body), [b"one", b"two"]);
}

#[test]
fn a_client_that_expects_100_gets_it_before_it_sends() {
    let fetch = app().begin_raw(post("Expect: 100-Continue\r\nContent-Length: 5\r\n", "").as_bytes());
    assert_eq!(fetch.received_raw(), b"HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(fetch.next().unwrap().status(), StatusCode::CONTINUE);
    fetch.send_raw(b"hello");
    assert_eq!(fetch.next().unwrap().body(), b"hello");
    let fetch = app().begin_raw(post("Expect: 100-continue\r\nContent-Length: 5000\r\n", "").as_bytes());
    assert_eq!(fetch.next().unwrap().status(), StatusCode::PAYLOAD_TOO_LARGE);
}

/// Each is answered once with this status, and the connection ends: nothing behind it counts as a request.
#[test]
fn smuggled_and_oversized_bodies_are_refused() {
    let smuggled = "GET /stream?10 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let large = "x".repeat(2000);
    for (lines, body, status) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n", 400),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", "hello!", 400),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", "hello", 400),
        ("Content-Length: 5, 5\r\n", "hello", 400),
        ("Content-Length: +5\r\n", "hello", 400),
        ("Content-Length: -1\r\n", "", 400),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "0\r\n\r\n", 400),
        ("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n", 501),
        ("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n", 501),
        ("Transfer-Encoding : chunked\r\n", "0\r\n\r\n", 400),
        ("Transfer-Encoding: chunked\r\n", "5\nhello\r\n0\r\n\r\n", 400),
        ("Transfer-Encoding: chunked\r\n", "0x5\r\nhello\r\n0\r\n\r\n", 400),
        ("Transfer-Encoding: chunked\r\n", "5\r\nhello0\r\n\r\n", 400),
        ("Transfer-Encoding: chunked\r\n", "fffffffffffffffff\r\n", 413),
        ("Transfer-Encoding: chunked\r\n", "3e9\r\n", 413),
        ("Content-Length: 1001\r\n", "", 413),
        ("Content-Length: 2000\r\n", &large, 413),
        ("Transfer-Encoding: chunked\r\n", &format!("0\r\n{}", "Trailer: x\r\n".repeat(1000)), 431),
        ("Transfer-Encoding: chunked\r\n", &format!("1;{}\r\n", "x".repeat(1000)), 400),
        ("Upgrade: websocket\r\nContent-Length: 5\r\n", "hello", 200),
    ] {
        let app = app();
        let fetch = app.begin_raw((post(lines, body) + smuggled).as_bytes());
        let response = fetch.next().unwrap();
        assert_eq!(response.status().as_u16(), status, "{lines:?}");
        assert!(fetch.next().is_none() && fetch.is_over(), "{lines:?}");
    }
}

#[test]
fn silence_within_a_body_is_answered_with_408() {
    let app = app();
    let slow = app.begin_raw(post("Content-Length: 500\r\n", "").as_bytes());
    // A byte now and then is no way to stay.
    for _ in 0..10 {
        app.advance(Duration::from_secs(1));
        slow.send_raw(b"x");
    }
    app.advance(Duration::from_secs(2));
    assert_eq!(slow.next().unwrap().status(), StatusCode::REQUEST_TIMEOUT);
    assert!(slow.is_over());
}

#[test]
fn a_drain_waits_for_a_body_and_answers_503() {
    let app = app();
    let fetch = app.begin_raw(post("Content-Length: 5\r\n", "he").as_bytes());
    app.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
    assert!(fetch.next().is_none());
    fetch.send_raw(b"llo");
    assert_eq!(fetch.next().unwrap().headers()[header::CONNECTION], "close");
    assert!(fetch.is_over());
}

#[test]
fn content_is_streamed_in_chunks_or_by_length() {
    let app = app();
    for len in [0, 1, 1023, 65_535, 65_536, 65_537, 3_000_000] {
        for path in ["stream", "measured", "later"] {
            let fetch = app.begin(&get(&format!("/{path}?{len}")));
            let response = fetch.wait();
            assert_eq!(response.headers().contains_key(header::CONTENT_LENGTH), path == "measured");
            assert!(*response.body() == expected(len), "{path} {len}");
            assert!(!fetch.is_over());
            // Another request follows on the connection.
            fetch.send_raw(b"GET /stream?70000 HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert!(*fetch.wait().body() == expected(70_000));
        }
    }
    let head = app.begin(&Head::head("/measured?5").body(Vec::new()).unwrap());
    assert_eq!(head.wait().headers()[header::CONTENT_LENGTH], "5");
    let old = app.begin_raw(b"GET /stream?100000 HTTP/1.0\r\n\r\n");
    assert!(*old.wait().body() == expected(100_000) && old.is_over());
}

#[test]
fn pipelined_requests_wait_for_a_stream() {
    let app = app();
    let requests = "GET /stream?300000 HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(5);
    let fetch = app.begin_raw(requests.as_bytes());
    for _ in 0..5 {
        assert!(*fetch.wait().body() == expected(300_000));
    }
}

fn held(app: &App<Site>) -> u64 {
    app.handle().counters().memory_sending
}

#[test]
fn a_client_that_does_not_read_holds_one_piece() {
    let app = app();
    let fetch: Fetch = app.begin_raw(b"");
    fetch.read(false);
    fetch.send_raw(b"GET /stream?50000000 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!((1..300_000).contains(&held(&app)), "{}", held(&app));
    app.advance(Duration::from_secs(20));
    assert!(!fetch.is_over());
    app.advance(Duration::from_secs(20));
    assert!(fetch.is_over(), "the deadline to send is over");
    assert_eq!(app.handle().counters().missed_send, 1);
}

/// A client sees that a response is not whole, since its end is missing.
#[test]
fn content_that_fails_or_is_too_short_resets_the_connection() {
    for path in ["/broken?100000", "/short?100000"] {
        let app = app();
        let fetch = app.begin(&get(path));
        assert!(fetch.next().is_none() && fetch.is_over(), "{path}");
        assert_eq!(app.handle().counters().connections, 0);
    }
}

/// The heads of all answers on a connection.
fn heads(app: &App<Site>, bytes: &[u8]) -> String {
    String::from_utf8_lossy(&app.begin_raw(bytes).received_raw()).into_owned()
}

#[test]
fn every_answer_but_an_upgrade_has_the_date_of_its_second() {
    let app = app();
    app.advance(Duration::from_secs(784_111_777) + Duration::from_millis(999));
    let upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n";
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (bytes, status) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 200),
        ("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 200),
        ("GET / HTTP/1.0\r\n\r\n".to_owned(), 200),
        ("GET /stream?10 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 200),
        ("GET /measured?10 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 200),
        ("nonsense\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n".to_owned(), 505),
        (post("Transfer-Encoding: gzip, chunked\r\n", ""), 501),
        (post("Content-Length: 2000\r\n", ""), 413),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(20_000)), 431),
        (format!("GET /{} HTTP/1.1\r\n", "x".repeat(20_000)), 414),
        (format!("GET /up HTTP/1.1\r\nHost: a\r\n{upgrade}\r\n"), 400),
        (format!("GET /up HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\n{upgrade}{key}\r\n"), 403),
        (format!("GET /up HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n{key}\r\n"), 426),
        (format!("POST /up HTTP/1.1\r\nHost: a\r\n{upgrade}{key}\r\n"), 405),
    ] {
        let head = heads(&app, bytes.as_bytes());
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {head}");
        assert_eq!(head.matches("\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n").count(), 1, "{head}");
    }
    let both = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(2);
    assert_eq!(heads(&app, both.as_bytes()).matches("08:49:37 GMT").count(), 2);
    app.advance(Duration::from_millis(1));
    assert!(heads(&app, both.as_bytes()).contains("08:49:38 GMT"), "a simulation's clock decides");
    let opened = heads(&app, format!("GET /up HTTP/1.1\r\nHost: a\r\n{upgrade}{key}\r\n").as_bytes());
    assert!(opened.starts_with("HTTP/1.1 101 ") && !opened.contains("Date: "), "{opened}");
    // A request that stays incomplete, and one that comes amid a drain.
    let slow = app.begin_raw(b"GET / HTTP/1.1\r\n");
    app.advance(Duration::from_secs(60));
    let slow = String::from_utf8(slow.received_raw()).unwrap();
    assert!(slow.starts_with("HTTP/1.1 408 ") && slow.contains("\r\nDate: Sun, 06 Nov 1994 08:49:"), "{slow}");
}

#[test]
fn an_absolute_target_counts_for_the_check_of_the_origin() {
    let app = app();
    let status = |target: &str, origin: &str| {
        let head = format!(
            "GET {target} HTTP/1.1\r\nHost: evil.example\r\nOrigin: {origin}\r\nUpgrade: websocket\r\n\
             Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        heads(&app, head.as_bytes())[9..12].to_owned()
    };
    assert_eq!(status("/up", "http://evil.example"), "101");
    assert_eq!(status("http://a.example/up", "http://evil.example"), "403");
    assert_eq!(status("http://a.example/up", "http://a.example"), "101");
}
