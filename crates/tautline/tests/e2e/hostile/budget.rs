//! The budget of memory: peers that hold too much of it are closed, and others are served on.

use crate::common::frame::{BINARY, TEXT, header, masked};
use crate::common::server::config;
use crate::common::{App, Over, Peer, Started, both, eventually, logs, serve, serve_at};
use std::net::TcpStream;
use std::time::Duration;
use tautline::{
    Cause, Client, ClientConfig, CloseCode, Config, Counters, DeflateConfig, MemoryBudget, Outgoing, SlowConsumer,
};

const MIB: usize = 1 << 20;

fn with_budget(bytes: usize) -> Config {
    let mut config = config();
    config.limits.memory = bytes;
    config.limits.max_message = 64 * MIB;
    config.deadlines.idle = None;
    config.deadlines.send = Duration::from_secs(60);
    config
}

/// Sends the beginning of a message of 64 MiB, with so many bytes of it.
fn send_part(peer: &mut Peer, len: usize) {
    peer.send(&[header(BINARY, 0x80, 64 * MIB as u64), vec![7; 4 + len]].concat());
}

#[test]
fn the_largest_partial_message_goes_first_with_1013() {
    both(|over| {
        let server = serve(over, with_budget(32 * MIB), App::default());
        let mut peers: Vec<_> = (0..9).map(|_| server.peer()).collect();
        let mut honest = server.peer();
        for (peer, mebibytes) in peers.iter_mut().zip(1..) {
            if mebibytes < 6 {
                send_part(peer, mebibytes * MIB / 2);
            }
        }
        eventually("the parts are counted", || server.counters().memory_partial >= 7 * MIB as u64);
        assert_eq!(server.counters().memory_closed, 0);
        send_part(&mut peers[8], 31 * MIB);
        let name = peers[8].name();
        assert_eq!(peers[8].close_frame(), (1013, "memory is short".to_owned()));
        logs::expect(&[&name, "closed at limits.memory (33554432): it holds"]);
        logs::expect(&["WARN", "limits.memory (33554432) is reached"]);
        let counters = server.counters();
        assert_eq!((counters.memory_closed, counters.open), (1, 9), "{counters:?}");
        assert!(counters.memory() <= 32 * MIB as u64, "{counters:?}");
        let conn = server.events.open(8).0;
        let found = (0..10).map(|n| server.events.open(n).0).find(|conn| server.events.closes(*conn) > 0);
        assert!(matches!(server.events.close(found.unwrap_or(conn)).cause, Cause::OutOfMemory));
        honest.echoes("undisturbed");
        drop((peers, honest));
        server.forgets();
        server.survives();
    });
}

/// An application that fills the queue of each client that asks for it.
fn feeds(messages: usize) -> App {
    App::default().on_message(move |_, conn, message| {
        if message.data() == b"feed" {
            for _ in 0..messages {
                conn.send(Outgoing::binary(&[5; 64 << 10]));
            }
        } else {
            conn.send(Outgoing::from(&message));
        }
    })
}

#[test]
fn a_reader_that_is_too_slow_goes_with_1008() {
    both(|over| {
        let mut config = with_budget(16 * MIB);
        config.slow_consumer = SlowConsumer::Disconnect(64 * MIB);
        let server = serve(over, config, feeds(400));
        let mut honest = server.peer();
        let mut slow = server.peer();
        slow.send(&masked(TEXT, b"feed"));
        eventually("it is closed", || server.counters().memory_closed == 1);
        // Messages that had left before come first.
        assert_eq!(slow.close_frame(), (1008, "memory is short".to_owned()));
        assert!(server.counters().memory_queued == 0, "{:?}", server.counters());
        honest.echoes("undisturbed");
        drop((slow, honest));
        server.forgets();
        server.survives();
    });
}

#[test]
fn published_messages_count_once_for_all_readers() {
    let mut config = with_budget(32 * MIB);
    config.slow_consumer = SlowConsumer::DropOldest(8 * MIB);
    let app = App::default().on_open(|_, conn| assert!(conn.subscribe("news")));
    let server = serve(Over::Plain, config, app);
    let slow: Vec<_> = (0..20).map(|_| server.peer()).collect();
    eventually("all are open", || server.counters().open == 20);
    for _ in 0..200 {
        server.handle.publish("news", Outgoing::binary(&[1; 64 << 10])).unwrap();
    }
    // Twenty queues with up to 8 MiB each would be 160 MiB, but they hold the same messages.
    eventually("the queues are full", || server.counters().messages_dropped > 0);
    let held = |counters: Counters| (counters.memory_published, counters.memory_closed);
    eventually("what was dropped is gone", || {
        let (published, _) = held(server.counters());
        (4 * MIB as u64..=9 * MIB as u64).contains(&published)
    });
    assert_eq!(server.counters().memory_closed, 0, "{:?}", server.counters());
    drop(slow);
    eventually("no connection left", || server.counters().connections == 0);
    eventually("the messages are gone", || server.counters().memory_published == 0);
    server.stop();
}

/// A server on one loop, 7/8 of whose budget are used by the peers that come with it. None is closed for that: each takes
/// less than the eighth between refusing and closing.
fn almost_full() -> (Started, Vec<Peer>) {
    let mut config = with_budget(8 * MIB);
    config.limits.pool = 0;
    let server = serve(Over::Plain, config, App::default());
    // All of them connect before memory is short.
    let mut peers: Vec<_> = (0..40).map(|_| server.peer()).collect();
    eventually("all are open", || server.counters().open == 40);
    for peer in &mut peers {
        let before = server.counters();
        if before.memory() >= 7 * MIB as u64 {
            break;
        }
        send_part(peer, 200 << 10);
        eventually("the part is counted", || server.counters().memory_partial >= before.memory_partial + (200 << 10));
    }
    assert!(server.counters().memory() >= 7 * MIB as u64, "{:?}", server.counters());
    (server, peers)
}

/// A new connection, unless it is reset before connect(2) returns.
fn connect(server: &Started) -> Option<Peer> {
    TcpStream::connect(server.tcp()).ok().map(Peer::over)
}

/// Whether a new connection is reset.
fn is_refused(server: &Started) -> bool {
    connect(server).is_none_or(|mut peer| peer.rest().1.is_err())
}

/// Whether a new connection is served.
fn accepts(server: &Started) -> bool {
    connect(server).is_some_and(|mut peer| {
        peer.try_send_wire(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").is_ok() && peer.fill() == Ok(true)
    })
}

#[test]
fn new_connections_are_refused_while_memory_is_short() {
    let (server, peers) = almost_full();
    assert!(is_refused(&server));
    let counters = server.counters();
    assert_eq!(counters.memory_closed, 0, "{counters:?}");
    assert!(counters.connections_refused > 0, "{counters:?}");
    logs::expect(&["INFO", "refused: 7/8 of limits.memory (8388608) are used"]);
    logs::expect(&["WARN", "7/8 of limits.memory (8388608) are used: new connections are refused"]);
    drop(peers);
    server.forgets();
    server.survives();
}

#[test]
fn the_budget_is_that_of_all_loops_together() {
    let server = serve_at("127.0.0.1:0", Over::Plain, 3, with_budget(24 * MIB), App::default());
    let mut peers: Vec<_> = (0..12).map(|_| server.peer()).collect();
    eventually("all are open", || server.counters().open == 12);
    for peer in &mut peers {
        // A peer may be closed meanwhile.
        let part = [header(BINARY, 0x80, 64 * MIB as u64), vec![7; 4 + 3 * MIB]].concat();
        let _ = peer.try_send_wire(&part);
    }
    eventually("some are closed", || server.counters().memory_closed > 0);
    eventually("the budget holds", || server.counters().memory() <= 24 * MIB as u64);
    assert!(server.counters().open > 0, "{:?}", server.counters());
    drop(peers);
    server.forgets();
    server.survives();
}

#[test]
fn refusals_last_a_second_and_then_the_heaviest_make_room() {
    // Together the peers stay below the budget, so that none would ever be closed at it.
    let (server, peers) = almost_full();
    assert!(is_refused(&server));
    assert_eq!(server.counters().memory_closed, 0);
    eventually("it accepts", || accepts(&server));
    let counters = server.counters();
    assert!(counters.connections_refused > 0 && counters.memory_closed > 0, "{counters:?}");
    assert!(counters.memory_closed < 20, "no more than needed: {counters:?}");
    drop(peers);
    server.forgets();
    server.survives();
}

#[test]
fn servers_and_clients_of_a_process_can_have_one_budget() {
    let budget = MemoryBudget::new(1 << 30);
    let mut config = with_budget(1);
    config.limits.shared_memory = Some(budget.clone());
    let (one, two) =
        (serve(Over::Plain, config.clone(), App::default()), serve(Over::Fused, config.clone(), App::default()));
    let client = Client::new(ClientConfig::default()).config(config).target(one.target());
    let client = client.start(|_| App::default()).unwrap();
    eventually("all count", || budget.counters().connections == 2);
    let (mut heavy, mut light) = (one.peer(), two.peer());
    send_part(&mut heavy, 20 * MIB);
    eventually("the part is counted", || budget.counters().memory_partial >= 20 * MIB as u64);
    assert_eq!((one.counters().memory_closed, two.counters().memory_closed), (0, 0), "its own `memory` does not hold");
    // There is room for what it holds and for 4 MiB beside it. The other server's connection is the lighter one.
    assert!(budget.bound(usize::try_from(budget.counters().memory_partial).unwrap() + 4 * MIB));
    send_part(&mut light, 12 * MIB);
    assert_eq!(heavy.close_frame(), (1013, "memory is short".to_owned()));
    logs::expect(&[&heavy.name(), "closed at limits.shared_memory"]);
    assert_eq!((one.counters().memory_closed, two.counters().memory_closed), (1, 0));
    eventually("the other's part is counted", || two.counters().memory_partial >= 12 * MIB as u64);
    eventually("that of the first is gone", || one.counters().memory_partial == 0);
    // The two are read one after the other, while the last bytes of the part may still arrive.
    eventually("it is all that is left", || budget.counters().memory_partial == two.counters().memory_partial);
    drop((heavy, light));
    client.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
    client.join().unwrap();
    one.forgets();
    two.forgets();
    one.survives();
    two.survives();
    assert_eq!(budget.used(), 0, "loops that have ended take no part");
}

#[test]
fn windows_of_compression_count() {
    let mut config = with_budget(1 << 30);
    config.upgrade.deflate = Some(DeflateConfig::with_context_takeover());
    let server = serve(Over::Plain, config, App::default());
    let mut target = server.target();
    target.deflate = Some(DeflateConfig::with_context_takeover());
    let mut socket = server.socket_to(target);
    socket.text(&"compress this ".repeat(100)).unwrap();
    socket.receive().unwrap();
    eventually("both windows", || server.counters().memory_deflate > 56_000);
    drop(socket);
    server.survives();
}

/// An application in which a text of a number subscribes to that many topics of the client's own, and tells how many it got.
fn topics_for_all() -> App {
    App::default().on_message(|_, conn, message| {
        let Some(count) = message.text().and_then(|text| text.parse::<usize>().ok()) else {
            conn.send(Outgoing::from(&message));
            return;
        };
        let id = conn.id();
        let granted = (0..count).filter(|n| conn.subscribe(&format!("topic {n} of {id}"))).count();
        conn.text(&granted.to_string());
    })
}

#[test]
fn connections_with_the_most_topics_go_first_with_1013() {
    let mut config = with_budget(4 * MIB);
    config.limits.max_subscriptions = 20_000;
    let server = serve(Over::Plain, config, topics_for_all());
    let [mut modest, mut many, mut most] = [0; 3].map(|_| server.peer());
    modest.send(&masked(TEXT, b"100"));
    assert_eq!(modest.frame().text(), "100");
    many.send(&masked(TEXT, b"12000"));
    assert_eq!(many.frame().text(), "12000");
    eventually("they are counted", || server.counters().memory_topics > 3 * MIB as u64 / 2);
    assert_eq!(server.counters().memory_closed, 0);
    let name = most.name();
    most.send(&masked(TEXT, b"20000"));
    let mut frame = most.frame();
    if frame.first == TEXT {
        frame = most.frame();
    }
    assert_eq!(frame.payload[..2], 1013_u16.to_be_bytes());
    logs::expect(&[&name, "closed at limits.memory (4194304): it holds"]);
    eventually("its topics are gone", || server.counters().memory_topics < 3 * MIB as u64);
    assert_eq!(server.counters().memory_closed, 1);
    many.echoes("undisturbed");
    modest.echoes("undisturbed");
    drop((modest, many, most));
    server.forgets();
    server.survives();
}

#[test]
fn subscriptions_are_refused_if_memory_is_short_and_nobody_holds_much() {
    let mut config = with_budget(2 * MIB);
    config.limits.pool = 0;
    let server = serve(Over::Plain, config, topics_for_all());
    let mut peers: Vec<_> = (0..600).map(|_| server.peer()).collect();
    let granted = |peer: &mut Peer, count: usize| {
        peer.send(&masked(TEXT, count.to_string().as_bytes()));
        peer.frame().text().parse::<usize>().unwrap()
    };
    let all: Vec<usize> = peers.iter_mut().map(|peer| granted(peer, 30)).collect();
    let counters = server.counters();
    assert!(all[..50].iter().all(|granted| *granted == 30), "{all:?}");
    assert!(all.contains(&0) && counters.subscriptions_refused > 0, "{all:?} {counters:?}");
    assert_eq!(counters.memory_closed, 0, "{counters:?}");
    assert!(counters.memory() < 2 * MIB as u64 + (128 << 10), "{counters:?}");
    logs::expect(&["INFO", "a subscription was refused (limits.memory)"]);
    // There is room again once some have gone.
    let mut last = peers.pop().unwrap();
    peers.truncate(0);
    eventually("it gets more", || granted(&mut last, 31) == 31);
    drop(last);
    server.forgets();
    server.survives();
}

/// The counted memory, and the number of connections.
fn idle(server: &Started, count: usize) -> u64 {
    let peers: Vec<_> = (0..count).map(|_| server.peer()).collect();
    eventually("all are open", || server.counters().open == count as u64);
    let counters = server.counters();
    drop(peers);
    counters.memory_connections / count as u64
}

#[test]
fn idle_connections_count_with_their_own_state_only() {
    both(|over| {
        let server = serve(over, config(), App::default());
        let each = idle(&server, 50);
        let expected = if over.is_secure() { 800..1_100 } else { 400..700 };
        assert!(expected.contains(&each), "{each}");
        assert!(!matches!(server.counters().memory(), 0), "the pool");
        server.survives();
    });
}

#[test]
fn a_message_that_was_sent_leaves_nothing_in_the_account() {
    let server = serve(Over::Fused, config(), feeds(1));
    let mut peer = server.peer();
    peer.echoes(&"x".repeat(100_000));
    eventually("only its own state", || {
        let counters = server.counters();
        counters.memory() == counters.memory_connections + counters.memory_pooled
    });
    drop(peer);
    server.survives();
}

#[test]
fn unused_buffers_of_idle_loops_do_not_refuse_connections_for_ever() {
    let mut config = with_budget(16 * MIB);
    config.limits.pool = 8 * MIB;
    let server = serve_at("127.0.0.1:0", Over::Plain, 4, config, App::default());
    // Large echoes leave buffers behind, in each loop that has one of the peers.
    for _ in 0..12 {
        // A loop that sleeps gives its buffers up a moment after it was asked to.
        eventually("it accepts", || accepts(&server));
        let mut peer = server.peer();
        peer.send(&masked(BINARY, &vec![1; 4 * MIB]));
        peer.frame();
        peer.close();
    }
    server.forgets();
    eventually("it accepts", || accepts(&server));
    server.survives();
}
