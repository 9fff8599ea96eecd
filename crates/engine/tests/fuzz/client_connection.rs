//! A whole connection of a client takes any bytes of a server or of a proxy, in any pieces, and ends.

use crate::fake::{Event, Fake};
use std::sync::Arc;
use std::time::Duration;
use tautline_buf::Buf;
use tautline_engine::{Closed, Config, Conn, ConnectError, DialId, Handler, Opening, Outgoing, Shard, Target};
use tautline_tls::plain;
use tautline_ws::Message;
use tautline_ws::deflate::DeflateConfig;
use tautline_ws::handshake::{HeadLimits, HeadReader, Policy, accept};

/// Sends each message back, and notes the order of events.
#[derive(Default)]
struct Mirror {
    opened: usize,
    closed: usize,
    failed: usize,
    messages: Vec<Vec<u8>>,
}

impl Handler for Mirror {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _: &Opening<'_>) {
        self.opened += 1;
        conn.text("hello");
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        self.messages.push(message.data().to_vec());
        conn.send(Outgoing::from(&message));
    }

    fn on_close(&mut self, _: &mut Conn<'_, ()>, _: &Closed) {
        self.closed += 1;
    }

    fn on_connect_failed(&mut self, _: DialId, _: &ConnectError, _: Option<Duration>) {
        self.failed += 1;
    }
}

/// Input: one byte for the size of the pieces, one for [`Way`], then the server's bytes.
pub(crate) fn run(data: &[u8]) {
    let [size, way, bytes @ ..] = data else { return };
    let way = match way % 4 {
        0 => Way::Direct,
        1 => Way::Answered,
        2 => Way::Proxy("http://u:p@192.0.2.2"),
        _ => Way::Proxy("socks5://u:p@192.0.2.2"),
    };
    let whole = connect(bytes, bytes.len().max(1), way);
    let cut = connect(bytes, usize::from(*size) + 1, way);
    // Masks and keys are random, so messages are compared, not bytes.
    assert_eq!(whole, cut);
}

/// The place at which the input begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The server's answer to the upgrade.
    Direct,
    /// Behind a good answer.
    Answered,
    /// The answer of this proxy.
    Proxy(&'static str),
}

fn connect(bytes: &[u8], size: usize, way: Way) -> (usize, Vec<Vec<u8>>) {
    let mut config = Config::untrusted_internet();
    config.limits.max_message = 4096;
    let kernel = Fake::default();
    kernel.0.borrow_mut().room = usize::MAX;
    let shard = Shard::new(0, Arc::new(config), plain::Engine, kernel.clone(), Mirror::default());
    let mut shard = shard.expect("a shard over a fake driver starts");
    // No deadline passes, however long the fuzzer is stopped.
    shard.danger_simulate(|| Duration::ZERO, [7; 32]);
    let mut target = Target::new("ws://192.0.2.1/").expect("a valid URI");
    target.deflate = Some(DeflateConfig::default());
    if let Way::Proxy(proxy) = way {
        target.proxy = Some(proxy.parse().expect("a valid proxy"));
    }
    shard.connect(Arc::new(target));
    let mut turn = || shard.turn(Some(Duration::ZERO)).expect("a turn over a fake driver succeeds");
    turn();
    kernel.push(Event::Connected(0));
    turn();
    let mut wire = Vec::new();
    if way == Way::Answered {
        wire = answer(&kernel.received(0));
    }
    wire.extend_from_slice(bytes);
    let head = wire.len() - bytes.len();
    let pieces = [&wire[..head]].into_iter().filter(|piece| !piece.is_empty()).chain(wire[head..].chunks(size));
    for piece in pieces {
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
    let mirror = shard.into_handler();
    assert_eq!(mirror.opened, mirror.closed, "on_open and on_close come in pairs");
    assert_eq!(mirror.opened + mirror.failed, 1, "an attempt opens or fails");
    (mirror.opened, mirror.messages)
}

/// The answer of a good server with compression.
pub(super) fn answer(request: &[u8]) -> Vec<u8> {
    let read = HeadReader::new(HeadLimits::default()).request(request);
    let (request, _) = read.expect("our request is valid").expect("our request is whole");
    let mut policy = Policy::default();
    policy.deflate = Some(DeflateConfig::default());
    let mut out = Buf::new();
    accept(&request, &policy).expect("our request is acceptable").write(&mut out);
    out.filled().to_vec()
}
