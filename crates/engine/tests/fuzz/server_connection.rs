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
    assert!(whole == cut, "{:?}\n{:?}", String::from_utf8_lossy(&whole), String::from_utf8_lossy(&cut));
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
