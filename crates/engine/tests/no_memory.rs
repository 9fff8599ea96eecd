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
use tautline_engine::{Cause, Closed, Config, Conn, ConnId, Handler, Opening, Outgoing, Shard};
use tautline_tls::plain;
use tautline_ws::deflate::{DeflateConfig, DeflateParams, Inflater};
use tautline_ws::{Decoded, Decoder, Encoder, Event as Frame, Kind, Message, Role};

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

/// Echoes without memory of its own.
#[derive(Default)]
struct Echo {
    causes: Vec<Cause>,
    conns: Vec<ConnId>,
    /// Echoes are pieces of streamed messages.
    in_pieces: bool,
}

impl Handler for Echo {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _: &Opening<'_>) {
        assert!(conn.subscribe("news"));
        self.conns.push(conn.id());
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        match self.in_pieces {
            true => conn.fragment(message.kind(), message.data(), true),
            false => conn.send(Outgoing::from(&message)),
        };
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
            // The turn that accepts may leave the request to the next one.
            turn();
            turn();
        }
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

#[test]
fn a_message_that_has_to_wait_without_memory_for_its_copy_closes_its_connection_with_1011() {
    std::panic::set_hook(Box::new(|_| {}));
    let (small, large) = (message(10), message(100_000));
    let (mut echoed, mut closed) = (0, 0);
    for (seed, in_pieces) in (1..=30_u64).flat_map(|seed| [(seed, false), (seed, true)]) {
        let kernel = Fake::default();
        kernel.0.borrow_mut().room = usize::MAX;
        let echo = Echo { in_pieces, ..Echo::default() };
        let mut shard = Shard::new(0, Arc::new(Config::default()), plain::Engine, kernel.clone(), echo).unwrap();
        let mut turn = || shard.turn(Some(Duration::ZERO)).unwrap();
        for number in [0, 1] {
            kernel.push(Event::Accept);
            kernel.push(Event::Bytes(number, UPGRADE.to_vec()));
            // The turn that accepts may leave the request to the next one.
            turn();
            turn();
            kernel.received(number);
        }
        // The first one reads nothing, and its first echo is on its way.
        kernel.0.borrow_mut().wires.get_mut(&0).unwrap().room = 0;
        kernel.push(Event::Bytes(0, small.clone()));
        turn();
        // Both messages lie in one piece, so nothing but the copy of their echoes needs large memory.
        kernel.push(Event::Bytes(0, [&large[..], &large].concat()));
        let before = fail_by(seed);
        turn();
        let failures = fail_by(0) - before;
        kernel.push(Event::Bytes(1, small.clone()));
        turn();
        assert_eq!(kernel.received(1), b"\x81\x0a0123456789", "seed {seed}: the loop does not go on");
        kernel.push(Event::Room(0, usize::MAX));
        turn();
        let answer = kernel.received(0);
        let answer = answer.strip_prefix(b"\x81\x0a0123456789").unwrap();
        let causes = &shard.handler().causes;
        if failures == 0 {
            assert!(answer.len() > 200_000 && causes.is_empty(), "seed {seed}: {} bytes, {causes:?}", answer.len());
            echoed += 1;
        } else {
            assert_eq!(answer, [0x88, 2, 0x03, 0xf3], "seed {seed}: a close frame with 1011");
            assert!(matches!(causes[..], [Cause::Panicked]), "seed {seed}: {causes:?}");
            assert_eq!((shard.counters().panics, failures), (1, 1), "seed {seed}");
            closed += 1;
        }
    }
    assert!(echoed > 5 && closed > 5, "{echoed} were echoed, {closed} were closed");
}

/// Subscribers, of which every second one compresses.
const SUBSCRIBERS: u32 = 8;
/// No end of their heads, to which the accepted extension is added.
const DEFLATE: &[u8] = b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n";

/// Opens the subscribers.
fn open(shard: &mut Shard<plain::Engine, Echo>, kernel: &Fake) {
    for number in 0..SUBSCRIBERS {
        let further = if number % 2 == 0 { &b"\r\n"[..] } else { DEFLATE };
        kernel.push(Event::Accept);
        kernel.push(Event::Bytes(number, [&UPGRADE[..UPGRADE.len() - 2], further].concat()));
        // The turn that accepts may leave the request to the next one.
        shard.turn(Some(Duration::ZERO)).unwrap();
        shard.turn(Some(Duration::ZERO)).unwrap();
    }
    for number in 0..SUBSCRIBERS {
        let head = String::from_utf8(kernel.received(number)).unwrap();
        assert_eq!(head.contains("permessage-deflate"), number % 2 == 1, "{head}");
        // Memory of the test itself does not fail.
        kernel.0.borrow_mut().wires.get_mut(&number).unwrap().received.reserve(2 << 20);
    }
}

/// The texts and the code of the close frame that a peer got.
fn read(number: u32, mut bytes: &mut [u8]) -> (Vec<String>, Option<u16>) {
    let mut decoder = Decoder::new(Role::Client, 1 << 20);
    if number % 2 == 1 {
        let params = DeflateParams::decode(0b1111_1111);
        decoder = decoder.with_inflater(Inflater::new(&params, Role::Client, u32::MAX));
    }
    let (mut pool, mut texts) = (Pool::new(0), Vec::new());
    while !bytes.is_empty() {
        let Decoded { used, event } = decoder.decode(bytes, &mut pool).unwrap();
        match event.unwrap() {
            Frame::Message(message) => texts.push(message.text().unwrap().to_owned()),
            Frame::Close(close) => return (texts, close.map(|close| close.code.into())),
            _ => unreachable!("nobody sends it"),
        }
        bytes = &mut bytes[used..];
    }
    (texts, None)
}

#[test]
fn a_publication_without_memory_closes_its_connection_and_reaches_the_others_once() {
    std::panic::set_hook(Box::new(|_| {}));
    // It compresses to more than what memory fails for.
    let mut state = 1_u64;
    let digits = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'0' + u8::try_from((state >> 33) % 10).unwrap())
    });
    let large: String = digits.take(150_000).collect();
    let (mut reached, mut closed) = ([0; 2], [0; 2]);
    for seed in 1..=40_u64 {
        let mut config = Config::default();
        config.limits.pool = 0;
        config.upgrade.deflate = Some(DeflateConfig::default());
        let kernel = Fake::default();
        kernel.0.borrow_mut().room = usize::MAX;
        let mut shard = Shard::new(0, Arc::new(config), plain::Engine, kernel.clone(), Echo::default()).unwrap();
        open(&mut shard, &kernel);
        let handle = shard.handle();
        handle.publish("news", Outgoing::text(&large)).unwrap();
        let to_one = shard.handler().conns[0];
        handle.send(to_one, Outgoing::text(&large)).unwrap();
        let before = fail_by(seed);
        for _ in 0..3 {
            shard.turn(Some(Duration::ZERO)).unwrap();
        }
        let failures = fail_by(0) - before;
        handle.publish("news", Outgoing::text(&large[1..])).unwrap();
        for _ in 0..3 {
            shard.turn(Some(Duration::ZERO)).unwrap();
        }
        let mut ended = 0;
        for number in 0..SUBSCRIBERS {
            let (texts, code) = read(number, &mut kernel.received(number));
            let twice = if number == 0 { 2 } else { 1 };
            if let Some(code) = code {
                assert_eq!(code, 1011, "seed {seed}, {number}");
                assert!(texts.len() < twice && texts.iter().all(|text| *text == large), "seed {seed}, {number}");
                (ended, closed[number as usize % 2]) = (ended + 1, closed[number as usize % 2] + 1);
            } else {
                let expected = [vec![&large[..]; twice], vec![&large[1..]]].concat();
                assert!(texts == expected, "seed {seed}, {number}: {} texts", texts.len());
                reached[number as usize % 2] += 1;
            }
        }
        let causes = &shard.handler().causes;
        assert!(causes.iter().all(|cause| matches!(cause, Cause::Panicked)), "seed {seed}: {causes:?}");
        assert_eq!((causes.len(), shard.counters().panics), (ended, ended as u64), "seed {seed}");
        assert!(ended as u64 <= failures, "seed {seed}: {ended} for {failures}");
    }
    assert!(reached.iter().chain(&closed).all(|count| *count > 10), "{reached:?} were reached, {closed:?} were closed");
}

#[test]
fn a_message_without_memory_for_all_of_its_pieces_is_cut_off_by_a_reset() {
    std::panic::set_hook(Box::new(|_| {}));
    let large = vec![b'x'; 1_300_000];
    let frame = [&[0x82, 127][..], &(large.len() as u64).to_be_bytes(), &large].concat();
    let (mut whole, mut closed, mut cut) = (0, 0, 0);
    for seed in 1..=60_u64 {
        let mut config = Config::default();
        config.limits.pool = 0;
        config.upgrade.deflate = Some(DeflateConfig::default());
        let kernel = Fake::default();
        kernel.0.borrow_mut().room = usize::MAX;
        let mut shard = Shard::new(0, Arc::new(config), plain::Engine, kernel.clone(), Echo::default()).unwrap();
        open(&mut shard, &kernel);
        let to_one = shard.handler().conns[0];
        let handle = shard.handle();
        handle.send(to_one, Outgoing::text("before")).unwrap();
        shard.turn(Some(Duration::ZERO)).unwrap();
        handle.send(to_one, Outgoing::binary(&large)).unwrap();
        handle.send(to_one, Outgoing::text("behind")).unwrap();
        fail_by(seed);
        shard.turn(Some(Duration::ZERO)).unwrap();
        fail_by(0);
        handle.publish("news", Outgoing::text("after")).unwrap();
        shard.turn(Some(Duration::ZERO)).unwrap();
        for number in 1..SUBSCRIBERS {
            assert_eq!(read(number, &mut kernel.received(number)), (vec!["after".to_owned()], None), "seed {seed}");
        }
        let answer = kernel.received(0);
        let answer = answer.strip_prefix(b"\x81\x06before").unwrap();
        let causes = &shard.handler().causes;
        if let Some(rest) = answer.strip_prefix(&frame[..]) {
            assert_eq!((rest, causes.len()), (&b"\x81\x06behind\x81\x05after"[..], 0), "seed {seed}");
            whole += 1;
            continue;
        }
        assert!(matches!(causes[..], [Cause::Panicked]), "seed {seed}: {causes:?}");
        assert_eq!(shard.counters().panics, 1, "seed {seed}");
        let reset = kernel.with(0, |wire| wire.closed);
        if answer == [0x88, 2, 0x03, 0xf3] {
            closed += 1;
        } else {
            // A close frame here would be part of the message.
            assert!(frame.starts_with(answer) && answer.len() >= 200_000, "seed {seed}: {} bytes", answer.len());
            assert_eq!(reset, Some(true), "seed {seed}: the peer is to see that the message is not whole");
            cut += 1;
        }
    }
    assert!(whole > 3 && closed > 3 && cut > 3, "{whole} whole, {closed} closed, {cut} cut");
}
