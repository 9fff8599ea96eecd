//! When reading from a peer pauses, and the deadlines of peers.

use crate::bench::{Bench, masked};
use crate::fake::Event;
use std::time::Duration;
use tautline_engine::{Cause, Closed, Config, Deadline, SlowConsumer};
use tautline_ws::CloseCode;

#[test]
fn the_close_deadline_counts_from_the_close_frame() {
    let mut config = Config::default();
    config.deadlines.close = Duration::from_millis(500);
    let mut bench = Bench::new(config);
    bench.send("waits");
    bench.act(|conn| conn.close(CloseCode::NORMAL, ""));
    bench.wait(Duration::from_millis(700));
    assert!(bench.shard.handler().closed.is_empty());
    assert_eq!(bench.read(), ["waits", "88 \u{3}\u{fffd}"]);
    assert!(bench.shard.handler().closed.is_empty());
    bench.wait(Duration::from_millis(1000));
    let [closed] = &bench.shard.handler().closed[..] else { panic!("one end") };
    assert!(matches!(closed.cause, Cause::Timeout(Deadline::Close)), "{closed:?}");
}

#[test]
fn the_send_deadline_spares_a_peer_that_takes_some_bytes() {
    let mut config = Config::default();
    config.deadlines.send = Duration::from_millis(600);
    let mut bench = Bench::new(config);
    bench.send(&"x".repeat(1000));
    for _ in 0..15 {
        bench.wait(Duration::from_millis(60));
        bench.kernel.push(Event::Room(0, 1));
    }
    assert!(bench.shard.handler().closed.is_empty());
    bench.wait(Duration::from_millis(1200));
    let [closed] = &bench.shard.handler().closed[..] else { panic!("one end") };
    assert!(matches!(closed.cause, Cause::Timeout(Deadline::Send)), "{closed:?}");
    // The unsent bytes are discarded by a reset.
    assert_eq!(bench.kernel.with(0, |wire| wire.closed), Some(true));
}

#[test]
fn unread_answers_pause_reading() {
    let mut config = Config::default();
    config.limits.pause_receive_above = 10;
    let mut bench = Bench::new(config);
    let all: Vec<String> = (0..100).map(|i| format!("message {i}")).collect();
    bench.kernel.push(Event::Bytes(0, all.iter().flat_map(|text| masked(text)).collect()));
    bench.kernel.push(Event::Bytes(0, masked("last")));
    bench.turn();
    // All messages of one read are answered at once. Then the kernel takes no more bytes.
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
fn too_many_answers_hold_back_the_rest_of_a_read() {
    let mut bench = Bench::policy(SlowConsumer::Disconnect(1 << 20));
    let all: Vec<String> = (0..40_000).map(|i| (i % 10).to_string()).collect();
    bench.kernel.push(Event::Bytes(0, all.iter().flat_map(|text| masked(text)).collect()));
    let mut before = 0;
    // A turn may end before so many were answered.
    let taken = loop {
        bench.turn();
        let taken = bench.shard.handler().seen.len();
        if taken == before {
            break taken;
        }
        before = taken;
    };
    // Each answer counts 65 bytes. Beyond 256 KiB the rest of the read waits undecoded.
    assert!((4_000..4_100).contains(&taken), "{taken}");
    assert!(bench.shard.handler().closed.is_empty());
    let read = bench.read();
    assert_eq!(read[0], "first");
    assert!(read[1..] == all, "{} answers", read.len());
}

#[test]
fn messages_from_elsewhere_do_not_pause_a_slow_reader() {
    let mut bench = Bench::policy(SlowConsumer::DropOldest(1 << 20));
    let large = "x".repeat(1000);
    for _ in 0..2000 {
        bench.send(&large);
    }
    bench.kernel.push(Event::Bytes(0, masked("hello?")));
    bench.turn();
    assert_eq!(bench.shard.handler().seen, ["hello?"]);
    // The answer to its own message waits behind them, which pauses it.
    assert!(bench.kernel.with(0, |wire| wire.paused));
    let read = bench.read();
    assert_eq!(read.last().map(String::as_str), Some("hello?"));
    assert!(bench.kernel.with(0, |wire| !wire.paused));
}

#[test]
fn a_stuck_reader_that_sends_is_not_idle() {
    let mut config = Config::default();
    config.slow_consumer = SlowConsumer::DropOldest(1 << 20);
    config.deadlines.ping = Some(Duration::from_millis(50));
    config.deadlines.idle = Some(Duration::from_millis(600));
    let mut bench = Bench::new(config);
    let large = "x".repeat(100_000);
    for _ in 0..50 {
        bench.send(&large);
        bench.kernel.push(Event::Bytes(0, vec![0x8a, 0x80, 0, 0, 0, 0]));
        bench.wait(Duration::from_millis(15));
    }
    assert!(bench.shard.handler().closed.is_empty());
    assert!(bench.shard.counters().messages_dropped > 0);
    bench.wait(Duration::from_millis(1200));
    let [closed] = &bench.shard.handler().closed[..] else { panic!("one end") };
    assert!(matches!(closed.cause, Cause::Timeout(Deadline::Idle)), "{closed:?}");
}

#[test]
fn an_application_pauses_after_a_message() {
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
fn a_paused_connection_is_pinged_and_never_idle() {
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
    // Once reading resumes, the idle deadline runs again.
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
