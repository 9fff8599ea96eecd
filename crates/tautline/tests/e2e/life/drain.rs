//! Servers that drain, and start again.

use crate::common::frame::{self, TEXT, masked};
use crate::common::peer::UPGRADE;
use crate::common::server::{client_config, config};
use crate::common::{App, Over, Peer, both, eventually, serve, serve_at};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tautline::{Cause, CloseCode, Reply};

const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_drain_ends_connections_in_every_phase() {
    for (over, code) in [(Over::Plain, CloseCode::GOING_AWAY), (Over::Fused, CloseCode::SERVICE_RESTART)] {
        let app = App::default().on_message(|_, conn, _| conn.close(CloseCode::NORMAL, "first"));
        let server = serve(over, config(), app);
        let mut silent = server.attack();
        let mut hello = server.attack();
        if over.is_secure() {
            let bytes = hello.hello(&client_config());
            hello.send_wire(&bytes[..50]);
        }
        let mut between = server.secured();
        between.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(between.response().0.starts_with("HTTP/1.1 404 "));
        let mut request = server.secured();
        request.send(&UPGRADE.as_bytes()[..30]);
        let mut open = server.peer();
        let mut message = server.peer();
        message.send(&masked(TEXT, b"half of it")[..9]);
        let mut closing = server.peer();
        closing.send(&masked(TEXT, b"close"));
        assert_eq!(closing.close_frame(), (1000, "first".to_owned()));
        eventually("all are there", || server.counters().connections == 7);

        let begun = Instant::now();
        server.handle.drain(code, "back soon", LONG);
        // Connections without a request are ended without an answer.
        assert_eq!(silent.rest(), (Vec::new(), Ok(())));
        assert!(hello.rest().0.is_empty());
        assert_eq!(between.rest(), (Vec::new(), Ok(())));
        // New connections are refused.
        eventually("the server stops listening", || TcpStream::connect(server.tcp()).is_err());
        // A client that has begun a request gets an answer, and then the end.
        request.send(&UPGRADE.as_bytes()[30..]);
        let (head, _) = request.response();
        assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("Connection: close\r\n"), "{head}");
        request.end();
        for peer in [&mut open, &mut message] {
            assert_eq!(peer.close_frame(), (code.get(), "back soon".to_owned()));
        }
        // A connection that was closing already keeps its code.
        closing.send(&frame::close(1000, ""));
        closing.end();
        open.send(&frame::close(code.get(), ""));
        open.end();
        message.send(&[&masked(TEXT, b"half of it")[9..], &frame::close(code.get(), "")].concat());
        message.end();
        drop((silent, hello, between, request, open, message, closing));
        let events = server.events.clone();
        server.handle.join().unwrap();
        assert!(begun.elapsed() < LONG);
        for n in 0..3 {
            let closed = events.close(events.open(n).0);
            assert!(matches!(closed.cause, Cause::Local), "{closed:?}");
        }
    }
}

#[test]
fn connections_that_do_not_close_in_time_are_aborted() {
    both(|over| {
        let server = serve(over, config(), App::default());
        let mut stubborn = server.peer();
        let mut slow_head = server.secured();
        slow_head.send(b"GET / HT");
        eventually("both are there", || server.counters().handshaking == 1);
        let begun = Instant::now();
        server.handle.drain(CloseCode::GOING_AWAY, "", Duration::from_millis(150));
        assert_eq!(stubborn.close_frame(), (1001, String::new()));
        let events = server.events.clone();
        server.handle.join().unwrap();
        assert!((Duration::from_millis(140)..LONG).contains(&begun.elapsed()));
        let closed = events.close(events.open(0).0);
        assert!(matches!(closed.cause, Cause::Stopped), "{closed:?}");
        let _ = slow_head.rest();
    });
}

#[test]
fn a_drain_finishes_a_response() {
    let app = App::default().on_request(|_| Reply::Respond(http::Response::new(vec![b'x'; 16 << 20])));
    for over in [Over::Plain, Over::Fused] {
        let server = serve(over, config(), app.clone());
        let mut peer = server.secured();
        peer.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(peer.head().starts_with("HTTP/1.1 200 "));
        server.handle.drain(CloseCode::GOING_AWAY, "", LONG);
        eventually("the server stops listening", || TcpStream::connect(server.tcp()).is_err());
        assert_eq!(peer.bytes(16 << 20).len(), 16 << 20);
        peer.end();
        drop(peer);
        server.handle.join().unwrap();
    }
}

#[test]
fn a_server_restarts_at_once_at_its_address() {
    both(|over| {
        for shards in [1, 2] {
            let server = serve_at("127.0.0.1:0", over, shards, config(), App::default());
            let address = server.address.to_string();
            // The server closes first, so its side of these connections stays in TIME_WAIT.
            let mut peers: Vec<Peer> = (0..4).map(|_| server.peer()).collect();
            server.handle.drain(CloseCode::SERVICE_RESTART, "", LONG);
            for peer in &mut peers {
                assert_eq!(peer.close_frame().0, 1012);
                peer.send(&frame::close(1012, ""));
                peer.end();
            }
            drop(peers);
            server.handle.join().unwrap();
            let server = serve_at(&address, over, shards, config(), App::default());
            server.survives();
        }
    });
}

#[test]
fn commands_to_a_stopped_server_fail() {
    let server = serve(Over::Plain, config(), App::default());
    let conn = {
        let _peer = server.peer();
        server.events.open(0).0
    };
    server.forgets();
    let shard = server.handle.shards()[0].clone();
    server.handle.drain(CloseCode::GOING_AWAY, "", LONG);
    server.handle.drain(CloseCode::GOING_AWAY, "", LONG);
    server.handle.join().unwrap();
    let stopped = Err(tautline::ShardHandleError::Stopped);
    assert_eq!(shard.send(conn, tautline::Outgoing::text("late")), stopped);
    assert_eq!(shard.publish("topic", tautline::Outgoing::text("late")), stopped);
    assert_eq!(shard.close(conn, CloseCode::NORMAL, ""), stopped);
    assert!(!shard.is_running());
}
