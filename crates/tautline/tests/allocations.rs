//! Messages cost a server no allocation once its buffers are warm.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of this runs inside tests")]

mod common;
#[path = "../../testkit/counting/sys.rs"]
mod counting;

use common::frame::{BINARY, Frame, PING, PONG, TEXT, masked};
use common::server::config;
use common::{App, Over, Peer, payload, serve};
use counting::allocations;
use std::cell::Cell;
use tautline::Outgoing;

thread_local! {
    /// How many the loop had made when it was told to count.
    static BEFORE: Cell<u64> = const { Cell::new(0) };
}

/// An echo that counts, from one command to the other, what its loop allocates.
fn counting() -> App {
    App::default().on_message(|events, conn, message| match message.text() {
        Some("count") => {
            conn.text("counting");
            BEFORE.set(allocations());
            // One that is ours, to see that it counts.
            drop(std::hint::black_box(Box::new(7)));
        }
        Some("tell") => {
            let count = allocations() - BEFORE.get();
            events.note(count.to_string());
            conn.text("told");
        }
        _ => {
            conn.send(Outgoing::from(&message));
        }
    })
}

fn exchange(peer: &mut Peer, messages: &[Vec<u8>]) {
    let wire: Vec<u8> = messages.iter().flat_map(|message| masked(BINARY, message)).collect();
    peer.send(&wire);
    for message in messages {
        assert_eq!(peer.frame(), Frame { first: BINARY, payload: message.clone() });
    }
}

/// Single messages and many at once, as they come in one piece and in several, with pings between them.
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

/// Most rounds of counting. Whether a burst arrives in one piece is for the kernel to say, and one that never came so before may
/// meet a buffer that has not grown yet; each grows few times.
const MOST: usize = 10;

/// What a round of counting comes to in the end.
fn counted(over: Over) -> u32 {
    let server = serve(over, config(), counting());
    let (mut one, mut other) = (server.peer(), server.peer());
    for _ in 0..3 {
        round(&mut one);
        round(&mut other);
    }
    let mut count = 0;
    for number in 0..MOST {
        one.send(&masked(TEXT, b"count"));
        assert_eq!(one.frame().text(), "counting");
        for _ in 0..5 {
            round(&mut one);
            round(&mut other);
        }
        one.send(&masked(TEXT, b"tell"));
        assert_eq!(one.frame().text(), "told");
        count = server.events.noted(number).parse().unwrap();
        if count == 1 {
            break;
        }
    }
    drop((one, other));
    server.survives();
    count
}

#[test]
fn a_warm_server_allocates_nothing() {
    assert_eq!(counted(Over::Plain), 1);
    // What libraries allocate in their record layers is theirs; the fused engine has a record layer of its own.
    assert_eq!(counted(Over::Fused), 1);
}
