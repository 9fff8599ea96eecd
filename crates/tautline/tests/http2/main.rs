//! HTTP/2 of a server: requests, and WebSockets on streams.
#![expect(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "all of this runs inside tests")]

mod access;
mod client;
#[path = "../common/mod.rs"]
mod common;
mod limits;
mod others;
mod slow;

use client::{Client, Plain, Raw};
use common::{eventually, logs};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tautline::http::{Response, StatusCode};
use tautline::{CloseCode, Config, Conn, Content, Handler, Message, Outgoing, Reply, Request, Server, ServerConfig};
use tautline::{HandOver, Listing, RetryAfter, ServerHandle, http2};
use tautline_testkit::certificate::{Authority, Leaf};

/// Bytes of a body that no socket holds at once.
const HUGE: u64 = 24 << 20;

/// Echoes messages and bodies.
struct Site;

impl Handler for Site {
    type State = ();

    fn on_request(&mut self, request: &Request<'_>) -> Reply {
        assert!(request.tls.version.is_some(), "a stream has the TLS of its connection");
        match request.http.uri().path() {
            "/chat" | "/paused" => Reply::upgrade(),
            "/stream" => Reply::Stream(Response::new(Content::new(std::io::Cursor::new(vec![7; 300_000])))),
            "/huge" => Reply::Stream(Response::new(Content::with_len(std::io::repeat(7), HUGE))),
            "/none" => Reply::status(StatusCode::NO_CONTENT),
            "/later" => request.later(|ticket| {
                ticket.respond(Response::new(b"later".to_vec())).unwrap();
            }),
            _ => Reply::Respond(Response::builder().header("x-own", "1").body(request.body.to_vec()).unwrap()),
        }
    }

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, opening: &tautline::Opening<'_>) {
        conn.subscribe("all");
        if opening.request.is_some_and(|request| request.uri().path() == "/paused") {
            conn.pause(true);
        }
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.send(Outgoing::from(&message));
    }
}

fn serve(config: Config) -> (ServerHandle, Authority) {
    serve_within(config, http2::Limits::default())
}

fn serve_within(config: Config, limits: http2::Limits) -> (ServerHandle, Authority) {
    let authority = Authority::new("Test CA").unwrap();
    let tls = ServerConfig::new([authority.issue(&Leaf::new(&["localhost"])).unwrap()]);
    let server = Server::new(tls).config(config).http2(limits);
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
fn a_listener_serves_both_versions() {
    let (handle, authority) = serve(Config::default());
    let address = &handle.addresses()[0];
    let (mut plain, mut client) = (Plain::new(address, &authority), Client::new(address, &authority));
    let socket = client.websocket("/chat");
    client.text(socket, "hello");
    assert_eq!(client.message(socket), b"hello");
    plain.echo();
    let counters = handle.shards()[0].counters();
    assert_eq!((counters.open, counters.carriers), (2, 1));
}

#[test]
fn connections_and_streams_are_counted_while_they_are_there() {
    let (handle, mut client) = started();
    let present = || {
        let counters = handle.shards()[0].counters();
        (counters.carrying, counters.carried)
    };
    let sockets: Vec<u32> = (0..3).map(|_| client.websocket("/chat")).collect();
    sockets.iter().for_each(|socket| assert_eq!(client.opened(*socket), 200));
    assert_eq!(present(), (1, 3));
    let listed = handle.shards()[0].connections(Listing::Heaviest(10), Duration::from_secs(20)).unwrap();
    let mut states: Vec<&str> = listed.iter().map(|one| one.state).collect();
    states.sort_unstable();
    assert_eq!(states, ["carrier", "open", "open", "open"]);
    client.reset(sockets[0]);
    eventually("a stream has ended", || present() == (1, 2));
    drop(client);
    eventually("all have ended", || present() == (0, 0));
    assert_eq!(handle.shards()[0].counters().connections, 0);
}

#[test]
fn a_request_for_no_websocket_gets_its_status() {
    let (_handle, mut client) = started();
    // The application answers with a page and status 200, as it does for HTTP/1.1. Here that would open the WebSocket.
    let stream = client.websocket("/elsewhere");
    assert_eq!(client.opened(stream), 501);
    // The stream is over, though the client has not ended its direction.
    assert_eq!(client.answer(stream).body, b"NO_ERROR");
    let foreign = client.connect("/chat", "connect-udp");
    assert_eq!(client.opened(foreign), 501);
}

#[test]
fn an_upgrade_drains_streams_with_1012_and_a_time_to_return() {
    let (old, mut client) = started();
    let socket = client.websocket("/chat");
    assert_eq!(client.opened(socket), 200);
    let (ours, theirs) = UnixStream::pair().unwrap();
    let giving = old.clone();
    let giver = std::thread::spawn(move || giving.hand_over(ours, &HandOver::default()));
    let authority = Authority::new("New CA").unwrap();
    let tls = ServerConfig::new([authority.issue(&Leaf::new(&["localhost"])).unwrap()]);
    let new = Server::new(tls).http2(http2::Limits::default()).take_over(theirs).start(|_| Site).unwrap();
    let handed = giver.join().unwrap().unwrap();
    assert_eq!((handed.moved, handed.staying.http2), (0, 2), "the connection and its stream: {}", handed.staying);
    let (code, reason) = client.closed(socket).unwrap();
    assert_eq!(code, 1012);
    let reason = String::from_utf8(reason).unwrap();
    assert!(RetryAfter::read(CloseCode::new(code), &reason).is_some(), "{reason}");
    client.close(socket);
    assert_eq!(client.go_away().1, http2::Code::NO_ERROR);
    old.join().unwrap();
    // The new process has the address, and speaks HTTP/2 too.
    let mut client = Client::new(&new.addresses()[0], &authority);
    let stream = client.get("/");
    assert_eq!(client.answer(stream).status, 200);
}

/// A body that no handler takes is memory of its stream, which the budget bounds, and holds up no other stream.
#[test]
fn the_window_of_a_paused_stream_counts_as_memory() {
    let (handle, mut client) = started();
    let (paused, other) = (client.websocket("/paused"), client.websocket("/chat"));
    assert_eq!((client.opened(paused), client.opened(other)), (200, 200));
    client.text(paused, &"x".repeat(1 << 20));
    client.text(other, "hello");
    assert_eq!(client.message(other), b"hello");
    let partial = handle.shards()[0].counters().memory_partial;
    assert!((60_000..200_000).contains(&partial), "{partial} bytes of a window of 128 KiB");
}

#[test]
fn a_fault_is_counted_and_ends_the_connection_with_its_code() {
    let (handle, mut client) = started();
    let socket = client.websocket("/chat");
    assert_eq!(client.opened(socket), 200);
    let (last, code) = client.go_away_for(&[0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff]);
    assert_eq!((last, code), (socket, http2::Code::FLOW_CONTROL_ERROR));
    let counters = handle.shards()[0].counters();
    assert_eq!((counters.carriers, counters.carriers_failed), (1, 1));
}

/// Each limit of a stream has a counter, and the log names the peer. The connection goes on.
#[test]
fn refused_streams_are_counted_by_limit_and_logged_with_their_peer() {
    logs::keep();
    let mut limits = http2::Limits::default();
    (limits.streams, limits.stream_window, limits.field_count) = (2, 1_000, 6);
    let (handle, authority) = serve_within(Config::default(), limits);
    let mut raw = Raw::new(&handle.addresses()[0], &authority);
    // `:method: POST` or `GET`, `:scheme: https`, `:path: /` and `:authority: localhost`.
    let (post, get) = (*b"\x83\x87\x84\x41\x09localhost", *b"\x82\x87\x84\x41\x09localhost");
    for stream in [1, 3, 5] {
        raw.frame(1, 4, stream, &post);
    }
    // It knows the window from now on.
    raw.frame(4, 1, 0, &[]);
    raw.frame(0, 0, 1, &[b'x'; 1_001]);
    raw.frame(1, 5, 7, &[&get[..], &b"\x00\x01a\x01b".repeat(3)].concat());
    raw.frame(1, 5, 9, &[&get[..], b"\x00\x01A\x01b"].concat());
    raw.ping();
    let counters = handle.shards()[0].counters();
    assert_eq!((counters.streams_refused, counters.stream_windows_exceeded), (1, 1));
    assert_eq!((counters.stream_heads_too_big, counters.streams_faulty), (1, 1));
    assert_eq!((counters.carriers, counters.carriers_failed), (1, 0));
    let peer = raw.address();
    for (stream, why) in [
        (5, "too many streams at once"),
        (1, "more DATA than the stream's window allows"),
        (7, "more header fields, or longer ones, than are taken"),
        (9, ""),
    ] {
        logs::expect(&[&peer, &format!("HTTP/2 refuses stream {stream}: {why}")]);
    }
    assert_eq!(logs::lines(&[&peer, "HTTP/2 refuses"]).len(), 4);
}

#[test]
fn certificates_of_a_reload_are_offered_with_http2() {
    let (handle, _) = serve(Config::default());
    let authority = Authority::new("New CA").unwrap();
    handle.reloader().reload(&ServerConfig::new([authority.issue(&Leaf::new(&["localhost"])).unwrap()])).unwrap();
    let mut client = Client::new(&handle.addresses()[0], &authority);
    let stream = client.get("/");
    assert_eq!(client.answer(stream).status, 200);
}
