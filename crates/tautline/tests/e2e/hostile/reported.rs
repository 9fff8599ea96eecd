//! Each limit has a counter and a log line that names the limit and the peer, and tells the peer what it did.

use crate::common::frame::{TEXT, close, masked};
use crate::common::server::config;
use crate::common::{App, Over, Peer, Started, eventually, logs, serve};
use std::time::Duration;
use tautline::{CloseCode, Config, Counters, Outgoing, SlowConsumer};

const SHORT: Duration = Duration::from_millis(200);

fn with(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = config();
    change(&mut config);
    config
}

/// Waits until the counter is 1, and for a log line with the peer and the limit.
fn reported(server: &Started, peer: &Peer, limit: &str, counter: impl Fn(&Counters) -> u64) {
    eventually(limit, || counter(&server.counters()) == 1);
    logs::expect(&[&format!("INFO {}: ", peer.name()), &format!("({limit})")]);
}

#[test]
fn max_message() {
    let server = serve(Over::Plain, with(|config| config.limits.max_message = 10), App::default());
    let mut peer = server.peer();
    peer.send(&masked(TEXT, b"hello world"));
    assert_eq!(peer.close_frame().0, 1009);
    reported(&server, &peer, "limits.max_message", |counters| counters.messages_too_big);
    drop(peer);
    server.survives();
}

#[test]
fn head() {
    let server = serve(Over::Plain, config(), App::default());
    let mut peer = server.attack();
    peer.send(format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(100_000)).as_bytes());
    assert!(peer.head().starts_with("HTTP/1.1 431 "));
    reported(&server, &peer, "limits.head", |counters| counters.heads_too_big);
    drop(peer);
    server.survives();
}

#[test]
fn max_subscriptions() {
    let app = App::default().on_open(|_, conn| {
        assert!(conn.subscribe("a") && !conn.subscribe("b") && conn.subscribe("a"));
    });
    let server = serve(Over::Plain, with(|config| config.limits.max_subscriptions = 1), app);
    let peer = server.peer();
    reported(&server, &peer, "limits.max_subscriptions", |counters| counters.subscriptions_refused);
    drop(peer);
    eventually("no connection", || server.counters().connections == 0);
    server.stop();
}

#[test]
fn pause_receive_above() {
    let mut config = with(|config| config.limits.pause_receive_above = 1 << 10);
    config.slow_consumer = SlowConsumer::Disconnect(64 << 20);
    let server = serve(Over::Plain, config, App::default());
    let mut peer = server.peer();
    peer.socket.set_nonblocking(true).unwrap();
    let message = masked(TEXT, &[b'x'; 60_000]);
    eventually("reading pauses", || {
        let _ = peer.try_send_wire(&message);
        server.counters().receive_pauses > 0
    });
    peer.reset();
    eventually("no connection", || server.counters().connections == 0);
    server.stop();
}

#[test]
fn slow_consumer() {
    let config = with(|config| config.slow_consumer = SlowConsumer::Disconnect(1 << 20));
    let app = App::default().on_message(|_, conn, _| {
        for _ in 0..400 {
            conn.send(Outgoing::binary(&[5; 64 << 10]));
        }
    });
    let server = serve(Over::Plain, config, app);
    let mut peer = server.peer();
    peer.send(&masked(TEXT, b"feed"));
    reported(&server, &peer, "slow_consumer", |counters| counters.slow_consumers);
    assert_eq!(peer.close_frame(), (1008, "too slow a reader".to_owned()));
    drop(peer);
    server.forgets();
    server.stop();
}

#[test]
fn handshake_deadline() {
    let server = serve(Over::Plain, with(|config| config.deadlines.handshake = SHORT), App::default());
    let mut peer = server.attack();
    peer.send(b"GET / HTTP/1.1\r\n");
    assert!(peer.head().starts_with("HTTP/1.1 408 "));
    reported(&server, &peer, "deadlines.handshake", |counters| counters.missed_handshake);
    drop(peer);
    server.forgets();
    server.stop();
}

#[test]
fn http_deadline() {
    let server = serve(Over::Plain, with(|config| config.deadlines.http = SHORT), App::default());
    let mut peer = server.attack();
    peer.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET");
    assert!(peer.head().starts_with("HTTP/1.1 404 "));
    reported(&server, &peer, "deadlines.http", |counters| counters.missed_handshake);
    drop(peer);
    server.survives();
}

#[test]
fn idle_deadline() {
    let config = with(|config| (config.deadlines.idle, config.deadlines.ping) = (Some(SHORT), None));
    let server = serve(Over::Plain, config, App::default());
    let mut peer = server.peer();
    assert_eq!(peer.close_frame(), (1001, "idle for too long".to_owned()));
    reported(&server, &peer, "deadlines.idle", |counters| counters.missed_idle);
    drop(peer);
    server.forgets();
    server.stop();
}

#[test]
fn close_deadline() {
    let app = App::default().on_message(|_, conn, _| conn.close(CloseCode::NORMAL, ""));
    let server = serve(Over::Plain, with(|config| config.deadlines.close = SHORT), app);
    let mut peer = server.peer();
    peer.send(&masked(TEXT, b"close"));
    assert_eq!(peer.close_frame().0, 1000);
    reported(&server, &peer, "deadlines.close", |counters| counters.missed_close);
    // Its own close frame comes too late.
    let _ = peer.try_send_wire(&close(1000, ""));
    drop(peer);
    server.forgets();
    server.stop();
}

#[test]
fn send_deadline() {
    let mut config = with(|config| config.deadlines.send = SHORT);
    config.slow_consumer = SlowConsumer::DropNewest(1 << 20);
    let app = App::default().on_message(|_, conn, _| {
        for _ in 0..400 {
            conn.send(Outgoing::binary(&[5; 64 << 10]));
        }
    });
    let server = serve(Over::Plain, config, app);
    let mut peer = server.peer();
    peer.send(&masked(TEXT, b"feed"));
    reported(&server, &peer, "deadlines.send", |counters| counters.missed_send);
    assert!(peer.rest().1.is_err(), "reset");
    drop(peer);
    server.forgets();
    server.stop();
}
