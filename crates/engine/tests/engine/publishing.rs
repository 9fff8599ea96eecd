//! Published messages reach many subscribers in bounded batches, in order.

use crate::bench::{App, frames};
use crate::fake::{Event, Fake};
use std::sync::Arc;
use std::time::Duration;
use tautline_engine::{Config, Conn, Outgoing, Shard, ShardHandleError};
use tautline_tls::plain;
use tautline_ws::CloseCode;

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

/// Messages that one turn may deliver: two batches.
const MOST_PER_TURN: usize = 2 * 512;

struct Crowd {
    kernel: Fake,
    shard: Shard<plain::Engine, App>,
    count: u32,
}

impl Crowd {
    /// Open connections that read everything. All are subscribed to `a` and `b`.
    fn new(count: u32) -> Self {
        let kernel = Fake::default();
        let shard = Shard::new(0, Arc::new(Config::default()), plain::Engine, kernel.clone(), App::default()).unwrap();
        kernel.0.borrow_mut().room = usize::MAX;
        let mut crowd = Self { kernel, shard, count };
        for index in 0..count {
            crowd.kernel.push(Event::Accept);
            crowd.kernel.push(Event::Bytes(index, UPGRADE.to_vec()));
            // A turn has little time for connections that open.
            while (index % 500 == 499 || index + 1 == count) && crowd.shard.handler().conns.len() <= index as usize {
                crowd.turn();
            }
        }
        for index in 0..count {
            crowd.kernel.received(index);
            crowd.subscribe(index, "a", true);
            crowd.subscribe(index, "b", true);
        }
        crowd
    }

    fn turn(&mut self) {
        self.shard.turn(None).unwrap();
    }

    fn subscribe(&mut self, index: u32, topic: &str, on: bool) {
        let conn = self.shard.handler().conns[index as usize];
        let act = |conn: &mut Conn<'_, ()>| {
            if on {
                assert!(conn.subscribe(topic));
            } else {
                conn.unsubscribe(topic);
            }
        };
        self.shard.with_conn(conn, |_, conn| act(conn)).unwrap();
    }

    fn publish(&self, topic: &str, text: &str) -> Result<(), ShardHandleError> {
        self.shard.handle().publish(topic, Outgoing::text(text))
    }

    fn bytes(&self) -> usize {
        (0..self.count).map(|index| self.kernel.with(index, |wire| wire.received.len())).sum()
    }

    /// Whether the shard would sleep now: it asked the driver to wait without an end.
    fn rests(&self) -> bool {
        self.kernel.0.borrow().waits.last().is_some_and(|wait| *wait != Some(Duration::ZERO))
    }

    /// Turns until the shard would sleep. Returns the most bytes sent in a turn.
    fn settle(&mut self) -> usize {
        let (mut most, mut before) = (0, self.bytes());
        loop {
            self.turn();
            let sent = self.bytes() - before;
            most = most.max(sent);
            before += sent;
            if sent == 0 && self.rests() {
                return most;
            }
        }
    }

    fn read(&self, index: u32) -> Vec<String> {
        frames(&self.kernel.received(index))
    }
}

#[test]
fn a_turn_delivers_no_more_at_10_n_than_at_n() {
    for count in [2_000, 20_000] {
        let mut crowd = Crowd::new(count);
        crowd.settle();
        crowd.publish("a", "news").unwrap();
        let most = crowd.settle();
        // A frame of four bytes takes six.
        assert_eq!(most, 6 * MOST_PER_TURN, "{count}");
        for index in 0..count {
            assert_eq!(crowd.read(index), ["news"], "{index}");
        }
    }
}

#[test]
fn a_turn_sends_a_message_to_all_in_batches() {
    for count in [2_000, 10_000] {
        let mut crowd = Crowd::new(count);
        crowd.settle();
        let handle = crowd.shard.handle();
        handle.broadcast(Outgoing::text("news")).unwrap();
        handle.publish("b", Outgoing::text("more")).unwrap();
        handle.broadcast(Outgoing::text("last")).unwrap();
        let most = crowd.settle();
        assert!(most <= 6 * MOST_PER_TURN, "{most} at {count}");
        for index in 0..count {
            assert_eq!(crowd.read(index), ["news", "more", "last"], "{index}");
        }
    }
}

#[test]
fn a_turn_of_a_drain_closes_no_more_at_10_n_than_at_n() {
    for count in [2_000, 20_000] {
        let mut crowd = Crowd::new(count);
        crowd.settle();
        crowd.shard.handle().drain(CloseCode::GOING_AWAY, "bye", Duration::from_secs(60)).unwrap();
        let most = crowd.settle();
        // A close frame with a reason of three bytes takes seven.
        assert_eq!(most, 7 * 512, "{count}");
        assert_eq!(crowd.bytes(), 7 * count as usize);
    }
}

#[test]
fn each_connection_gets_all_messages_in_order() {
    let mut crowd = Crowd::new(1_500);
    let mut expected = Vec::new();
    for number in 0..40 {
        let topic = if number % 7 < 4 { "a" } else { "b" };
        let text = format!("{topic}{number}");
        crowd.publish(topic, &text).unwrap();
        expected.push(text);
        if number % 5 == 0 {
            crowd.turn();
        }
    }
    crowd.settle();
    for index in 0..crowd.count {
        assert!(crowd.read(index) == expected, "{index}");
    }
}

#[test]
fn who_leaves_gets_nothing_and_who_joins_gets_later_messages() {
    let mut crowd = Crowd::new(3_000);
    for index in 0..10 {
        crowd.subscribe(index, "a", false);
    }
    crowd.settle();
    crowd.publish("a", "one").unwrap();
    crowd.turn();
    // The walk begins with the last subscriber, so these are not served yet.
    let leave = 10..40;
    assert!(leave.clone().all(|index| crowd.kernel.with(index, |wire| wire.received.is_empty())));
    for index in leave {
        crowd.subscribe(index, "a", false);
    }
    for index in 0..10 {
        crowd.subscribe(index, "a", true);
    }
    crowd.kernel.push(Event::Failed(50));
    crowd.settle();
    crowd.publish("a", "two").unwrap();
    crowd.settle();
    for index in (0..crowd.count).filter(|&index| index != 50) {
        let expected: &[&str] = match index {
            0..10 => &["two"],
            10..40 => &[],
            _ => &["one", "two"],
        };
        assert!(crowd.read(index) == expected, "{index}");
    }
}

/// Waiting messages are bounded: the commands stay in their queue, whose bound the callers see.
#[test]
fn a_burst_of_publications_arrives_whole() {
    let mut crowd = Crowd::new(3);
    crowd.settle();
    for number in 0..5_000 {
        crowd.publish("a", &number.to_string()).unwrap();
    }
    crowd.settle();
    let expected: Vec<_> = (0..5_000).map(|number| number.to_string()).collect();
    for index in 0..3 {
        assert!(crowd.read(index) == expected, "{index}");
    }
}
