//! Slow readers over real sockets: all policies, with and without compression.

use crate::common::frame::{BINARY, PING, PONG, TEXT, masked};
use crate::common::server::{client_config, config};
use crate::common::{App, Event, Over, Started, both, serve};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tautline::{Cause, CloseCode, Config, DeflateConfig, Delivery, Incoming, Outgoing, SlowConsumer, Socket};

const LIMIT: usize = 300_000;
const COUNT: usize = 3_000;

/// The results of a burst of messages, and the most bytes that waited.
#[derive(Default)]
struct Outcome {
    deliveries: Mutex<Vec<Delivery>>,
    most: AtomicUsize,
}

/// The `i`th message. Half of it does not compress, so that the queue fills up with compression too.
fn numbered(i: usize) -> Vec<u8> {
    let mut state = i as u64;
    let mut message = vec![7; 10_000];
    for byte in &mut message[4..5_000] {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = state.to_le_bytes()[6];
    }
    message[..4].copy_from_slice(&u32::try_from(i).unwrap().to_be_bytes());
    message
}

fn number(message: &[u8]) -> usize {
    u32::from_be_bytes(message[..4].try_into().unwrap()) as usize
}

/// Starts a server that answers `go` with a burst of messages, far longer than the kernel's buffers.
fn burst(over: Over, policy: SlowConsumer, deflate: Option<DeflateConfig>) -> (Started, Arc<Outcome>) {
    let outcome = Arc::new(Outcome::default());
    let seen = outcome.clone();
    let app = App::default().on_message(move |_, conn, message| {
        if message.text() != Some("go") {
            conn.send(Outgoing::from(&message));
            return;
        }
        let mut deliveries = Vec::new();
        for i in 0..COUNT {
            let message = numbered(i);
            deliveries.push(conn.send(Outgoing::binary(&message).with_key(i as u64 % 20)));
            // Includes the batch for the next send and the one in flight, 256 KiB each.
            seen.most.fetch_max(conn.buffered(), Ordering::Relaxed);
        }
        *seen.deliveries.lock().unwrap() = deliveries;
    });
    let mut config = config();
    config.slow_consumer = policy;
    config.upgrade.deflate = deflate;
    (serve(over, config, app), outcome)
}

fn connect(server: &Started, deflate: Option<DeflateConfig>) -> Socket {
    let mut target = server.target();
    target.deflate = deflate;
    let mut config = Config::low_latency();
    // Larger than any message of the burst.
    config.limits.max_message = 1 << 20;
    Socket::connect(target, client_config(), config).unwrap()
}

/// Receives messages until the text `end`, and returns the numbers of the others.
fn until(socket: &mut Socket, end: &str) -> Vec<usize> {
    let mut numbers = Vec::new();
    loop {
        match socket.receive().unwrap() {
            Incoming::Text(text) if text == end => return numbers,
            Incoming::Binary(message) => {
                let number_of_it = number(&message);
                assert!(message == numbered(number_of_it), "{number_of_it} is damaged");
                numbers.push(number_of_it);
            }
            Incoming::Text(text) => panic!("{text}"),
        }
    }
}

/// Asks for a burst, and returns the numbers of the messages that arrive.
fn received(server: &Started, outcome: &Outcome, deflate: Option<DeflateConfig>) -> Vec<usize> {
    let mut socket = connect(server, deflate);
    assert_eq!(server.events.open(0).1.deflate, deflate.is_some());
    socket.text("go").unwrap();
    let deadline = std::time::Instant::now() + crate::common::PATIENCE;
    while outcome.deliveries.lock().unwrap().is_empty() {
        assert!(std::time::Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(2));
    }
    socket.text("end").unwrap();
    let numbers = until(&mut socket, "end");
    // Messages still decompress, so both ends have the same compression state.
    socket.text("after").unwrap();
    assert!(until(&mut socket, "after").is_empty());
    let same = numbered(COUNT);
    for _ in 0..3 {
        socket.binary(&same).unwrap();
        assert!(socket.receive().unwrap() == Incoming::Binary(same.clone()));
    }
    socket.close(CloseCode::NORMAL, "").unwrap();
    let most = outcome.most.load(Ordering::Relaxed);
    assert!(most < LIMIT + 2 * (256 << 10) + 20_000, "{most}");
    numbers
}

fn each(test: impl Fn(Over, Option<DeflateConfig>)) {
    test(Over::Plain, None);
    test(Over::Fused, None);
    test(Over::Plain, Some(DeflateConfig::default()));
    test(Over::Fused, Some(DeflateConfig::with_context_takeover()));
}

/// The number of messages before the first gap, which left before the kernel's buffers were full.
fn at_once(numbers: &[usize]) -> usize {
    numbers.iter().enumerate().take_while(|(at, number)| at == *number).count()
}

/// The messages that the handler was told were dropped.
fn told(server: &Started) -> u64 {
    let told = |event: &Event| if let Event::Dropped(count) = event { u64::from(*count) } else { 0 };
    server.events.all().iter().map(told).sum()
}

#[test]
fn drop_newest() {
    each(|over, deflate| {
        let (server, outcome) = burst(over, SlowConsumer::DropNewest(LIMIT), deflate);
        let numbers = received(&server, &outcome, deflate);
        let deliveries = outcome.deliveries.lock().unwrap().clone();
        // The whole burst is one call, so the first messages stay.
        assert_eq!(at_once(&numbers), numbers.len());
        let (taken, dropped) = deliveries.split_at(numbers.len());
        assert!(taken.iter().all(|delivery| matches!(delivery, Delivery::Sent | Delivery::Queued(_))));
        assert_eq!(dropped, vec![Delivery::Dropped; COUNT - numbers.len()]);
        assert!(!dropped.is_empty());
        assert_eq!(server.counters().messages_dropped, dropped.len() as u64);
        assert_eq!(server.counters().dropped_newest, dropped.len() as u64);
        assert_eq!(told(&server), dropped.len() as u64);
        assert!(server.events.all().iter().any(|event| matches!(event, Event::Drain(_))));
        server.survives();
    });
}

#[test]
fn drop_oldest() {
    each(|over, deflate| {
        let (server, outcome) = burst(over, SlowConsumer::DropOldest(LIMIT), deflate);
        let numbers = received(&server, &outcome, deflate);
        let deliveries = outcome.deliveries.lock().unwrap().clone();
        assert!(!deliveries.contains(&Delivery::Dropped), "the new ones are taken");
        let waited = LIMIT / 10_064;
        assert_eq!(numbers[at_once(&numbers)..], (COUNT - waited..COUNT).collect::<Vec<_>>());
        assert_eq!(server.counters().dropped_oldest, (COUNT - numbers.len()) as u64);
        // The handler is told, although each message was taken when it was sent.
        assert_eq!(told(&server), (COUNT - numbers.len()) as u64);
        server.survives();
    });
}

#[test]
fn keep_latest() {
    each(|over, deflate| {
        let (server, outcome) = burst(over, SlowConsumer::KeepLatest(LIMIT), deflate);
        let numbers = received(&server, &outcome, deflate);
        let deliveries = outcome.deliveries.lock().unwrap().clone();
        assert!(!deliveries.contains(&Delivery::Dropped));
        // The latest message of each key waits, in the place of its first one.
        let mut latest = BTreeMap::new();
        latest.extend((0..COUNT).map(|i| (i % 20, i)));
        let first = at_once(&numbers);
        let waited: Vec<usize> = (first..first + 20).map(|i| latest[&(i % 20)]).collect();
        assert_eq!(numbers[first..], waited);
        assert_eq!(server.counters().dropped_latest, (COUNT - numbers.len()) as u64);
        assert_eq!(told(&server), (COUNT - numbers.len()) as u64);
        server.survives();
    });
}

#[test]
fn disconnect() {
    each(|over, deflate| {
        let (server, outcome) = burst(over, SlowConsumer::Disconnect(LIMIT), deflate);
        let mut socket = connect(&server, deflate);
        socket.text("go").unwrap();
        let closed = server.events.close(server.events.open(0).0);
        assert!(matches!(closed.cause, Cause::SlowConsumer), "{closed:?}");
        // The messages that had left before are followed by the close frame.
        let mut count = 0;
        let error = loop {
            match socket.receive() {
                Ok(Incoming::Binary(message)) => {
                    assert_eq!(number(&message), count);
                    count += 1;
                }
                Ok(Incoming::Text(text)) => panic!("{text}"),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("1008 \"too slow a reader\""), "{error}");
        let deliveries = outcome.deliveries.lock().unwrap().clone();
        let first_closed = deliveries.iter().position(|delivery| *delivery == Delivery::Closed).unwrap();
        assert!(deliveries[first_closed..].iter().all(|delivery| *delivery == Delivery::Closed));
        // No queued message was sent.
        assert!(count < first_closed);
        drop(socket);
        server.forgets();
        server.stop();
    });
}

#[test]
fn a_note_about_dropped_messages_does_not_lead_to_another_one() {
    both(|over| {
        let mut config = config();
        config.slow_consumer = SlowConsumer::DropOldest(LIMIT);
        let large = vec![9; 100_000];
        let note = large.clone();
        let app = App::default().on_message(|events, conn, message| {
            events.note(message.text().unwrap());
            conn.subscribe("feed");
        });
        let app = app.on_dropped(move |_, conn| {
            // It makes the oldest message give way too.
            conn.binary(&note);
        });
        let server = serve(over, config, app);
        let mut peer = server.peer();
        peer.send(&masked(TEXT, b"go"));
        server.events.noted(0);
        let mut published = 0;
        while server.counters().messages_dropped < 20 {
            server.handle.publish("feed", Outgoing::binary(&large)).unwrap();
            published += 1;
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(200));
        peer.send(&masked(TEXT, b"still here"));
        assert_eq!(server.events.noted(1), "still here");
        let events = server.events.all();
        let told = events.iter().filter(|event| matches!(event, Event::Dropped(_))).count();
        assert!((1..=published + 1).contains(&told), "{told} calls for {published} messages");
        drop(peer);
        server.forgets();
        server.stop();
    });
}

#[test]
fn a_stuck_reader_is_still_heard() {
    both(|over| {
        let mut config = config();
        config.slow_consumer = SlowConsumer::DropOldest(LIMIT);
        let app = App::default().on_message(|events, conn, message| {
            events.note(message.text().unwrap());
            if message.text() == Some("go") {
                conn.subscribe("feed");
            }
        });
        let server = serve(over, config, app);
        let mut peer = server.peer();
        peer.send(&masked(TEXT, b"go"));
        server.events.noted(0);
        let large = vec![9; 100_000];
        let begun = std::time::Instant::now();
        // The peer reads nothing, but its messages are read.
        while begun.elapsed() < Duration::from_millis(300) || server.counters().messages_dropped == 0 {
            server.handle.publish("feed", Outgoing::binary(&large)).unwrap();
            peer.send(&masked(PONG, b""));
            std::thread::sleep(Duration::from_millis(5));
        }
        peer.send(&masked(TEXT, b"still here"));
        assert_eq!(server.events.noted(1), "still here");
        assert_eq!(server.events.closes(server.events.open(0).0), 0);
        // Once it reads, the answer to its ping arrives among the feed's messages.
        peer.send(&masked(PING, b"?"));
        loop {
            let frame = peer.frame();
            match frame.first {
                PONG if frame.payload == b"?" => break,
                PONG | PING => {}
                first => assert_eq!((first, frame.payload.len()), (BINARY, 100_000)),
            }
        }
        drop(peer);
        server.forgets();
        server.stop();
    });
}
