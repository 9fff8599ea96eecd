//! Too many connections.

use crate::common::server::config;
use crate::common::{App, Over, Peer, both, eventually, logs, serve};
use std::collections::VecDeque;
use std::time::Duration;

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
        logs::expect(&["accepting pauses: 3 connections", "(limits.max_connections: 3)"]);
        assert_eq!(server.counters().accept_pauses, 1);
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
    let mut inside: VecDeque<Peer> = (0..7).map(|_| server.peer()).collect();
    for turn in 0..10 {
        eventually("one more is accepted", || server.counters().opened == 7 + turn);
        let waiting = server.attack();
        inside.pop_front();
        inside.push_back(waiting.upgrade());
    }
    assert_eq!(logs::lines(&["accepting pauses: 7 connections"]).len(), 1);
    drop(inside);
    server.survives();
}
