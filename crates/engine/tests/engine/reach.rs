//! Connections and shards reached from outside of their loop, and timers.

use crate::bench;
use crate::bench::{App, Bench, frames};
use crate::fake::{Event, Fake};
use std::slice;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tautline_engine::{
    Cause, Closed, Config, Conn, ConnHandle, ConnId, Deadline, Handler, OnPanic, Outgoing, Receipt, Recipients, Shard,
    ShardContext, ShardHandle, ShardHandleError, SlowConsumer,
};
use tautline_tls::plain;
use tautline_ws::{CloseCode, Message};

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

/// Open connections that read everything.
struct Crowd {
    kernel: Fake,
    shard: Shard<plain::Engine, App>,
}

impl Crowd {
    fn new(count: u32, config: Config) -> Self {
        let kernel = Fake::default();
        kernel.0.borrow_mut().room = usize::MAX;
        let shard = Shard::new(0, Arc::new(config), plain::Engine, kernel.clone(), App::default()).unwrap();
        let mut crowd = Self { kernel, shard };
        for index in 0..count {
            crowd.kernel.push(Event::Accept);
            crowd.kernel.push(Event::Bytes(index, UPGRADE.to_vec()));
            crowd.turn();
        }
        for index in 0..count {
            crowd.kernel.received(index);
        }
        crowd
    }

    fn turn(&mut self) {
        self.shard.turn(Some(Duration::ZERO)).unwrap();
        self.shard.turn(Some(Duration::ZERO)).unwrap();
    }

    fn act<R>(&mut self, index: usize, act: impl FnOnce(&mut Conn<'_, ()>) -> R) -> R {
        let conn = self.shard.handler().conns[index];
        self.shard.with_conn(conn, |_, conn| act(conn)).unwrap()
    }

    fn handle(&mut self, index: usize) -> ConnHandle {
        self.act(index, |conn| conn.handle())
    }

    fn read(&mut self, index: u32) -> Vec<String> {
        self.turn();
        frames(&self.kernel.received(index))
    }

    fn read_all<const N: usize>(&mut self) -> [Vec<String>; N] {
        self.turn();
        std::array::from_fn(|index| frames(&self.kernel.received(u32::try_from(index).unwrap())))
    }
}

#[test]
fn calls_from_another_thread_run_in_order_and_leave_together() {
    let mut crowd = Crowd::new(1, Config::default());
    let handle = crowd.handle(0);
    std::thread::spawn(move || {
        for number in 0..10 {
            let act = move |app: &mut App, conn: &mut Conn<'_, ()>| {
                app.seen.push(format!("call {number}"));
                conn.text(&number.to_string());
            };
            handle.with_conn(act).unwrap();
            handle.send(Outgoing::text("between")).unwrap();
        }
    })
    .join()
    .unwrap();
    let expected: Vec<_> = (0..10).flat_map(|number| [number.to_string(), "between".to_owned()]).collect();
    assert_eq!(crowd.read(0), expected);
    assert_eq!(crowd.shard.handler().seen.len(), 10);
}

#[test]
fn a_handle_reports_the_end_of_its_connection() {
    let mut crowd = Crowd::new(2, Config::default());
    let handles = [crowd.handle(0), crowd.handle(1)];
    assert!(handles.iter().all(ConnHandle::is_open));
    assert_eq!(handles[0].id(), crowd.shard.handler().conns[0]);
    handles[1].close(CloseCode::NORMAL, "enough").unwrap();
    crowd.kernel.push(Event::Failed(0));
    crowd.turn();
    assert!(!handles[0].is_open());
    for result in [
        handles[0].send(Outgoing::text("late")),
        handles[0].publish("topic", Outgoing::text("late")),
        handles[0].subscribe("topic"),
        handles[0].close(CloseCode::NORMAL, ""),
        handles[0].reconnect(),
        handles[0].with_conn(|_: &mut App, _| panic!("nobody is there")),
    ] {
        assert_eq!(result, Err(ShardHandleError::Ended));
    }
    assert_eq!(crowd.read(1), ["88 \u{3}\u{fffd}enough"]);
    drop(crowd);
    assert!(!handles[1].is_open());
    assert_eq!(handles[1].send(Outgoing::text("late")), Err(ShardHandleError::Stopped));
}

#[test]
fn a_call_for_another_handler_is_refused() {
    struct Other;
    impl Handler for Other {
        type State = ();
        fn on_message(&mut self, _: &mut Conn<'_, ()>, _: Message<'_>) {}
    }
    let mut crowd = Crowd::new(1, Config::default());
    assert_eq!(crowd.handle(0).with_conn(|_: &mut Other, _| ()), Err(ShardHandleError::OtherHandler));
    let shard = crowd.shard.handle();
    assert_eq!(shard.with_handler(|_: &mut Other, _| ()), Err(ShardHandleError::OtherHandler));
    let (sender, calls) = channel();
    shard.with_handler(move |app: &mut App, shard| sender.send((app.conns.len(), shard.number())).unwrap()).unwrap();
    crowd.turn();
    assert_eq!(calls.try_recv(), Ok((1, 0)));
}

#[test]
fn a_call_that_panics_closes_its_connection_alone() {
    let mut config = Config::default();
    config.on_panic = OnPanic::CloseConnection;
    let mut crowd = Crowd::new(2, config);
    let handles = [crowd.handle(0), crowd.handle(1)];
    handles[0].with_conn(|_: &mut App, _| panic!("as the test wants")).unwrap();
    handles[1].send(Outgoing::text("still here")).unwrap();
    let [first, second] = crowd.read_all();
    assert_eq!((first.len(), &second[..]), (1, &["still here".to_owned()][..]), "{first:?}");
    assert!(matches!(crowd.shard.handler().closed[..], [Closed { cause: Cause::Panicked, .. }]));
}

#[test]
fn handles_subscribe_and_publish() {
    let mut crowd = Crowd::new(3, Config::default());
    let handles: [_; 3] = std::array::from_fn(|index| crowd.handle(index));
    handles[0].subscribe("news.local").unwrap();
    handles[1].subscribe_prefix("news.").unwrap();
    handles[2].subscribe_prefix("news.").unwrap();
    handles[2].unsubscribe_prefix("news.").unwrap();
    handles[0].publish("news.local", Outgoing::text("to all")).unwrap();
    handles[0].publish_to_others("news.local", Outgoing::text("to others")).unwrap();
    let [first, second, third] = crowd.read_all();
    assert_eq!(
        (&first[..], &second[..]),
        (&["to all".to_owned()][..], &["to all".to_owned(), "to others".to_owned()][..])
    );
    assert!(third.is_empty());
    assert_eq!(crowd.act(2, |conn| conn.subscribers("news.local")), 2);
}

#[test]
fn a_publisher_can_leave_itself_out_and_count() {
    let mut config = Config::default();
    config.slow_consumer = SlowConsumer::DropNewest(300);
    let mut crowd = Crowd::new(4, config);
    (0..4).for_each(|index| assert!(crowd.act(index, |conn| conn.subscribe("topic"))));
    crowd.act(0, |conn| conn.publish_to_others("topic", Outgoing::text("typing")));
    let [first, second, ..] = crowd.read_all::<4>();
    assert_eq!((first.len(), &second[..]), (0, &["typing".to_owned()][..]));
    // The last one reads nothing more.
    crowd.kernel.0.borrow_mut().wires.get_mut(&3).unwrap().room = 0;
    let receipts = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..4 {
        let receipts = receipts.clone();
        let done =
            move |receipt: Receipt| receipts.lock().unwrap().push((receipt.sent, receipt.queued, receipt.dropped));
        crowd.act(0, |conn| conn.publish_counted("topic", Outgoing::text(&"x".repeat(100)), done));
        crowd.turn();
    }
    // The first is with the driver, the next one waits, and there is no room for others.
    assert_eq!(*receipts.lock().unwrap(), [(4, 0, 0), (3, 1, 0), (3, 0, 1), (3, 0, 1)]);
}

#[test]
fn a_publisher_on_another_thread_gets_a_receipt_also_from_a_busy_loop() {
    let mut crowd = Crowd::new(3, Config::default());
    assert!(crowd.act(1, |conn| conn.subscribe("topic")));
    let (conn, shard, conns) = (crowd.handle(0), crowd.shard.handle(), crowd.shard.handler().conns.clone());
    let (sender, receipts) = channel();
    let done = || {
        let sender = sender.clone();
        move |receipt: Receipt| sender.send([receipt.sent, receipt.missed]).unwrap()
    };
    let news = Outgoing::text("news");
    conn.publish_counted("topic", news, done()).unwrap();
    conn.publish_counted(&conns[1..], news, done()).unwrap();
    ShardHandle::publish_counted(slice::from_ref(&shard), Recipients::All, news, done()).unwrap();
    assert!(receipts.try_recv().is_err(), "nothing is delivered yet");
    crowd.turn();
    assert_eq!(receipts.try_iter().collect::<Vec<_>>(), [[1, 0], [2, 0], [3, 0]]);
    while shard.publish("nobody", news).is_ok() {}
    assert_eq!(conn.publish_counted("topic", news, done()), Err(ShardHandleError::Full));
    let result = ShardHandle::publish_counted(slice::from_ref(&shard), "topic", news, done());
    assert_eq!(result, Err(ShardHandleError::Full));
    assert_eq!(receipts.try_iter().collect::<Vec<_>>(), [[0, 1], [0, 1]]);
    // A loop that stops reports what it has not delivered.
    crowd.turn();
    conn.publish_counted("topic", news, done()).unwrap();
    drop(crowd);
    assert_eq!(receipts.try_iter().collect::<Vec<_>>(), [[0, 0]]);
}

#[test]
fn a_list_of_connections_gets_a_message_once() {
    let mut crowd = Crowd::new(3, Config::default());
    let conns = crowd.shard.handler().conns.clone();
    crowd.act(1, |conn| conn.send_to(&[conns[0], conns[2]], Outgoing::text("you two")));
    crowd.shard.handle().send_to(&conns[1..], Outgoing::text("from outside")).unwrap();
    let [first, second, third] = crowd.read_all();
    assert_eq!(first, ["you two"]);
    assert_eq!(second, ["from outside"]);
    assert_eq!(third, ["you two", "from outside"]);
}

#[test]
fn a_connection_is_closed_by_its_id_after_what_was_sent_to_it() {
    let mut crowd = Crowd::new(3, Config::default());
    let conns = crowd.shard.handler().conns.clone();
    crowd.act(0, |conn| {
        conn.shard().send_to(&[conns[1]], Outgoing::text("one"));
        conn.shard().close(conns[1], CloseCode::NORMAL, "enough").unwrap();
        // Published first, so that what follows waits behind a delivery in several turns.
        for number in 0..1000 {
            conn.broadcast(Outgoing::text(&number.to_string()));
        }
        conn.shard().send_to(&[conns[2]], Outgoing::text("last"));
        conn.shard().close(conns[2], CloseCode::NORMAL, "").unwrap();
    });
    for _ in 0..10 {
        crowd.turn();
    }
    let [first, second, third] = crowd.read_all();
    assert_eq!(first.len(), 1000);
    assert_eq!(second, ["one", "88 \u{3}\u{fffd}enough"]);
    assert_eq!(third.len(), 1002);
    assert_eq!(third[999..], ["999", "last", "88 \u{3}\u{fffd}"]);
    // The id of one that has ended is no other's, and a shard that this server does not have is an error.
    crowd.kernel.push(Event::Failed(2));
    crowd.turn();
    crowd.act(0, |conn| conn.shard().close(conns[2], CloseCode::NORMAL, "").unwrap());
    let elsewhere = "7.0.0".parse::<ConnId>().unwrap();
    assert_eq!(crowd.act(0, |conn| conn.shard().close(elsewhere, CloseCode::NORMAL, "")), Err(ShardHandleError::Ended));
    assert!(crowd.read(0).is_empty());
}

/// Records its timers.
#[derive(Default)]
struct Clock {
    fired: Vec<u64>,
    handle: Option<ShardHandle>,
}

impl Handler for Clock {
    type State = ();

    fn on_start(&mut self, shard: &mut ShardContext<'_>) {
        self.handle = Some(shard.handle());
        shard.set_timer(Duration::from_millis(20), 100);
        shard.set_timer(Duration::from_millis(1), 101);
        assert!(shard.cancel_timer(101));
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, _: Message<'_>) {
        conn.set_timer(Duration::from_millis(150), 1);
        conn.set_timer(Duration::from_millis(70), 2);
        conn.set_timer(Duration::from_millis(1), 3);
        conn.set_timer(Duration::ZERO, 4);
        assert!(conn.cancel_timer(3));
        assert!(!conn.cancel_timer(5));
        // A timer that moves has one end.
        conn.set_timer(Duration::from_millis(300), 4);
    }

    fn on_timer(&mut self, conn: &mut Conn<'_, ()>, id: u64) {
        self.fired.push(id);
        conn.text(&id.to_string());
        if id == 4 && self.fired.iter().filter(|id| **id == 4).count() < 3 {
            conn.set_timer(Duration::ZERO, 4);
        }
    }

    fn on_shard_timer(&mut self, shard: &mut ShardContext<'_>, id: u64) {
        assert_eq!(shard.number(), 7);
        self.fired.push(id);
    }
}

#[test]
fn timers_fire_once_in_order_and_wake_the_loop() {
    let kernel = Fake::default();
    kernel.0.borrow_mut().room = usize::MAX;
    let mut shard =
        Shard::new(7, Arc::new(Config::default()), plain::Engine, kernel.clone(), Clock::default()).unwrap();
    shard.turn(Some(Duration::ZERO)).unwrap();
    assert_eq!(shard.handler().handle.as_ref().unwrap().number(), 7, "the handle is there before any connection");
    kernel.push(Event::Accept);
    kernel.push(Event::Bytes(0, UPGRADE.to_vec()));
    kernel.push(Event::Bytes(0, bench::masked("go")));
    let end = Instant::now() + Duration::from_secs(20);
    shard.turn(None).unwrap();
    kernel.received(0);
    while shard.handler().fired.len() < 6 {
        shard.turn(None).unwrap();
        let wait = kernel.0.borrow().waits.last().unwrap().unwrap();
        assert!(wait < Duration::from_millis(400), "{wait:?}");
        std::thread::sleep(wait.min(Duration::from_millis(20)));
        assert!(Instant::now() < end, "{:?}", shard.handler().fired);
    }
    let of_conn: Vec<_> = shard.handler().fired.iter().copied().filter(|id| *id != 100).collect();
    assert_eq!(of_conn, [2, 1, 4, 4, 4]);
    shard.turn(None).unwrap();
    assert_eq!(frames(&kernel.received(0)), ["2", "1", "4", "4", "4"]);
    // Only the deadlines of the connection are left.
    let wait = kernel.0.borrow().waits.last().unwrap().unwrap();
    assert!(wait > Duration::from_secs(2), "{wait:?}");
}

#[test]
fn pongs_do_not_break_the_silence_and_messages_do() {
    let mut config = Config::default();
    config.deadlines.silence = Some(Duration::from_millis(400));
    let mut bench = Bench::new(config);
    bench.kernel.push(Event::Room(0, usize::MAX));
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(900) {
        bench.kernel.push(Event::Bytes(0, bench::masked("here")));
        std::thread::sleep(Duration::from_millis(50));
        bench.turn();
    }
    assert!(bench.shard.handler().closed.is_empty(), "{:?}", bench.shard.handler().closed);
    let end = Instant::now() + Duration::from_secs(20);
    while bench.shard.handler().closed.is_empty() {
        bench.kernel.push(Event::Bytes(0, vec![0x8a, 0x80, 0, 0, 0, 0]));
        bench.wait(Duration::from_millis(50));
        assert!(Instant::now() < end, "a silent connection stays");
    }
    assert!(matches!(bench.shard.handler().closed[..], [Closed { cause: Cause::Timeout(Deadline::Silence), .. }]));
}
