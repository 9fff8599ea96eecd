//! Times of sends over the fake driver.

use super::{SendStage, SendTimes, Stamps};
use crate::fake::{Event, Fake};
use crate::{Config, Conn, ConnId, Delivery, Handler, Outgoing, Shard, ShardContext};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tautline_io::{Arrival, Clock};
use tautline_tls::plain;
use tautline_ws::Message;

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

/// A client's frame with the mask key 0.
const PRICE: &[u8] = b"\x81\x85\0\0\0\0price";

/// Sends an order for each price.
#[derive(Default)]
struct Strategy {
    /// Orders of a price.
    orders: u64,
    /// The connection to send to, if it is another one.
    to: Option<ConnId>,
    conns: Vec<ConnId>,
    id: u64,
    deliveries: Vec<Delivery>,
    sent: Vec<SendTimes>,
}

impl Handler for Strategy {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _: &crate::Opening<'_>) {
        self.conns.push(conn.id());
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, _: Message<'_>) {
        for _ in 0..self.orders {
            self.id += 1;
            match self.to {
                None => self.deliveries.push(conn.send_timed(Outgoing::text("buy"), self.id)),
                Some(to) => conn.shard().send_timed(to, Outgoing::text("buy"), self.id),
            }
        }
    }

    fn on_sent(&mut self, _: &mut ShardContext<'_>, times: &SendTimes) {
        self.sent.push(*times);
    }
}

type Loop = Shard<plain::Engine, Strategy>;

fn open(stamps: bool, with_probe: bool, orders: u64) -> (Fake, Loop) {
    let kernel = Fake::default();
    let app = Strategy { orders, ..Strategy::default() };
    let mut shard = Shard::new(0, Arc::new(Config::default()), plain::Engine, kernel.clone(), app).unwrap();
    if with_probe {
        shard.set_probe(Box::new(Stamps::default()));
    }
    kernel.0.borrow_mut().room = usize::MAX;
    kernel.0.borrow_mut().stamp = stamps.then_some(7);
    for index in 0..2 {
        kernel.push(Event::Accept);
        kernel.push(Event::Bytes(index, UPGRADE.to_vec()));
    }
    while shard.handler().conns.len() < 2 {
        shard.turn(Some(Duration::ZERO)).unwrap();
    }
    (kernel, shard)
}

fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

fn turn(kernel: &Fake, shard: &mut Loop, event: Event) {
    kernel.push(event);
    shard.turn(Some(Duration::ZERO)).unwrap();
}

#[test]
fn a_stamp_times_all_that_left_with_its_send() {
    let (kernel, mut shard) = open(true, true, 2);
    let arrived = now() - 50_000_000;
    kernel.0.borrow_mut().arrival = Some(Arrival { clock: Clock::Realtime, nanos: arrived });
    turn(&kernel, &mut shard, Event::Bytes(0, PRICE.to_vec()));
    assert_eq!(shard.handler().deliveries, [Delivery::Sent; 2]);
    assert_eq!(shard.handler().sent.len(), 0, "no stamp has come");
    // A stamp of another send, and of another connection.
    turn(&kernel, &mut shard, Event::Departed(0, 6, now()));
    turn(&kernel, &mut shard, Event::Departed(1, 7, now()));
    assert_eq!(shard.handler().sent.len(), 0);
    let departed = now() + 100_000_000;
    turn(&kernel, &mut shard, Event::Departed(0, 7, departed));
    let sent = shard.handler().sent.clone();
    let conn = shard.handler().conns[0];
    assert_eq!(sent.iter().map(|times| (times.id, times.conn)).collect::<Vec<_>>(), [(1, conn), (2, conn)]);
    for times in sent {
        assert_eq!(times.sent_at, Some(UNIX_EPOCH + Duration::from_nanos(departed)));
        let (written, sent) = (times.written.unwrap(), times.sent.unwrap());
        assert!(written < sent && sent >= Duration::from_millis(99), "{times:?}");
        let all = times.tick_to_trade.unwrap();
        let expected = Duration::from_nanos(departed - arrived);
        assert!(all.abs_diff(expected) < Duration::from_millis(2), "{times:?}, not {expected:?}");
    }
    // The stamp of a segment that was sent again.
    turn(&kernel, &mut shard, Event::Departed(0, 7, departed));
    assert_eq!(shard.handler().sent.len(), 2);
    let stages = shard.stages().unwrap();
    assert_eq!(stages.sends(), (2, 0));
    let [write, kernel, sent, trade] = SendStage::ALL.map(|stage| stages.send_spread(stage));
    assert_eq!([write.count, kernel.count, sent.count, trade.count], [2; 4]);
    assert!((write.mean + kernel.mean - sent.mean).abs() < 1.0 + sent.mean / 100.0, "{stages}");
    assert!(trade.min > 149e3 && sent.max < trade.min, "{stages}");
    let table = stages.to_string();
    assert!(table.contains("\ntrade ") && table.contains("sends: 2 timed, 0 of them without"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 120), "{table}");
    let mut both = (*stages).clone();
    both.merge(&stages);
    assert_eq!(both.sends(), (4, 0));
    assert_eq!(both.since(&stages).send_spread(SendStage::Sent).count, 2);
}

#[test]
fn an_order_on_another_connection_is_timed_from_its_price() {
    let (kernel, mut shard) = open(true, true, 1);
    shard.handler().to = Some(shard.handler().conns[1]);
    kernel.0.borrow_mut().arrival = Some(Arrival { clock: Clock::Realtime, nanos: now() - 50_000_000 });
    turn(&kernel, &mut shard, Event::Bytes(0, PRICE.to_vec()));
    assert_eq!(kernel.received(1).last_chunk(), Some(b"buy"));
    turn(&kernel, &mut shard, Event::Departed(1, 7, now()));
    let [times] = shard.handler().sent[..] else { panic!("{:?}", shard.handler().sent) };
    assert_eq!(times.conn, shard.handler().conns[1]);
    assert!(times.tick_to_trade > Some(Duration::from_millis(49)), "{times:?}");
}

#[test]
fn a_driver_without_stamps_leaves_the_time_until_the_system_call() {
    let (kernel, mut shard) = open(false, true, 1);
    turn(&kernel, &mut shard, Event::Bytes(0, PRICE.to_vec()));
    let [times] = shard.handler().sent[..] else { panic!("{:?}", shard.handler().sent) };
    assert!(times.written.is_some() && times.sent.is_none() && times.sent_at.is_none(), "{times:?}");
    assert_eq!(shard.stages().unwrap().sends(), (1, 1));
}

#[test]
fn a_lost_stamp_is_waited_for_a_second_and_no_longer() {
    let (kernel, mut shard) = open(true, true, 1);
    turn(&kernel, &mut shard, Event::Bytes(0, PRICE.to_vec()));
    // The connection ends meanwhile.
    turn(&kernel, &mut shard, Event::Failed(0));
    let begin = Instant::now();
    while shard.handler().sent.is_empty() {
        shard.turn(None).unwrap();
        let wait = kernel.0.borrow().waits.last().copied().unwrap();
        assert!(wait.is_some_and(|wait| wait <= Duration::from_secs(1)), "the loop would sleep: {wait:?}");
        assert!(begin.elapsed() < Duration::from_secs(20), "nobody hears that no stamp came");
        std::thread::sleep(Duration::from_millis(10));
    }
    let times = shard.handler().sent[0];
    assert!(times.written.is_some() && times.sent.is_none(), "{times:?}");
    assert_eq!(shard.stages().unwrap().sends(), (1, 1));
}

#[test]
fn a_message_that_waits_for_a_slow_peer_is_reported_at_once() {
    let (kernel, mut shard) = open(true, true, 1);
    kernel.0.borrow_mut().wires.get_mut(&0).unwrap().room = 2;
    turn(&kernel, &mut shard, Event::Bytes(0, PRICE.to_vec()));
    // The kernel took a part: no stamp will come.
    turn(&kernel, &mut shard, Event::Bytes(0, PRICE.to_vec()));
    let sent = shard.handler().sent.clone();
    assert_eq!(
        sent.iter().map(|times| (times.id, times.written.is_some())).collect::<Vec<_>>(),
        [(1, true), (2, false)]
    );
    assert!(matches!(shard.handler().deliveries[..], [Delivery::Sent, Delivery::Queued(_)]));
}

#[test]
fn no_more_than_1024_sends_are_timed_at_once() {
    let (kernel, mut shard) = open(true, true, 1500);
    turn(&kernel, &mut shard, Event::Bytes(0, PRICE.to_vec()));
    assert_eq!(shard.handler().deliveries.len(), 1500);
    turn(&kernel, &mut shard, Event::Departed(0, 7, now()));
    assert_eq!(shard.handler().sent.len(), 1024);
    let table = shard.stages().unwrap().to_string();
    assert!(table.contains("sends: 1024 timed, 0 of them without the kernel's stamp, 476 not timed"), "{table}");
}

#[test]
fn without_a_probe_a_timed_send_is_a_send() {
    let (kernel, mut shard) = open(true, false, 1);
    turn(&kernel, &mut shard, Event::Bytes(0, PRICE.to_vec()));
    assert_eq!(kernel.received(0).last_chunk(), Some(b"buy"));
    assert_eq!((shard.handler().sent.len(), kernel.0.borrow().stamp), (0, Some(7)), "the driver was not asked");
}
