//! Messages for peers that do not read: the slow-consumer policies, message by message.

use crate::bench::{Bench, frames};
use crate::fake::Event;
use tautline_engine::{Cause, Closed, Config, Conn, Delivery, Outgoing, SlowConsumer};
use tautline_ws::{CloseCode, Kind};

/// Bytes that a message counts in the queue beside its payload.
const COST: usize = 64;

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
fn a_close_frame_does_not_vouch_for_messages_that_a_failure_drops() {
    let mut bench = Bench::policy(SlowConsumer::Disconnect(1 << 20));
    assert!(matches!(bench.send("lost"), Delivery::Queued(_)));
    bench.act(|conn| conn.close(CloseCode::new(4000), "bye"));
    // A client's frame without a mask.
    bench.kernel.push(Event::Bytes(0, vec![0x81, 0]));
    bench.turn();
    let frames = bench.read();
    assert_eq!((frames.len(), &frames[0][..]), (2, "first"));
    // 1002 and its reason, not 4000: that would say that everything before it has arrived.
    assert!(frames[1].starts_with("88 \u{3}\u{fffd}"), "{frames:?}");
}

#[test]
fn a_long_message_leaves_piece_by_piece() {
    let long = "0123456789abcdef".repeat(60_000);
    for room in [0, 1, 300_000, 700_000, usize::MAX] {
        let mut bench = Bench::new(Config::default());
        bench.kernel.push(Event::Room(0, room));
        bench.turn();
        let before = bench.shard.counters().bytes_out;
        let waiting = bench.act(|conn| {
            assert_eq!(conn.text("before"), Delivery::Sent);
            assert_eq!(conn.text(&long), Delivery::Sent);
            conn.buffered()
        });
        // Pieces leave as they are sealed: all but two have left before the call returns.
        assert!(room < usize::MAX || waiting < 600_000, "{waiting}");
        assert_eq!(bench.read(), ["before".to_owned(), long.clone()], "{room}");
        let sent = bench.shard.counters().bytes_out - before;
        assert_eq!(sent, 2 + 6 + 10 + long.len() as u64, "{room}");
        assert_eq!(bench.send("after"), Delivery::Sent);
        assert_eq!(bench.read(), ["after"]);
    }
}

#[test]
fn drop_oldest_keeps_what_is_new() {
    let mut bench = Bench::policy(SlowConsumer::DropOldest(2 * (COST + 1)));
    for text in ["a", "b", "c", "d"] {
        assert!(matches!(bench.send(text), Delivery::Queued(_)), "{text}");
    }
    assert_eq!(bench.shard.counters().messages_dropped, 2);
    // Longer than the limit: it drops all others and waits alone.
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
    // Larger than the message it replaces: the oldest ones are dropped until it fits.
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
fn control_frames_overtake_queued_messages() {
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
fn a_broken_connection_drops_queued_messages() {
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
fn closing_delivers_queued_messages_first() {
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
fn fragments_are_never_dropped_once_taken() {
    let mut bench = Bench::policy(SlowConsumer::DropOldest(COST + 1));
    let fragment =
        |text: &'static str, last| move |conn: &mut Conn<'_, ()>| conn.fragment(Kind::Text, text.as_bytes(), last);
    assert!(matches!(bench.act(fragment("a", false)), Delivery::Queued(_)));
    assert!(matches!(bench.act(fragment("b", false)), Delivery::Queued(_)));
    // The queue exceeds the limit now.
    assert_eq!(bench.act(fragment("c", false)), Delivery::Dropped);
    assert_eq!(bench.read(), ["first", "1 a", "0 b"]);
    assert_eq!(bench.shard.handler().drained, 1);
    assert_eq!(bench.act(fragment("c", true)), Delivery::Sent);
    assert_eq!(bench.read(), ["80 c"]);
}

#[test]
fn a_message_inside_a_streamed_one_is_reported_as_dropped() {
    let mut bench = Bench::policy(SlowConsumer::Disconnect(1 << 20));
    let fragment =
        |text: &'static str, last| move |conn: &mut Conn<'_, ()>| conn.fragment(Kind::Text, text.as_bytes(), last);
    // First while all fragments wait, then while nothing waits.
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
fn a_feed_from_on_drain_continues_without_events() {
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
    // A turn may end before all is sent, since a connection has a time in it. None waits for an event.
    let mut received = 0;
    while received <= 50_000 * 1000 {
        bench.turn();
        let sent = bench.kernel.received(0).len();
        assert!(sent > 0, "nothing was sent behind {received} bytes");
        received += sent;
    }
}

#[test]
fn a_burst_of_sends_does_not_make_a_reader_slow() {
    let text = "x".repeat(1000);
    for policy in
        [SlowConsumer::Disconnect, SlowConsumer::DropNewest, SlowConsumer::DropOldest, SlowConsumer::KeepLatest]
    {
        let mut config = Config::default();
        config.slow_consumer = policy(1 << 20);
        let mut bench = Bench::new(config);
        bench.kernel.push(Event::Room(0, usize::MAX));
        bench.turn();
        let deliveries: Vec<_> = bench.act(|conn| (0..10_000).map(|_| conn.text(&text)).collect());
        // Messages beyond one batch are reported as queued, so that a loop that sends until a message waits ends.
        let first = deliveries.iter().position(|delivery| matches!(delivery, Delivery::Queued(_))).unwrap();
        assert!(first < 300, "{first}");
        assert!(deliveries.iter().all(|delivery| matches!(delivery, Delivery::Sent | Delivery::Queued(_))));
        assert_eq!(frames(&bench.kernel.received(0)).len(), 10_000);
        assert_eq!(bench.shard.counters().messages_dropped, 0);
        assert_eq!(bench.shard.handler().drained, 1);
    }
    // Fragments too are dropped only if the kernel takes no more bytes.
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
fn a_burst_of_publications_does_not_make_a_reader_slow() {
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
    // The policy applies only once the kernel takes no more bytes.
    let mut config = Config::default();
    config.slow_consumer = SlowConsumer::DropNewest(1 << 20);
    let mut bench = Bench::new(config);
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
