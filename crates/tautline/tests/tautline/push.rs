//! Responses whose pieces the application sends.

use std::time::Duration;
use tautline::http::{Request as Head, Version};
use tautline::testing::{App, Fetch};
use tautline::{
    CloseCode, Closed, Config, Conn, Delivery, Handler, Kind, Message, Opening, Outgoing, PieceWriter, Push, Reply,
    Request, SlowConsumer,
};

/// Lines, with a mark for each idle time and the code of the end.
struct Lines;

impl PieceWriter for Lines {
    fn message(&mut self, _: Kind, payload: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(payload);
        out.push(b'\n');
    }

    fn keepalive(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b".\n");
    }

    fn close(&mut self, code: CloseCode, reason: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{} {reason}\n", code.get()).as_bytes());
    }
}

#[derive(Default)]
struct Site {
    opened: usize,
    closed: Vec<String>,
    drained: usize,
    queued: usize,
}

impl Handler for Site {
    type State = u32;

    fn on_request(&mut self, request: &Request<'_>) -> Reply<u32> {
        if request.is_upgrade {
            return Reply::upgrade();
        }
        let push = Push::new(Lines).with_type("text/x-lines").with_state(7);
        match request.http.uri().path() {
            "/later" => request.later(|ticket| ticket.push(push).unwrap()),
            "/bytes" => Push::bytes().into(),
            _ => push.into(),
        }
    }

    fn on_open(&mut self, conn: &mut Conn<'_, u32>, opening: &Opening<'_>) {
        let path = opening.request.unwrap().uri().path();
        assert_eq!(conn.is_push(), path != "/up");
        self.opened += 1;
        conn.subscribe("news");
        if path == "/" || path == "/later" {
            let state = *conn.state();
            conn.text(&format!("state {state}"));
        }
        if path == "/large" {
            // Far more than a pipe of this harness or a socket takes.
            let large = "x".repeat(10_000);
            let most = Outgoing::text(&large).with_policy(SlowConsumer::Disconnect(64 << 20));
            for _ in 0..1_000 {
                self.queued += usize::from(matches!(conn.send(most), Delivery::Queued(_)));
            }
        }
    }

    fn on_message(&mut self, conn: &mut Conn<'_, u32>, message: Message<'_>) {
        conn.publish("news", Outgoing::text(message.text().unwrap()));
    }

    fn on_drain(&mut self, _: &mut Conn<'_, u32>) {
        self.drained += 1;
    }

    fn on_close(&mut self, _: &mut Conn<'_, u32>, closed: &Closed) {
        self.closed.push(format!("{:?}", closed.cause));
    }
}

fn app() -> App<Site> {
    App::new(Site::default()).unwrap()
}

fn open(app: &App<Site>, path: &str) -> Fetch {
    app.begin_raw(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
}

/// All that has come.
fn text(fetch: &Fetch) -> String {
    String::from_utf8(fetch.received_raw()).unwrap()
}

#[test]
fn messages_are_pieces_of_one_response_until_the_application_closes_it() {
    for path in ["/", "/later"] {
        let app = app();
        let fetch = open(&app, path);
        let head = text(&fetch);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        for line in ["content-type: text/x-lines\r\n", "transfer-encoding: chunked\r\n", "connection: close\r\n"] {
            assert!(head.to_lowercase().contains(line), "{head}");
        }
        assert!(head.ends_with("\r\n\r\n8\r\nstate 7\n\r\n"), "{head}");
        // From a topic, and from a connection with a WebSocket.
        app.publish("news", Outgoing::text("one"));
        let client = app.connect("/up");
        client.text("two");
        assert!(text(&fetch).ends_with("4\r\none\n\r\n4\r\ntwo\n\r\n"));
        client.disconnect();
        app.drain(CloseCode::GOING_AWAY, "bye", Duration::from_secs(5));
        assert!(text(&fetch).ends_with("two\n\r\n9\r\n1001 bye\n\r\n0\r\n\r\n"));
        assert!(fetch.is_over());
    }
}

#[test]
fn a_response_outlives_the_deadlines_of_requests_and_idle_connections() {
    let app = app();
    let fetch = open(&app, "/");
    for _ in 0..60 {
        app.advance(Duration::from_secs(10));
    }
    let marks = text(&fetch).matches("2\r\n.\n\r\n").count();
    assert!((18..=20).contains(&marks), "{marks} in ten minutes");
    app.publish("news", Outgoing::text("late"));
    assert!(text(&fetch).ends_with("5\r\nlate\n\r\n"));
}

#[test]
fn a_client_that_leaves_is_reported_once() {
    let app = app();
    let fetch = open(&app, "/");
    // It has nothing to say. Bytes of it are passed over.
    fetch.send_raw(b"GET /again HTTP/1.1\r\nHost: localhost\r\n\r\n");
    app.run();
    assert_eq!(app.with_handler(|site| (site.opened, site.closed.len())), (1, 0));
    fetch.disconnect();
    app.advance(Duration::from_secs(60));
    assert_eq!(app.with_handler(|site| (site.opened, site.closed.len())), (1, 1));
}

#[test]
fn a_slow_reader_is_told_of_and_has_everything_in_the_end() {
    let app = app();
    let fetch = open(&app, "/large");
    app.run();
    let (queued, drained) = app.with_handler(|site| (site.queued, site.drained));
    assert!(queued > 0 && drained > 0, "{queued} {drained}");
    let all = fetch.received_raw();
    let begin = all.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    assert_eq!(all[begin..].iter().filter(|byte| **byte == b'x').count(), 10_000_000);
    assert_eq!(app.with_handler(|site| site.closed.len()), 0);
}

#[test]
fn a_reader_that_is_too_slow_gets_a_response_that_is_not_whole() {
    let mut config = Config::default();
    config.slow_consumer = SlowConsumer::Disconnect(100_000);
    let app = App::with_config(config, Site::default()).unwrap();
    let fetch = open(&app, "/");
    fetch.read(false);
    let large = "y".repeat(50_000);
    for _ in 0..200 {
        app.publish("news", Outgoing::text(&large));
    }
    app.run();
    assert_eq!(app.with_handler(|site| site.closed.clone()), ["the peer does not read what is sent to it"]);
    fetch.read(true);
    app.run();
    let all = text(&fetch);
    assert!(!all.ends_with("0\r\n\r\n"), "its client notices");
}

#[test]
fn old_clients_get_no_chunks_and_head_gets_no_body() {
    let app = app();
    let fetch = app.begin_raw(b"GET /bytes HTTP/1.0\r\nHost: localhost\r\n\r\n");
    let head = text(&fetch).to_lowercase();
    assert!(head.ends_with("\r\n\r\n") && !head.contains("chunked"), "{head}");
    app.publish("news", Outgoing::text("as it is"));
    assert!(text(&fetch).ends_with("\r\n\r\nas it is"));
    let request = Head::head("/").version(Version::HTTP_11).body(Vec::new()).unwrap();
    let response = app.fetch(&request);
    assert_eq!((response.status().as_u16(), response.body().len()), (200, 0));
    assert_eq!(app.with_handler(|site| site.opened), 1);
}
