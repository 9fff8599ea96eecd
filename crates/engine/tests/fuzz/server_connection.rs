//! A whole connection of a server gives the same answers in arbitrary pieces as in one piece.

use crate::fake::{Event, Fake};
use std::sync::Arc;
use std::time::Duration;
use tautline_engine::{Config, Conn, Handler, Outgoing, Shard};
use tautline_tls::plain;
use tautline_ws::Message;
use tautline_ws::deflate::DeflateConfig;

/// Echoes messages, and counts that each connection opens and closes once.
#[derive(Default)]
struct Echo {
    opened: usize,
    closed: usize,
}

impl Handler for Echo {
    type State = ();

    fn on_open(&mut self, _: &mut Conn<'_, ()>, _: &tautline_engine::Opening<'_>) {
        self.opened += 1;
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.send(Outgoing::from(&message));
    }

    fn on_close(&mut self, _: &mut Conn<'_, ()>, _: &tautline_engine::Closed) {
        self.closed += 1;
    }
}

/// Input: one byte for the size of the pieces, then the client's bytes.
pub(crate) fn run(data: &[u8]) {
    let Some((&size, bytes)) = data.split_first() else { return };
    let whole = serve(bytes, bytes.len().max(1));
    let cut = serve(bytes, usize::from(size) + 1);
    let (whole, cut) = (first_of_several(whole), first_of_several(cut));
    assert!(whole == cut, "{:?}\n{:?}", String::from_utf8_lossy(&whole), String::from_utf8_lossy(&cut));
}

/// Takes length, code and reason off a close frame that says that a message is invalid or too big. A message can be
/// both, and the error that is found first depends on the cut.
fn first_of_several(mut answer: Vec<u8>) -> Vec<u8> {
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n");
    let mut at = if answer.starts_with(b"HTTP/1.1 101") { head.map_or(0, |head| head + 4) } else { return answer };
    while let Some(&[first, len, ..]) = answer.get(at..) {
        let rest = &answer[at + 2..];
        let (len, start) = match (len, rest) {
            (126, &[a, b, ..]) => (usize::from(u16::from_be_bytes([a, b])), at + 4),
            (len, _) => (usize::from(len), at + 2),
        };
        if first & 0xf == 8 && matches!(answer.get(start..start + 2), Some([0x03, 0xef | 0xf1])) {
            answer.truncate(at + 1);
            return answer;
        }
        at = start + len;
    }
    answer
}

/// Serves one client until it ends, and returns all that it received.
fn serve(bytes: &[u8], size: usize) -> Vec<u8> {
    let mut config = Config::untrusted_internet();
    config.limits.max_message = 4096;
    config.upgrade.deflate = Some(DeflateConfig::default());
    let kernel = Fake::default();
    kernel.0.borrow_mut().room = usize::MAX;
    let shard = Shard::new(0, Arc::new(config), plain::Engine, kernel.clone(), Echo::default());
    let mut shard = shard.expect("a shard over a fake driver starts");
    // No deadline passes, however long the fuzzer is stopped.
    shard.danger_simulate(|| Duration::ZERO, [7; 32]);
    let mut turn = || shard.turn(Some(Duration::ZERO)).expect("a turn over a fake driver succeeds");
    kernel.push(Event::Accept);
    turn();
    for piece in bytes.chunks(size) {
        if kernel.with(0, |wire| wire.closed.is_some()) {
            break;
        }
        kernel.push(Event::Bytes(0, piece.to_vec()));
        turn();
    }
    if kernel.with(0, |wire| wire.closed.is_none()) {
        kernel.push(Event::Finished(0));
        turn();
        turn();
    }
    assert_eq!(shard.counters().connections, 0, "the connection has ended");
    let echo = shard.into_handler();
    assert_eq!(echo.opened, echo.closed, "on_open and on_close come in pairs");
    kernel.received(0)
}
