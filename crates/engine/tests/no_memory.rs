//! A buffer for which there is no memory ends its own connection, and nothing else.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

#[path = "../../testkit/failing/sys.rs"]
mod failing;
mod fake;

use failing::fail_by;
use fake::{Event, Fake};
use std::sync::Arc;
use std::time::Duration;
use tautline_buf::{Buf, Pool};
use tautline_engine::{Cause, Closed, Config, Conn, Handler, Outgoing, Shard};
use tautline_tls::plain;
use tautline_ws::{Encoder, Kind, Message, Role};

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

/// Echoes without memory of its own.
#[derive(Default)]
struct Echo {
    causes: Vec<Cause>,
}

impl Handler for Echo {
    type State = ();

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.send(Outgoing::from(&message));
    }

    fn on_close(&mut self, _: &mut Conn<'_, ()>, closed: &Closed) {
        self.causes.push(closed.cause.clone());
    }
}

/// A client's message.
fn message(len: usize) -> Vec<u8> {
    let (mut wire, mut pool) = (Buf::new(), Pool::new(0));
    let payload = "0123456789".repeat(len / 10);
    let mut client = Encoder::new(Role::Client);
    client.message(Kind::Text, payload.as_bytes(), false, || [1, 2, 3, 4], &mut wire, &mut pool).unwrap();
    wire.filled().to_vec()
}

#[test]
fn a_message_without_memory_closes_its_connection_with_1011() {
    // A report of a panic with a backtrace takes large memory, which fails too.
    std::panic::set_hook(Box::new(|_| {}));
    let large = message(200_000);
    let (mut echoed, mut closed) = (0, 0);
    for seed in 1..=60_u64 {
        let mut config = Config::default();
        config.limits.pool = 0;
        let kernel = Fake::default();
        kernel.0.borrow_mut().room = usize::MAX;
        let mut shard = Shard::new(0, Arc::new(config), plain::Engine, kernel.clone(), Echo::default()).unwrap();
        let mut turn = || shard.turn(Some(Duration::ZERO)).unwrap();
        for number in [0, 1] {
            kernel.push(Event::Accept);
            kernel.push(Event::Bytes(number, UPGRADE.to_vec()));
        }
        turn();
        let head = kernel.received(0).len();
        kernel.received(1);
        // Memory of the test itself does not fail.
        kernel.0.borrow_mut().wires.get_mut(&0).unwrap().received.reserve(1 << 20);
        let before = fail_by(seed);
        for piece in large.chunks(9_000) {
            kernel.push(Event::Bytes(0, piece.to_vec()));
            turn();
        }
        let failures = fail_by(0) - before;
        kernel.push(Event::Bytes(1, message(10)));
        turn();
        assert!(head > 0 && kernel.received(1) == b"\x81\x0a0123456789", "seed {seed}: the loop does not go on");
        let answer = kernel.received(0);
        let causes = &shard.handler().causes;
        if failures == 0 {
            assert!(answer.len() > 200_000 && causes.is_empty(), "seed {seed}: {} bytes, {causes:?}", answer.len());
            echoed += 1;
        } else {
            assert_eq!(answer[..4], [0x88, 2, 0x03, 0xf3], "seed {seed}: a close frame with 1011");
            assert!(matches!(causes[..], [Cause::Panicked]), "seed {seed}: {causes:?}");
            assert_eq!(shard.counters().panics, 1, "seed {seed}");
            closed += 1;
        }
    }
    assert!(echoed > 5 && closed > 5, "{echoed} were echoed, {closed} were closed");
}
