//! Deadlines: silent peers, and peers that do not read.

use crate::common::frame::{PING, PONG, TEXT, masked};
use crate::common::server::config;
use crate::common::{App, Event, Over, both, logs, serve};
use std::time::{Duration, Instant};
use tautline::{Cause, CloseCode, Config, Deadline, Delivery, SlowConsumer};

fn with_idle(ping: Option<u64>, idle: Option<u64>) -> Config {
    let mut config = config();
    config.deadlines.ping = ping.map(Duration::from_millis);
    config.deadlines.idle = idle.map(Duration::from_millis);
    config
}

#[test]
fn pongs_keep_an_idle_connection_open() {
    both(|over| {
        let server = serve(over, with_idle(Some(100), Some(2000)), App::default());
        let mut peer = server.peer();
        let begun = Instant::now();
        // Longer than the idle deadline, so only the pongs keep the connection open.
        while begun.elapsed() < Duration::from_millis(2400) {
            let ping = peer.frame();
            assert_eq!((ping.first, &*ping.payload), (PING, &b""[..]));
            peer.send(&masked(PONG, b""));
        }
        peer.echoes("alive");
        peer.close();
        assert!(server.events.all().iter().any(|event| matches!(event, Event::Pong(payload) if payload.is_empty())));
        server.survives();
    });
}

#[test]
fn a_silent_peer_is_pinged_once_and_closed() {
    both(|over| {
        let server = serve(over, with_idle(Some(60), Some(200)), App::default());
        let mut peer = server.peer();
        let name = peer.name();
        assert_eq!(peer.frame().first, PING);
        assert_eq!(peer.close_frame(), (1001, "idle for too long".to_owned()));
        peer.end();
        drop(peer);
        let closed = server.events.close(server.events.open(0).0);
        assert!(matches!(closed.cause, Cause::Timeout(Deadline::Idle)), "{closed:?}");
        assert_eq!(closed.code, CloseCode::ABNORMAL);
        logs::expect(&[&name, "idle deadline"]);
        server.survives();
    });
}

#[test]
fn without_an_idle_deadline_connections_stay_open() {
    let server = serve(Over::Plain, with_idle(None, None), App::default());
    let mut peer = server.peer();
    std::thread::sleep(Duration::from_millis(200));
    peer.echoes("still here");
    peer.close();
    server.survives();
}

#[test]
fn both_ends_keep_each_other_alive() {
    let server = serve(Over::Fused, with_idle(Some(100), Some(2000)), App::default());
    let mut socket = server.socket();
    // The client answers pings only while it waits.
    assert_eq!(socket.receive_timeout(Duration::from_millis(2400)).unwrap(), None);
    socket.text("alive").unwrap();
    assert!(socket.receive().is_ok());
    socket.close(CloseCode::NORMAL, "").unwrap();
    server.survives();
}

/// An application that sends without end once it gets a message.
fn feed(send_ms: u64) -> (App, Config) {
    let mut config = with_idle(None, None);
    config.slow_consumer = SlowConsumer::DropNewest(1 << 20);
    config.deadlines.send = Duration::from_millis(send_ms);
    let send = |conn: &mut tautline::Conn<'_, u64>| while conn.binary(&[5; 100_000]) != Delivery::Dropped {};
    let app = App::default().on_message(move |_, conn, _| send(conn)).on_drain(move |_, conn| send(conn));
    (app, config)
}

#[test]
fn a_peer_that_takes_nothing_is_disconnected() {
    both(|over| {
        let (app, config) = feed(200);
        let server = serve(over, config, app);
        let mut peer = server.peer();
        let name = peer.name();
        peer.send(&masked(TEXT, b"go"));
        let closed = server.events.close(server.events.open(0).0);
        assert!(matches!(closed.cause, Cause::Timeout(Deadline::Send)), "{closed:?}");
        logs::expect(&[&name, "send deadline"]);
        // No close frame can be sent, so the connection is reset.
        assert!(peer.rest().1.is_err());
        drop(peer);
        server.forgets();
        server.stop();
    });
}

#[test]
fn a_slow_peer_that_reads_something_is_not_disconnected() {
    let (app, config) = feed(2000);
    let server = serve(Over::Plain, config, app);
    let mut peer = server.peer();
    peer.send(&masked(TEXT, b"go"));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2500) {
        assert_eq!(peer.bytes(500_000).len(), 500_000);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(server.events.closes(server.events.open(0).0), 0);
    drop(peer);
    server.stop();
}

#[test]
fn a_slow_reader_of_one_huge_message_is_not_disconnected() {
    let mut config = with_idle(None, None);
    config.deadlines.send = Duration::from_millis(2000);
    let app = App::default().on_message(|_, conn, _| {
        conn.binary(&vec![5; 48 << 20]);
    });
    let server = serve(Over::Plain, config, app);
    let mut peer = server.peer();
    peer.send(&masked(TEXT, b"go"));
    // In total longer than the deadline, but each pause is short.
    for _ in 0..48 {
        assert_eq!(peer.bytes(1 << 20).len(), 1 << 20);
        std::thread::sleep(Duration::from_millis(45));
    }
    peer.bytes(10);
    peer.close();
    server.forgets();
    server.stop();
}

#[test]
fn a_paused_peer_is_not_idle() {
    let app = App::default().on_message(|events, conn, message| {
        events.note(message.text().unwrap());
        conn.pause(true);
    });
    let server = serve(Over::Plain, with_idle(Some(200), Some(1000)), app);
    let mut peer = server.peer();
    peer.send(&[masked(TEXT, b"one"), masked(TEXT, b"two")].concat());
    assert_eq!(server.events.noted(0), "one");
    std::thread::sleep(Duration::from_millis(1500));
    let conn = server.events.open(0).0;
    assert_eq!(server.events.closes(conn), 0);
    assert!(!server.events.all().iter().any(|event| matches!(event, Event::Note(note) if note == "two")));
    server.handle.shards()[0].close(conn, CloseCode::NORMAL, "").unwrap();
    assert_eq!(peer.close_frame().0, 1000);
    drop(peer);
    server.forgets();
    server.stop();
}
