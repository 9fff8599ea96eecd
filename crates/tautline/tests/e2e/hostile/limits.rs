//! Too many connections.

use crate::common::server::config;
use crate::common::{App, Over, PATIENCE, Peer, both, eventually, logs, serve};
use std::collections::VecDeque;
use std::net::TcpStream;
use std::time::{Duration, Instant};

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
