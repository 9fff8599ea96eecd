//! Messages cause no allocation in a server whose buffers are warm, also while its metrics are read.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of this runs inside tests")]

mod common;
#[path = "../../testkit/counting/sys.rs"]
mod counting;

use common::frame::{BINARY, Frame, PING, PONG, TEXT, masked};
use common::server::config;
use common::{App, Over, Peer, payload, serve};
use counting::allocations;
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use tautline::{Admin, Conn, Message, Outgoing};

thread_local! {
    /// Allocations of the loop before the message `count`.
    static BEFORE: Cell<u64> = const { Cell::new(0) };
}

/// An application that counts the allocations of its loop between the messages `count` and `report`, and calls `act` for others.
fn counting(act: impl Fn(&mut Conn<'_, u64>, Message<'_>) + Send + Sync + 'static) -> App {
    App::default().on_message(move |events, conn, message| match message.text() {
        Some("count") => {
            conn.text("counting");
            BEFORE.set(allocations());
            // An allocation of the test, to see that it is counted.
            drop(std::hint::black_box(Box::new(7)));
        }
        Some("report") => {
            let count = allocations() - BEFORE.get();
            events.note(count.to_string());
            conn.text("reported");
        }
        _ => act(conn, message),
    })
}

fn echo(conn: &mut Conn<'_, u64>, message: Message<'_>) {
    conn.send(Outgoing::from(&message));
}

fn exchange(peer: &mut Peer, messages: &[Vec<u8>]) {
    let wire: Vec<u8> = messages.iter().flat_map(|message| masked(BINARY, message)).collect();
    peer.send(&wire);
    for message in messages {
        assert_eq!(peer.frame(), Frame { first: BINARY, payload: message.clone() });
    }
}

/// Exchanges single messages and many at once, in one piece and in several, and pings.
fn round(peer: &mut Peer) {
    for len in [0, 1, 64, 125, 126, 1000, 4000] {
        exchange(peer, &[payload(len)]);
        exchange(peer, &vec![payload(len); 20]);
    }
    // More than a driver receives at once.
    exchange(peer, &vec![payload(4000); 100]);
    let frame = masked(BINARY, &payload(2000));
    let (front, back) = frame.split_at(700);
    peer.send(front);
    peer.send(back);
    assert_eq!(peer.frame().payload, payload(2000));
    peer.send(&masked(PING, b"?"));
    assert_eq!(peer.frame(), Frame { first: PONG, payload: b"?".to_vec() });
}

/// Most rounds of counting. The kernel decides how a burst is cut, and a new cut may make a buffer grow. Each buffer grows only a
/// few times.
const MAX_ROUNDS: usize = 10;

/// Allocations of the last round, which is the first that has only the test's own one.
fn counted(over: Over) -> u32 {
    let server = serve(over, config(), counting(echo));
    let admin = Admin::new(&server.handle).listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let (is_over, scrapes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let scraper = thread::spawn({
        let (is_over, scrapes) = (is_over.clone(), scrapes.clone());
        move || scrape(&admin.addresses()[0].to_string(), &is_over, &scrapes)
    });
    let (mut one, mut other) = (server.peer(), server.peer());
    for _ in 0..3 {
        round(&mut one);
        round(&mut other);
    }
    let mut count = 0;
    for number in 0..MAX_ROUNDS {
        one.send(&masked(TEXT, b"count"));
        assert_eq!(one.frame().text(), "counting");
        let before = scrapes.load(Ordering::Relaxed);
        for _ in 0..5 {
            round(&mut one);
            round(&mut other);
        }
        // At least one whole scrape fell into this round.
        while scrapes.load(Ordering::Relaxed) < before + 2 {
            round(&mut one);
        }
        one.send(&masked(TEXT, b"report"));
        assert_eq!(one.frame().text(), "reported");
        count = server.events.noted(number).parse().unwrap();
        if count == 1 {
            break;
        }
    }
    is_over.store(true, Ordering::Relaxed);
    scraper.join().unwrap();
    drop((one, other));
    server.survives();
    count
}

/// Reads the server's metrics, over and over. That costs its loop nothing.
fn scrape(admin: &str, is_over: &AtomicBool, scrapes: &AtomicUsize) {
    while !is_over.load(Ordering::Relaxed) {
        let mut stream = TcpStream::connect(admin).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut metrics = String::new();
        stream.read_to_string(&mut metrics).unwrap();
        assert!(metrics.ends_with("# EOF\n"), "{metrics}");
        scrapes.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_warm_server_allocates_nothing() {
    assert_eq!(counted(Over::Plain), 1);
    // Only the fused engine has a record layer of our own. The record layers of other libraries may allocate.
    assert_eq!(counted(Over::Fused), 1);
}

/// Messages to another connection of the same loop, between which `one` waits for the answer of the other.
fn passed_on(over: Over) -> u32 {
    let opened = Arc::new(Mutex::new(Vec::new()));
    let app = counting({
        let opened = opened.clone();
        move |conn, message| {
            let others = opened.lock().unwrap();
            let other = others.iter().copied().find(|id| *id != conn.id()).unwrap();
            conn.shard().send_to(&[other], Outgoing::from(&message));
        }
    });
    let server = serve(over, config(), app.on_open(move |_, conn| opened.lock().unwrap().push(conn.id())));
    let (mut one, mut other) = (server.peer(), server.peer());
    server.events.open(1);
    let mut count = 0;
    for number in 0..MAX_ROUNDS {
        one.send(&masked(TEXT, b"count"));
        assert_eq!(one.frame().text(), "counting");
        for len in [0, 1, 126, 4000, 60_000].into_iter().cycle().take(100) {
            one.send(&masked(BINARY, &payload(len)));
            assert_eq!(other.frame(), Frame { first: BINARY, payload: payload(len) });
        }
        one.send(&masked(TEXT, b"report"));
        assert_eq!(one.frame().text(), "reported");
        count = server.events.noted(number).parse().unwrap();
        if count == 1 {
            break;
        }
    }
    drop((one, other));
    server.forgets();
    server.stop();
    count
}

#[test]
fn a_message_to_another_connection_of_the_loop_allocates_nothing() {
    assert_eq!(passed_on(Over::Plain), 1);
    assert_eq!(passed_on(Over::Fused), 1);
}
