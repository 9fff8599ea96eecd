//! What becomes of messages for peers that do not read, message by message.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

mod fake;

use fake::{Event, Fake};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline_engine::{
    Cause, Closed, Config, Conn, ConnId, Deadline, Delivery, Handler, Opening, Outgoing, Shard, SlowConsumer,
};
use tautline_tls::plain;
use tautline_ws::{CloseCode, Kind, Message};

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
/// What a message costs in the queue beside its payload.
const COST: usize = 64;

type Act = Box<dyn FnMut(&mut Conn<'_, ()>)>;

/// Echoes, and does what a test says when a queue has drained.
#[derive(Default)]
struct App {
    conns: Vec<ConnId>,
    drained: usize,
    on_drain: Option<Act>,
    seen: Vec<String>,
    pause_at: Option<String>,
    closed: Vec<Closed>,
}

impl Handler for App {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _opening: &Opening<'_>) {
        self.conns.push(conn.id());
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        let text = message.text().unwrap();
        self.seen.push(text.to_owned());
        if self.pause_at.as_deref() == Some(text) {
            conn.pause(true);
        }
        conn.send(Outgoing::from(&message));
    }

    fn on_drain(&mut self, conn: &mut Conn<'_, ()>) {
        self.drained += 1;
        if let Some(act) = &mut self.on_drain {
            act(conn);
        }
    }

    fn on_close(&mut self, conn: &mut Conn<'_, ()>, closed: &Closed) {
        assert_eq!(conn.text("too late"), Delivery::Closed, "{closed:?}");
        self.closed.push(closed.clone());
    }
}

struct Bench {
    kernel: Fake,
    shard: Shard<plain::Engine, Fake, App>,
}

impl Bench {
    /// An open connection whose peer has read the 101 response and reads no more.
    fn new(config: Config) -> Self {
        let kernel = Fake::default();
        let mut shard = Shard::new(0, Arc::new(config), plain::Engine, kernel.clone(), App::default()).unwrap();
        kernel.0.borrow_mut().room = 129;
        kernel.push(Event::Accept);
        kernel.push(Event::Bytes(0, UPGRADE.to_vec()));
        shard.turn(Some(Duration::ZERO)).unwrap();
        let bench = Self { kernel, shard };
        assert!(bench.kernel.received(0).ends_with(b"\r\n\r\n"));
        assert_eq!(bench.kernel.with(0, |wire| wire.room), 0);
        bench
    }

    fn policy(slow_consumer: SlowConsumer) -> Self {
        let mut bench = Self::new(Config { slow_consumer, ..Config::default() });
        // The first is not queued: it is with the kernel, as far as anybody knew.
        assert_eq!(bench.send("first"), Delivery::Sent);
        bench
    }

    fn turn(&mut self) {
        self.shard.turn(Some(Duration::ZERO)).unwrap();
    }

    fn wait(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
            self.turn();
        }
    }

    fn act<R>(&mut self, act: impl FnOnce(&mut Conn<'_, ()>) -> R) -> R {
        let conn = self.shard.handler().conns[0];
        let result = self.shard.with_conn(conn, |_, conn| act(conn)).unwrap();
        self.shard.flush();
        result
    }

    fn send(&mut self, text: &str) -> Delivery {
        self.act(|conn| conn.text(text))
    }

    fn send_keyed(&mut self, key: u64, text: &str) -> Delivery {
        self.act(|conn| conn.send(Outgoing::text(text).with_key(key)))
    }

    /// Lets the peer read, and returns the texts and control frames that it got.
    fn read(&mut self) -> Vec<String> {
        self.kernel.push(Event::Room(0, usize::MAX));
        self.turn();
        self.turn();
        frames(&self.kernel.received(0))
    }
}

/// Unmasked frames: texts as they are, others by their first byte and payload.
fn frames(mut bytes: &[u8]) -> Vec<String> {
    let mut frames = Vec::new();
    while let [first, len, rest @ ..] = bytes {
        let (len, rest) = match len {
            126 => (usize::from(u16::from_be_bytes([rest[0], rest[1]])), &rest[2..]),
            127 => (usize::try_from(u64::from_be_bytes(rest[..8].try_into().unwrap())).unwrap(), &rest[8..]),
            len => (usize::from(*len), rest),
        };
        let text = String::from_utf8_lossy(&rest[..len]);
        frames.push(if *first == 0x81 { text.into_owned() } else { format!("{first:x} {text}") });
        bytes = &rest[len..];
    }
    frames
}

fn masked(text: &str) -> Vec<u8> {
    let len = u8::try_from(text.len()).unwrap();
    [&[0x81, 0x80 | len, 0, 0, 0, 0], text.as_bytes()].concat()
}

#[test]
fn drop_newest_keeps_what_waits() {
    let mut bench = Bench::policy(SlowConsumer::DropNewest(2 * (COST + 1)));
    // The driver keeps seven bytes of the first.
    assert_eq!(bench.send("a"), Delivery::Queued(7 + COST + 1));
    assert_eq!(bench.send("b"), Delivery::Queued(7 + 2 * (COST + 1)));
    assert_eq!(bench.send("c"), Delivery::Dropped);
    assert_eq!(bench.shard.counters().messages_dropped, 1);
    assert_eq!(bench.shard.handler().drained, 0);
    assert_eq!(bench.read(), ["first", "a", "b"]);
    assert_eq!(bench.shard.handler().drained, 1);
    assert_eq!(bench.send("d"), Delivery::Sent);
    assert_eq!(bench.read(), ["d"]);
    assert_eq!(bench.shard.handler().drained, 1);
}

#[test]
fn drop_oldest_keeps_what_is_new() {
    let mut bench = Bench::policy(SlowConsumer::DropOldest(2 * (COST + 1)));
    for text in ["a", "b", "c", "d"] {
        assert!(matches!(bench.send(text), Delivery::Queued(_)), "{text}");
    }
    assert_eq!(bench.shard.counters().messages_dropped, 2);
    // Longer than the limit: the only one that waits then.
    assert_eq!(
        bench.send(
            "longer than all the others together, and than the limit; by far: it fits no queue that anything \
                           waits in, but the one that it has for itself alone, and that one takes it"
        ),
        Delivery::Queued(7 + COST + 169)
    );
    assert_eq!(bench.shard.counters().messages_dropped, 4);
    assert_eq!(bench.send("e"), Delivery::Queued(7 + COST + 1));
    assert_eq!(bench.read(), ["first", "e"]);
}

#[test]
fn keep_latest_replaces_in_place() {
    let mut bench = Bench::policy(SlowConsumer::KeepLatest(4 * (COST + 2)));
    for (key, text) in [(1, "a1"), (2, "b1"), (1, "a2"), (3, "c1"), (2, "b2"), (1, "a3")] {
        assert!(matches!(bench.send_keyed(key, text), Delivery::Queued(_)), "{text}");
    }
    assert!(matches!(bench.send("-"), Delivery::Queued(_)));
    assert_eq!(bench.shard.counters().messages_dropped, 3);
    assert_eq!(bench.read(), ["first", "a3", "b2", "c1", "-"]);
}

#[test]
fn keep_latest_keeps_its_limit_when_replacing() {
    let limit = 4 * (COST + 2);
    let mut bench = Bench::policy(SlowConsumer::KeepLatest(limit));
    for (key, text) in [(1, "a1"), (2, "b1"), (3, "c1"), (4, "d1")] {
        assert!(matches!(bench.send_keyed(key, text), Delivery::Queued(_)), "{text}");
    }
    // Larger than before: what it replaces goes, and so does the oldest, until it fits.
    let large = "b2".repeat(COST);
    let Delivery::Queued(waiting) = bench.send_keyed(2, &large) else { panic!("not queued") };
    assert!(waiting <= 7 + limit, "{waiting}");
    assert_eq!(bench.read(), ["first".to_owned(), "d1".to_owned(), large]);
}

#[test]
fn disconnect_closes_with_1008() {
    let mut bench = Bench::policy(SlowConsumer::Disconnect(2 * (COST + 1)));
    assert!(matches!(bench.send("a"), Delivery::Queued(_)));
    assert!(matches!(bench.send("b"), Delivery::Queued(_)));
    let conn = bench.shard.handler().conns[0];
    let deliveries = bench.shard.with_conn(conn, |_, conn| [conn.text("c"), conn.text("d")]);
    assert_eq!(deliveries, Some([Delivery::Closed, Delivery::Closed]));
    bench.turn();
    let [closed] = &bench.shard.handler().closed[..] else { panic!("one end") };
    assert!(matches!(closed.cause, Cause::SlowConsumer), "{closed:?}");
    assert_eq!(closed.code, CloseCode::ABNORMAL);
    let read = bench.read();
    assert_eq!(read, ["first", "88 \u{3}\u{fffd}too slow a reader"]);
    assert!(bench.kernel.with(0, |wire| wire.finished && wire.closed.is_none()));
    bench.kernel.push(Event::Finished(0));
    bench.turn();
    assert_eq!(bench.kernel.with(0, |wire| wire.closed), Some(false));
    assert_eq!(bench.shard.counters().connections, 0);
    assert_eq!(bench.shard.handler().drained, 0);
}

#[test]
fn one_message_may_wait_whatever_its_size() {
    for policy in
        [SlowConsumer::Disconnect, SlowConsumer::DropNewest, SlowConsumer::DropOldest, SlowConsumer::KeepLatest]
    {
        let mut bench = Bench::policy(policy(10));
        let large = "x".repeat(100_000);
        assert!(matches!(bench.send(&large), Delivery::Queued(_)));
        assert_eq!(bench.read(), ["first", &large]);
        assert_eq!(bench.shard.handler().drained, 1);
    }
}

#[test]
fn control_frames_pass_what_waits() {
    let mut bench = Bench::policy(SlowConsumer::Disconnect(1 << 20));
    bench.send("waits");
    bench.act(|conn| conn.ping(b"!")).unwrap();
    bench.kernel.push(Event::Bytes(0, vec![0x89, 0x81, 0, 0, 0, 0, b'?']));
    bench.turn();
    assert_eq!(bench.read(), ["first", "89 !", "8a ?", "waits"]);
}

#[test]
fn a_stuck_peer_gets_a_bounded_number_of_pongs() {
    let mut bench = Bench::policy(SlowConsumer::Disconnect(1 << 20));
    for _ in 0..100 {
        bench.kernel.push(Event::Bytes(0, [0x89, 0x80, 0, 0, 0, 0].repeat(1000)));
    }
    bench.turn();
    assert!(bench.act(|conn| conn.buffered()) < 5000);
    let read = bench.read();
    assert_eq!(read[0], "first");
    assert!(read[1..].iter().all(|frame| frame == "8a "));
}

#[test]
fn a_broken_connection_drops_what_waits() {
    let mut bench = Bench::policy(SlowConsumer::Disconnect(1 << 20));
    bench.send("a");
    bench.kernel.push(Event::Failed(0));
    bench.turn();
    assert!(matches!(
        bench.shard.handler().closed[..],
        [Closed { code: CloseCode::ABNORMAL, cause: Cause::Io(_), .. }]
    ));
    assert_eq!(bench.kernel.with(0, |wire| wire.closed), Some(true));
    assert_eq!(bench.shard.counters().connections, 0);
}

#[test]
fn closing_delivers_what_waits_first() {
    let mut bench = Bench::policy(SlowConsumer::Disconnect(1 << 20));
    bench.send("a");
    bench.act(|conn| {
        conn.text("b");
        conn.close(CloseCode::NORMAL, "done");
        assert_eq!(conn.text("c"), Delivery::Closed);
    });
    assert_eq!(bench.read(), ["first", "a", "b", "88 \u{3}\u{fffd}done"]);
    assert_eq!(bench.shard.handler().drained, 0);
    assert!(bench.kernel.with(0, |wire| !wire.finished));
    bench.kernel.push(Event::Bytes(0, vec![0x88, 0x82, 0, 0, 0, 0, 3, 232]));
    bench.turn();
    assert!(bench.kernel.with(0, |wire| wire.finished));
    assert!(matches!(bench.shard.handler().closed[..], [Closed { code: CloseCode::NORMAL, cause: Cause::Local, .. }]));
}

#[test]
fn the_close_deadline_counts_from_the_close_frame() {
    let mut config = Config::default();
    config.deadlines.close = Duration::from_millis(100);
    let mut bench = Bench::new(config);
    bench.send("waits");
    bench.act(|conn| conn.close(CloseCode::NORMAL, ""));
    bench.wait(Duration::from_millis(300));
    assert!(bench.shard.handler().closed.is_empty());
    assert_eq!(bench.read(), ["waits", "88 \u{3}\u{fffd}"]);
    assert!(bench.shard.handler().closed.is_empty());
    bench.wait(Duration::from_millis(300));
    let [closed] = &bench.shard.handler().closed[..] else { panic!("one end") };
    assert!(matches!(closed.cause, Cause::Timeout(Deadline::Close)), "{closed:?}");
}

#[test]
fn the_send_deadline_is_for_those_who_take_nothing() {
    let mut config = Config::default();
    config.deadlines.send = Duration::from_millis(200);
    let mut bench = Bench::new(config);
    bench.send(&"x".repeat(1000));
    for _ in 0..5 {
        bench.wait(Duration::from_millis(100));
        bench.kernel.push(Event::Room(0, 1));
    }
    assert!(bench.shard.handler().closed.is_empty());
    bench.wait(Duration::from_millis(600));
    let [closed] = &bench.shard.handler().closed[..] else { panic!("one end") };
    assert!(matches!(closed.cause, Cause::Timeout(Deadline::Send)), "{closed:?}");
    // What is unsent is given up.
    assert_eq!(bench.kernel.with(0, |wire| wire.closed), Some(true));
}

#[test]
fn fragments_are_never_dropped_once_taken() {
    let mut bench = Bench::policy(SlowConsumer::DropOldest(COST + 1));
    let fragment =
        |text: &'static str, last| move |conn: &mut Conn<'_, ()>| conn.fragment(Kind::Text, text.as_bytes(), last);
    assert!(matches!(bench.act(fragment("a", false)), Delivery::Queued(_)));
    assert!(matches!(bench.act(fragment("b", false)), Delivery::Queued(_)));
    // More than the limit waits now.
    assert_eq!(bench.act(fragment("c", false)), Delivery::Dropped);
    assert_eq!(bench.read(), ["first", "1 a", "0 b"]);
    assert_eq!(bench.shard.handler().drained, 1);
    assert_eq!(bench.act(fragment("c", true)), Delivery::Sent);
    assert_eq!(bench.read(), ["80 c"]);
}

#[test]
fn a_message_inside_a_streamed_one_is_refused_and_not_lost_silently() {
    let mut bench = Bench::policy(SlowConsumer::Disconnect(1 << 20));
    let fragment =
        |text: &'static str, last| move |conn: &mut Conn<'_, ()>| conn.fragment(Kind::Text, text.as_bytes(), last);
    // While all of it waits, and while nothing does.
    for round in 0..2 {
        let fragments = if round == 0 { ["first", "1 a", "80 b"].as_slice() } else { &["1 a", "80 b"] };
        bench.act(fragment("a", false));
        assert_eq!(bench.send("between"), Delivery::Dropped);
        bench.act(|conn| {
            conn.subscribe("topic");
            conn.publish("topic", Outgoing::text("between"));
        });
        bench.turn();
        assert_eq!(bench.shard.counters().messages_dropped, 2 * (round + 1));
        bench.act(fragment("b", true));
        assert!(matches!(bench.send("behind"), Delivery::Sent | Delivery::Queued(_)));
        assert_eq!(bench.read(), [fragments, &["behind"]].concat());
    }
}

#[test]
fn a_feed_from_on_drain_goes_on_without_events() {
    let mut bench = Bench::new(Config::default());
    bench.kernel.push(Event::Room(0, usize::MAX));
    bench.turn();
    let text = "x".repeat(1000);
    let mut left = 50_000;
    bench.shard.handler().on_drain = Some(Box::new(move |conn| {
        while left > 0 {
            left -= 1;
            if matches!(conn.text(&text), Delivery::Queued(_)) {
                return;
            }
        }
    }));
    bench.act(|conn| while conn.text("to begin with") == Delivery::Sent {});
    // Each turn may ask again a few times, and none may wait.
    let mut received = 0;
    for _ in 0..50 {
        bench.turn();
        received += bench.kernel.received(0).len();
    }
    assert!(received > 50_000 * 1000, "{received}");
}

#[test]
fn sending_much_at_once_makes_nobody_slow() {
    let text = "x".repeat(1000);
    for policy in
        [SlowConsumer::Disconnect, SlowConsumer::DropNewest, SlowConsumer::DropOldest, SlowConsumer::KeepLatest]
    {
        let mut bench = Bench::new(Config { slow_consumer: policy(1 << 20), ..Config::default() });
        bench.kernel.push(Event::Room(0, usize::MAX));
        bench.turn();
        let deliveries: Vec<_> = bench.act(|conn| (0..10_000).map(|_| conn.text(&text)).collect());
        // What is more than one batch is said to wait, so that a loop that sends until something waits comes to its end.
        let first = deliveries.iter().position(|delivery| matches!(delivery, Delivery::Queued(_))).unwrap();
        assert!(first < 300, "{first}");
        assert!(deliveries.iter().all(|delivery| matches!(delivery, Delivery::Sent | Delivery::Queued(_))));
        assert_eq!(frames(&bench.kernel.received(0)).len(), 10_000);
        assert_eq!(bench.shard.counters().messages_dropped, 0);
        assert_eq!(bench.shard.handler().drained, 1);
    }
    // Fragments too, which are refused only where the kernel takes no more.
    let mut bench = Bench::new(Config::default());
    bench.kernel.push(Event::Room(0, usize::MAX));
    bench.turn();
    bench.act(|conn| {
        for _ in 0..10_000 {
            assert_ne!(conn.fragment(Kind::Text, text.as_bytes(), false), Delivery::Dropped);
        }
    });
    assert_eq!(frames(&bench.kernel.received(0)).len(), 10_000);
}

#[test]
fn publishing_much_at_once_makes_nobody_slow() {
    let mut bench = Bench::new(Config::default());
    bench.kernel.push(Event::Room(0, usize::MAX));
    bench.turn();
    let text = "x".repeat(1000);
    bench.act(|conn| {
        conn.subscribe("feed");
        for _ in 0..10_000 {
            conn.publish("feed", Outgoing::text(&text));
        }
    });
    assert_eq!(frames(&bench.kernel.received(0)).len(), 10_000);
    assert!(bench.shard.handler().closed.is_empty());
    assert_eq!(bench.shard.counters().messages_dropped, 0);
    // A kernel that takes some of it begins to count as a slow reader only then.
    let mut bench = Bench::new(Config { slow_consumer: SlowConsumer::DropNewest(1 << 20), ..Config::default() });
    bench.kernel.push(Event::Room(0, 5_000_000));
    bench.turn();
    bench.act(|conn| {
        conn.subscribe("feed");
        for _ in 0..10_000 {
            conn.publish("feed", Outgoing::text(&text));
        }
    });
    let dropped = bench.shard.counters().messages_dropped;
    assert!((3_000..4_500).contains(&dropped), "{dropped}");
    assert_eq!(bench.read().len() as u64, 10_000 - dropped);
}

#[test]
fn answers_hold_back_input_to_the_message() {
    let mut config = Config::default();
    config.limits.pause_receive_above = 10;
    let mut bench = Bench::new(config);
    let all: Vec<String> = (0..100).map(|i| format!("message {i}")).collect();
    bench.kernel.push(Event::Bytes(0, all.iter().flat_map(|text| masked(text)).collect()));
    bench.kernel.push(Event::Bytes(0, masked("last")));
    bench.turn();
    // All of one read is answered at once, and then the kernel takes nothing.
    assert_eq!(bench.shard.handler().seen, all);
    assert!(bench.kernel.with(0, |wire| wire.paused));
    bench.turn();
    assert_eq!(bench.shard.handler().seen.len(), 100);
    let read = bench.read();
    assert_eq!(read[..100], all);
    assert_eq!(read[100..], ["last"]);
    assert!(bench.kernel.with(0, |wire| !wire.paused));
}

#[test]
fn a_full_queue_of_answers_holds_back_the_rest_of_a_read() {
    let mut bench = Bench::policy(SlowConsumer::Disconnect(1 << 20));
    let all: Vec<String> = (0..40_000).map(|i| (i % 10).to_string()).collect();
    bench.kernel.push(Event::Bytes(0, all.iter().flat_map(|text| masked(text)).collect()));
    bench.turn();
    let taken = bench.shard.handler().seen.len();
    // Beyond 256 KiB of them, at 65 bytes each, the rest waits undecoded.
    assert!((4_000..4_100).contains(&taken), "{taken}");
    assert!(bench.shard.handler().closed.is_empty());
    let read = bench.read();
    assert_eq!(read[0], "first");
    assert_eq!(read[1..], all);
}

#[test]
fn what_others_send_does_not_silence_a_slow_reader() {
    let mut bench = Bench::policy(SlowConsumer::DropOldest(1 << 20));
    let large = "x".repeat(1000);
    for _ in 0..2000 {
        bench.send(&large);
    }
    bench.kernel.push(Event::Bytes(0, masked("hello?")));
    bench.turn();
    assert_eq!(bench.shard.handler().seen, ["hello?"]);
    // Its own answer waits behind all that.
    assert!(bench.kernel.with(0, |wire| wire.paused));
    let read = bench.read();
    assert_eq!(read.last().map(String::as_str), Some("hello?"));
    assert!(bench.kernel.with(0, |wire| !wire.paused));
}

#[test]
fn a_stuck_reader_that_speaks_is_not_idle() {
    let mut config = Config { slow_consumer: SlowConsumer::DropOldest(1 << 20), ..Config::default() };
    config.deadlines.ping = Some(Duration::from_millis(50));
    config.deadlines.idle = Some(Duration::from_millis(200));
    let mut bench = Bench::new(config);
    let large = "x".repeat(100_000);
    for _ in 0..50 {
        bench.send(&large);
        bench.kernel.push(Event::Bytes(0, vec![0x8a, 0x80, 0, 0, 0, 0]));
        bench.wait(Duration::from_millis(15));
    }
    assert!(bench.shard.handler().closed.is_empty());
    assert!(bench.shard.counters().messages_dropped > 0);
    bench.wait(Duration::from_millis(400));
    let [closed] = &bench.shard.handler().closed[..] else { panic!("one end") };
    assert!(matches!(closed.cause, Cause::Timeout(Deadline::Idle)), "{closed:?}");
}

#[test]
fn an_application_pauses_to_the_message() {
    let mut bench = Bench::new(Config::default());
    bench.kernel.push(Event::Room(0, usize::MAX));
    bench.turn();
    bench.shard.handler().pause_at = Some("b".into());
    bench.kernel.push(Event::Bytes(0, ["a", "b", "c", "b", "d"].map(masked).concat()));
    bench.turn();
    assert_eq!(bench.shard.handler().seen, ["a", "b"]);
    bench.act(|conn| conn.pause(false));
    assert_eq!(bench.shard.handler().seen, ["a", "b", "c", "b"]);
    bench.act(|conn| conn.pause(false));
    assert_eq!(bench.shard.handler().seen, ["a", "b", "c", "b", "d"]);
    bench.shard.handler().pause_at = None;
    assert_eq!(bench.read(), ["a", "b", "c", "b", "d"]);
}

#[test]
fn a_paused_connection_is_pinged_so_that_its_end_is_noticed() {
    let mut config = Config::default();
    config.deadlines.ping = Some(Duration::from_millis(50));
    config.deadlines.idle = Some(Duration::from_millis(100));
    let mut bench = Bench::new(config);
    bench.kernel.push(Event::Room(0, usize::MAX));
    bench.act(|conn| conn.pause(true));
    bench.wait(Duration::from_millis(600));
    assert!(bench.shard.handler().closed.is_empty());
    let read = bench.read();
    assert!(read.len() > 2 && read.iter().all(|frame| frame == "89 "), "{read:?}");
    // Once it can be heard again, it has to speak.
    bench.act(|conn| conn.pause(false));
    bench.wait(Duration::from_millis(400));
    assert_eq!(bench.shard.handler().closed.len(), 1);
}

#[test]
fn a_paused_connection_can_be_closed() {
    let mut bench = Bench::new(Config::default());
    bench.kernel.push(Event::Room(0, usize::MAX));
    bench.act(|conn| conn.pause(true));
    assert!(bench.kernel.with(0, |wire| wire.paused));
    bench.act(|conn| conn.close(CloseCode::NORMAL, ""));
    assert!(bench.kernel.with(0, |wire| !wire.paused));
    bench.kernel.push(Event::Bytes(0, vec![0x88, 0x80, 0, 0, 0, 0]));
    bench.turn();
    assert!(matches!(
        bench.shard.handler().closed[..],
        [Closed { code: CloseCode::NO_STATUS, cause: Cause::Local, .. }]
    ));
}
