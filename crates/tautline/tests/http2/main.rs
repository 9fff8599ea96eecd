//! HTTP/2 of a server: requests, and WebSockets on streams.
#![expect(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "all of this runs inside tests")]

mod client;

use client::Client;
use std::time::Duration;
use tautline::http::{Response, StatusCode};
use tautline::{CloseCode, Config, Conn, Content, Handler, Message, Outgoing, Reply, Request, Server, ServerConfig};
use tautline::{ServerHandle, http2};
use tautline_testkit::certificate::{Authority, Leaf};

/// Echoes messages and bodies.
struct Site;

impl Handler for Site {
    type State = ();

    fn on_request(&mut self, request: &Request<'_>) -> Reply {
        assert!(request.tls.version.is_some(), "a stream has the TLS of its connection");
        match request.http.uri().path() {
            "/chat" => Reply::upgrade(),
            "/stream" => Reply::Stream(Response::new(Content::new(std::io::Cursor::new(vec![7; 300_000])))),
            "/none" => Reply::status(StatusCode::NO_CONTENT),
            "/later" => request.later(|ticket| {
                ticket.respond(Response::new(b"later".to_vec())).unwrap();
            }),
            _ => Reply::Respond(Response::builder().header("x-own", "1").body(request.body.to_vec()).unwrap()),
        }
    }

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _: &tautline::Opening<'_>) {
        conn.subscribe("all");
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.send(Outgoing::from(&message));
    }
}

fn serve(config: Config) -> (ServerHandle, Authority) {
    let authority = Authority::new("Test CA").unwrap();
    let tls = ServerConfig::new([authority.issue(&Leaf::new(&["localhost"])).unwrap()]);
    let server = Server::new(tls).config(config).http2(http2::Limits::default());
    let handle = server.listen("127.0.0.1:0".parse().unwrap()).start(|_| Site).unwrap();
    (handle, authority)
}

fn started() -> (ServerHandle, Client) {
    let (handle, authority) = serve(Config::default());
    let client = Client::new(&handle.addresses()[0], &authority);
    (handle, client)
}

#[test]
fn requests_share_a_connection() {
    let (handle, mut client) = started();
    let streams: Vec<u32> = (0..20).map(|number| client.get(&format!("/{number}"))).collect();
    for stream in streams {
        let answer = client.answer(stream);
        assert_eq!((answer.status, answer.headers["x-own"].as_bytes(), answer.body.len()), (200, &b"1"[..], 0));
        assert!(!answer.headers.contains_key("connection"));
    }
    let post = client.post("/echo", b"a body");
    assert_eq!(client.answer(post).body, b"a body");
    let large: Vec<u8> = (0..60_000_u32).map(|number| number.to_be_bytes()[3]).collect();
    let post = client.post("/echo", &large);
    assert_eq!(client.answer(post).body, large);
    assert_eq!(handle.shards()[0].counters().accepted, 1 + 22);
}

#[test]
fn answers_have_any_form() {
    let (_handle, mut client) = started();
    let stream = client.get("/stream");
    let answer = client.answer(stream);
    assert_eq!((answer.status, answer.body), (200, vec![7; 300_000]));
    let (none, later, head) = (client.get("/none"), client.get("/later"), client.head("/stream"));
    assert_eq!(client.answer(none).status, 204);
    assert_eq!(client.answer(later).body, b"later");
    let answer = client.answer(head);
    assert_eq!((answer.status, answer.body.len()), (200, 0));
}

#[test]
fn websockets_are_streams() {
    let (handle, mut client) = started();
    let sockets: Vec<u32> = (0..10).map(|_| client.websocket("/chat")).collect();
    for socket in &sockets {
        assert_eq!(client.opened(*socket), 200);
    }
    for (number, socket) in sockets.iter().enumerate() {
        client.text(*socket, &format!("hello {number}"));
    }
    for (number, socket) in sockets.iter().enumerate() {
        assert_eq!(client.message(*socket), format!("hello {number}").as_bytes());
    }
    let large = "x".repeat(1 << 20);
    client.text(sockets[3], &large);
    assert_eq!(client.message(sockets[3]).len(), large.len());
    handle.publish("all", Outgoing::text("to all")).unwrap();
    for socket in &sockets {
        assert_eq!(client.message(*socket), b"to all");
    }
    client.close(sockets[0]);
    assert_eq!(client.close_code(sockets[0]), Some(1000));
    client.text(sockets[1], "still");
    assert_eq!(client.message(sockets[1]), b"still");
    assert_eq!(handle.shards()[0].counters().open, 9);
    handle.drain(CloseCode::SERVICE_RESTART, "", Duration::from_secs(20));
    assert_eq!(client.close_code(sockets[1]), Some(1012));
}

#[test]
fn a_request_for_no_websocket_gets_its_status() {
    let (_handle, mut client) = started();
    let stream = client.websocket("/elsewhere");
    assert_eq!(client.opened(stream), 200);
    assert_eq!(client.answer(stream).headers["x-own"], "1", "the application answered as it does for HTTP/1.1");
    let foreign = client.connect("/chat", "connect-udp");
    assert_eq!(client.opened(foreign), 501);
}
