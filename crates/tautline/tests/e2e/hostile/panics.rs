//! Applications that panic.

use crate::common::server::config;
use crate::common::{App, Over, Started, both, eventually, frame, logs, serve, serve_at};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline::{Cause, CloseCode, Error, OnPanic, Reply};

/// Panics at the text "panic" in `on_message`, and echoes all else.
fn fragile() -> App {
    App::default().on_message(|_, conn, message| {
        assert_ne!(message.text(), Some("panic"), "no panic here");
        conn.send((&message).into());
    })
}

/// Asserts that a server goes on after panics of its application.
fn goes_on(server: Started, panics: u64) {
    assert_eq!(server.counters().panics, panics);
    assert!(server.handle.is_running());
    server.survives();
}

#[test]
fn a_panic_closes_its_own_connection_with_1011() {
    both(|over| {
        let server = serve(over, config(), fragile());
        let mut other = server.peer();
        other.echoes("before");
        let mut peer = server.peer();
        let conn = server.events.open(1).0;
        // In one segment: the first is answered, the last is not delivered.
        let texts = ["good", "panic", "late"].map(|text| frame::masked(frame::TEXT, text.as_bytes()));
        peer.send(&texts.concat());
        assert_eq!(peer.frame().text(), "good");
        assert_eq!(peer.close_frame(), (1011, String::new()));
        peer.end();
        assert!(matches!(server.events.close(conn).cause, Cause::Panicked));
        logs::expect(&[&format!("{}: connection {conn}: ", peer.name()), "no panic here", "the loop goes on"]);
        other.echoes("after");
        drop((other, peer));
        goes_on(server, 1);
    });
}

#[test]
fn a_panic_in_any_callback_ends_one_connection() {
    let app = App::default()
        .on_request(|request| match request.http.uri().path() {
            "/panic" => panic!("in on_request"),
            _ => Reply::upgrade(),
        })
        .on_open(|events, _| assert_ne!(events.all().len(), 1, "in on_open"))
        .on_message(|_, _, message| std::panic::panic_any(message.data().len()));
    let server = serve(Over::Fused, config(), app);
    let mut plain = server.secured();
    plain.send(b"GET /panic HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(plain.head().starts_with("HTTP/1.1 500 "));
    // The first opening panics: its event is recorded before.
    let mut opened = server.peer();
    assert_eq!(opened.close_frame().0, 1011);
    let mut third = server.peer();
    third.send(&frame::masked(frame::TEXT, b"a payload without a text"));
    assert_eq!(third.close_frame().0, 1011);
    drop((plain, opened, third));
    server.forgets();
    assert_eq!(server.counters().panics, 3);
    assert!(server.handle.is_running());
    server.stop();
}

#[test]
fn a_thousand_panics_leave_nothing_behind() {
    let server = serve(Over::Plain, config(), fragile());
    let mut calm = server.peer();
    for _ in 0..1_000 {
        let mut peer = server.peer();
        peer.send(&frame::masked(frame::TEXT, b"panic"));
        assert_eq!(peer.close_frame().0, 1011);
    }
    calm.echoes("undisturbed");
    drop(calm);
    goes_on(server, 1_000);
}

#[test]
fn a_panic_ends_its_loop_if_the_policy_says_so() {
    let mut config = config();
    config.on_panic = OnPanic::EndLoop;
    let server = serve_at("127.0.0.1:0", Over::Plain, 2, config, fragile());
    let mut peers = Vec::new();
    let shard_of = |n: usize| server.events.open(n).0.shard();
    while !(0..peers.len()).any(|n| shard_of(n) == 0) || !(0..peers.len()).any(|n| shard_of(n) == 1) {
        peers.push(server.peer());
    }
    let on = |shard: u32| (0..peers.len()).find(|n| shard_of(*n) == shard).unwrap();
    let (victim, other) = (on(1), on(0));
    assert!(server.handle.is_running());
    peers[victim].send(&frame::masked(frame::TEXT, b"panic"));
    // Known at once, while loop 0 goes on.
    let failure = server.handle.wait_for_end().unwrap();
    assert!(failure.contains("no panic here"), "{failure}");
    assert!(!server.handle.is_running() && !server.handle.shards()[1].is_running());
    logs::expect(&["loop 1 has ended", "no panic here"]);
    assert!(peers[victim].try_frame().is_err());
    peers[other].echoes("undisturbed");
    server.handle.drain(CloseCode::GOING_AWAY, "", Duration::from_millis(50));
    assert!(matches!(server.handle.join(), Err(Error::Loop(_))));
}

#[test]
fn a_drained_loop_is_no_failure() {
    let server = serve(Over::Plain, config(), App::default());
    server.handle.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
    assert_eq!(server.handle.wait_for_end(), None);
    eventually("it is not ready", || !server.handle.is_running());
    server.handle.join().unwrap();
}

#[test]
fn a_handler_reads_the_counters_of_every_loop_without_waiting() {
    let shards = Arc::new(std::sync::OnceLock::<Vec<tautline::ShardHandle>>::new());
    let known = shards.clone();
    let app = App::default().on_message(move |_, conn, message| {
        if message.text() != Some("?") {
            conn.send((&message).into());
            return;
        }
        let mut sum = tautline::Counters::default();
        for shard in known.get().unwrap() {
            sum.merge(&shard.counters());
            // A question that needs an answer is refused instead of waited for.
            assert_eq!(shard.stages().err(), Some(tautline::ShardHandleError::InHandler));
        }
        conn.text(&sum.messages_in.to_string());
    });
    let server = serve_at("127.0.0.1:0", Over::Plain, 2, config(), app);
    shards.set(server.handle.shards().to_vec()).unwrap();
    let mut peers: Vec<_> = (0..8).map(|_| server.peer()).collect();
    let begun = Instant::now();
    for (n, peer) in (1..).zip(&mut peers) {
        peer.send(&frame::masked(frame::TEXT, b"?"));
        assert_eq!(peer.frame().text(), format!("{n}"));
    }
    assert!(begun.elapsed() < Duration::from_secs(5));
    drop(peers);
    server.survives();
}
