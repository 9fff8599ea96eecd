//! Too many connections, and applications that panic.

use crate::common::server::config;
use crate::common::{App, Over, PATIENCE, Peer, both, eventually, logs, serve, serve_at};
use std::collections::VecDeque;
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tautline::{CloseCode, Error};

#[test]
fn connections_above_the_limit_wait() {
    both(|over| {
        let mut config = config();
        config.limits.max_connections = 3;
        let server = serve(over, config, App::default());
        let mut inside: Vec<Peer> = (0..3).map(|_| server.peer()).collect();
        eventually("they are open", || server.counters().open == 3);
        // The kernel accepts this connection, but the server does not.
        let waiting = server.attack();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(server.counters().connections, 3);
        logs::expect(&["accepting pauses: 3 connections"]);
        inside.iter_mut().for_each(|peer| peer.echoes("undisturbed"));
        drop(inside.pop());
        let mut waiting = if over.is_secure() { waiting.secure() } else { waiting }.upgrade();
        waiting.echoes("my turn");
        drop((inside, waiting));
        server.survives();
    });
}

#[test]
fn changes_at_the_limit_do_not_fill_the_log() {
    let mut config = config();
    config.limits.max_connections = 7;
    let server = serve(Over::Plain, config, App::default());
    let mut inside: VecDeque<Peer> = (0..7).map(|_| server.attack()).collect();
    for turn in 0..10 {
        eventually("one more is accepted", || server.counters().accepted == 7 + turn);
        inside.push_back(server.attack());
        inside.pop_front();
    }
    assert_eq!(logs::lines(&["accepting pauses: 7 connections"]).len(), 1);
    drop(inside);
    server.survives();
}

#[test]
fn silent_clients_do_not_lock_others_out_for_long() {
    let mut config = config();
    config.limits.max_handshakes = 4;
    // Long enough for the handshakes of the other clients.
    config.deadlines.handshake = Duration::from_secs(1);
    let server = serve(Over::Fused, config, App::default());
    let mut inside = server.peer();
    let begun = Instant::now();
    let silent: Vec<TcpStream> = (0..12).map(|_| TcpStream::connect(server.tcp()).unwrap()).collect();
    inside.echoes("undisturbed");
    // This client waits behind twelve silent ones, of which four are accepted at a time.
    server.serves();
    assert!((Duration::from_millis(2_900)..PATIENCE).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    assert_eq!(server.counters().handshakes_failed, 12);
    drop((silent, inside));
    server.survives();
}

#[test]
fn a_panic_in_an_application_ends_its_loop_and_is_reported() {
    let app = App::default().on_message(|_, _, message| panic!("no {:?} here", message.text().unwrap()));
    let server = serve(Over::Plain, config(), app);
    let mut socket = server.socket();
    socket.text("good").unwrap();
    assert!(matches!(socket.receive(), Err(Error::Closed(_))));
    let error = server.handle.join().unwrap_err().to_string();
    assert!(error.contains("no \"good\" here"), "{error}");
}

#[test]
fn a_loop_that_panics_does_not_end_others() {
    let app = App::default().on_message(|_, conn, message| {
        assert_ne!(message.text(), Some("panic"));
        conn.text("fine");
    });
    let server = serve_at("127.0.0.1:0", Over::Plain, 2, config(), app);
    let mut peers = Vec::new();
    let shard_of = |n: usize| server.events.open(n).0.shard();
    while !(0..peers.len()).any(|n| shard_of(n) == 0) || !(0..peers.len()).any(|n| shard_of(n) == 1) {
        peers.push(server.peer());
    }
    let on = |shard: u32| (0..peers.len()).find(|n| shard_of(*n) == shard).unwrap();
    let (victim, other) = (on(0), on(1));
    peers[victim].send(&crate::common::frame::masked(crate::common::frame::TEXT, b"panic"));
    assert!(peers[victim].try_frame().is_err());
    peers[other].send(&crate::common::frame::masked(crate::common::frame::TEXT, b"hello"));
    assert_eq!(peers[other].frame().text(), "fine");
    server.handle.drain(CloseCode::GOING_AWAY, "", Duration::from_millis(50));
    assert!(matches!(server.handle.join(), Err(Error::Loop(_))));
}
