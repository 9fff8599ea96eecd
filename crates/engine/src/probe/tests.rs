//! Stamps of messages that arrive over the fake driver.

use super::{MessageTimes, Probe, Stage, Stages, Stamps};
use crate::fake::{Event, Fake};
use crate::{Config, Conn, DialId, Handler, Shard};
use std::cell::RefCell;
use std::io;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tautline_io::{Arrival, Clock, Driver, Ticker};
use tautline_tls::plain;
use tautline_ws::Message;

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

/// A client's frame with the mask key 0.
const HELLO: &[u8] = b"\x81\x85\0\0\0\0hello";

/// Takes the time `takes` for each message.
#[derive(Default)]
struct App {
    heard: u64,
    takes: Duration,
    /// The times of all messages.
    times: Vec<Option<MessageTimes>>,
}

impl Handler for App {
    type State = ();

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, _message: Message<'_>) {
        self.heard += 1;
        self.times.push(conn.times().copied());
        std::thread::sleep(self.takes);
    }

    fn on_pong(&mut self, conn: &mut Conn<'_, ()>, _payload: &[u8]) {
        assert!(conn.times().is_none(), "a pong is no message");
    }

    fn on_drain(&mut self, conn: &mut Conn<'_, ()>) {
        assert!(conn.times().is_none());
    }
}

/// A shard with this probe and one open connection.
fn open(probe: impl Probe, takes: Duration) -> (Fake, Shard<plain::Engine, App>) {
    open_watched(Some(Box::new(probe)), takes)
}

fn open_watched(probe: Option<Box<dyn Probe>>, takes: Duration) -> (Fake, Shard<plain::Engine, App>) {
    let kernel = Fake::default();
    let app = App { takes, ..App::default() };
    let mut shard = Shard::new(0, Arc::new(Config::default()), plain::Engine, kernel.clone(), app).unwrap();
    if let Some(probe) = probe {
        shard.set_probe(probe);
    }
    kernel.0.borrow_mut().room = usize::MAX;
    kernel.push(Event::Accept);
    kernel.push(Event::Bytes(0, UPGRADE.to_vec()));
    shard.turn(Some(Duration::ZERO)).unwrap();
    (kernel, shard)
}

fn read(kernel: &Fake, shard: &mut Shard<plain::Engine, App>, bytes: &[u8]) {
    kernel.push(Event::Bytes(0, bytes.to_vec()));
    shard.turn(Some(Duration::ZERO)).unwrap();
}

fn mean(stages: &Stages, stage: Stage) -> f64 {
    stages.spread(stage).mean
}

/// A probe that notes the shard's calls.
#[derive(Default)]
struct Notes(Rc<RefCell<Vec<&'static str>>>);

impl Probe for Notes {
    fn begin(&mut self, _: &mut dyn Driver) -> io::Result<()> {
        Ok(())
    }
    fn woke(&mut self) {
        self.0.borrow_mut().push("woke");
    }
    fn received(&mut self, _: &mut dyn Driver) {
        self.0.borrow_mut().push("received");
    }
    fn resumed(&mut self) {
        self.0.borrow_mut().push("resumed");
    }
    fn opening(&mut self) {
        self.0.borrow_mut().push("opening");
    }
    fn opened(&mut self) {
        self.0.borrow_mut().push("opened");
    }
    fn decoding(&mut self) {
        self.0.borrow_mut().push("decoding");
    }
    fn parsed(&mut self) {
        self.0.borrow_mut().push("parsed");
    }
    fn calling(&mut self, dial: Option<DialId>) -> Option<MessageTimes> {
        assert_eq!(dial, None, "a server has no dials");
        self.0.borrow_mut().push("calling");
        None
    }
    fn stages(&self) -> Option<Box<Stages>> {
        None
    }
}

#[test]
fn stamps_come_in_order_for_each_message() {
    let notes = Rc::default();
    let (kernel, mut shard) = open(Notes(Rc::clone(&notes)), Duration::ZERO);
    notes.borrow_mut().clear();
    read(&kernel, &mut shard, &[HELLO, HELLO, &HELLO[..8]].concat());
    read(&kernel, &mut shard, &HELLO[8..]);
    let message = ["decoding", "parsed", "calling"];
    let piece = ["decoding", "parsed"];
    let begin = ["woke", "received", "opening", "opened"];
    assert_eq!(*notes.borrow(), [&begin[..], &message, &message, &piece, &begin, &message].concat());
}

#[test]
fn every_message_is_counted_once_in_each_stage() {
    let (kernel, mut shard) = open(Stamps::default(), Duration::ZERO);
    for messages in 1..=20 {
        read(&kernel, &mut shard, &HELLO.repeat(messages));
    }
    let stages = shard.stages().unwrap();
    assert_eq!((stages.messages(), shard.handler().heard), (210, 210));
    for stage in Stage::ALL {
        // The fake driver knows neither when bytes arrived nor when it began to receive.
        let silent = matches!(stage, Stage::Nic | Stage::Read | Stage::Total);
        assert_eq!(stages.spread(stage).count, if silent { 0 } else { 210 }, "{stage:?}");
        assert_eq!(stages.histogram(stage).map(|(_, count)| count).sum::<u64>(), stages.spread(stage).count);
    }
    assert!(stages.clock().contains("no stamps of arrivals"), "{}", stages.clock());
    assert_eq!(stages.per_read(), (10.5, 20));
    assert_eq!(stages.per_record(), (10.5, 20));
}

#[test]
fn stages_add_up_and_loop_includes_earlier_messages() {
    let takes = Duration::from_millis(1);
    let (kernel, mut shard) = open(Stamps::default(), takes);
    let arrived = Duration::from_millis(50);
    for _ in 0..10 {
        let now = Ticker::here().anchor(Clock::Monotonic);
        let nanos = now.nanos - u64::try_from(arrived.as_nanos()).unwrap();
        kernel.0.borrow_mut().arrival = Some(Arrival { clock: Clock::Monotonic, nanos });
        read(&kernel, &mut shard, &HELLO.repeat(2));
    }
    let stages = shard.stages().unwrap();
    assert_eq!(stages.spread(Stage::Total).count, 20);
    // The second message of each read waits for the first. This wait belongs neither to TLS nor to the parser.
    assert!(stages.spread(Stage::Loop).max >= 1e3, "{stages}");
    assert!(stages.spread(Stage::Tls).min < 900.0 && stages.spread(Stage::Parse).min < 900.0, "{stages}");
    assert!(stages.spread(Stage::Nic).min >= 49e3, "{stages}");
    let parts = [Stage::Loop, Stage::Tls, Stage::Parse, Stage::Callback].map(|stage| mean(&stages, stage));
    let near = |sum: f64, whole: f64| assert!((sum / whole - 1.0).abs() < 0.01, "{sum} is not {whole}\n{stages}");
    near(parts.iter().sum(), mean(&stages, Stage::App));
    near(mean(&stages, Stage::Nic) + mean(&stages, Stage::App), mean(&stages, Stage::Total));
    assert!(stages.clock().contains("arrivals exact to"), "{}", stages.clock());
}

#[test]
fn bytes_that_arrive_while_the_loop_is_awake_have_no_nic_time() {
    let (kernel, mut shard) = open(Stamps::default(), Duration::ZERO);
    // An arrival in the future: the clocks differ, or the stamp was made within this turn.
    let now = Ticker::here().anchor(Clock::Monotonic);
    kernel.0.borrow_mut().arrival = Some(Arrival { clock: Clock::Monotonic, nanos: now.nanos + 1_000_000_000 });
    read(&kernel, &mut shard, HELLO);
    let stages = shard.stages().unwrap();
    assert_eq!((stages.spread(Stage::Nic).count, stages.spread(Stage::Nic).max), (1, 0.0));
}

#[test]
fn read_is_timed_if_the_driver_knows_when_it_began() {
    let (kernel, mut shard) = open(Stamps::default(), Duration::ZERO);
    kernel.0.borrow_mut().began = Some(Ticker::here().now());
    std::thread::sleep(Duration::from_millis(2));
    read(&kernel, &mut shard, HELLO);
    let stages = shard.stages().unwrap();
    assert!(stages.spread(Stage::Read).min >= 2e3, "{stages}");
}

#[test]
fn warm_up_is_not_counted_and_shards_add_up() {
    let (kernel, mut shard) = open(Stamps::after(3), Duration::ZERO);
    read(&kernel, &mut shard, &HELLO.repeat(5));
    let mut stages = shard.stages().unwrap();
    assert_eq!(stages.messages(), 2);
    stages.merge(&shard.stages().unwrap());
    assert_eq!(stages.messages(), 4);
}

#[test]
fn a_kept_scale_lets_no_sum_become_smaller() {
    let (kernel, mut shard) = open(Stamps::default(), Duration::from_millis(1));
    read(&kernel, &mut shard, HELLO);
    let told = || {
        let mut stages = shard.stages().unwrap();
        stages.keep_scale();
        let ends: Vec<_> = stages.histogram(Stage::App).map(|(end, _)| end.to_bits()).collect();
        (stages.spread(Stage::App).mean.to_bits(), ends)
    };
    // The scale of the clock itself is found anew for each.
    let first = told();
    assert!((0..20).all(|_| told() == first));
}

#[test]
fn sampling_times_all_messages_of_a_quarter_of_reads() {
    let (kernel, mut shard) = open(Stamps::of_one_in(NonZeroU32::new(4).unwrap()), Duration::ZERO);
    let mut timed = 0;
    for _ in 0..4_000 {
        timed += u64::from(!kernel.0.borrow().silent);
        read(&kernel, &mut shard, &HELLO.repeat(2));
    }
    let stages = shard.stages().unwrap();
    assert_eq!((stages.messages(), shard.handler().heard), (2 * timed, 8_000));
    // Seven standard deviations of 27.4 to either side.
    assert!((808..1_192).contains(&timed), "{timed}");
    assert_eq!(stages.per_read(), (2.0, 2));
    let table = stages.to_string();
    assert!(table.contains("timed: one read in 4\n"), "{table}");
}

#[test]
fn the_table_has_a_line_for_each_stage_but_tls_without_tls() {
    let (kernel, mut shard) = open(Stamps::default(), Duration::ZERO);
    read(&kernel, &mut shard, HELLO);
    let table = shard.stages().unwrap().to_string();
    assert_eq!(table.lines().count(), 2 + Stage::ALL.len(), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 120), "{table}");
    for stage in Stage::ALL {
        let has_line = table.lines().any(|line| line.starts_with(stage.name()));
        assert_eq!(has_line, stage != Stage::Tls, "{table}");
    }
    assert!(!table.contains("TLS"), "{table}");
}

#[test]
fn columns_stay_apart_for_times_from_ten_milliseconds_up() {
    let (kernel, mut shard) = open(Stamps::default(), Duration::from_millis(12));
    read(&kernel, &mut shard, &HELLO.repeat(3));
    let table = shard.stages().unwrap().to_string();
    let row = table.lines().find(|line| line.starts_with("app")).unwrap();
    assert_eq!(row.split_whitespace().count(), 11, "{table}");
    assert!(row.split_whitespace().last().unwrap().parse::<f64>().unwrap() >= 24e3, "{table}");
    assert!(table.lines().skip(1).take(3).all(|line| line.chars().count() <= 110), "{table}");
}

#[test]
fn the_table_says_if_only_some_arrivals_were_stamped() {
    let (kernel, mut shard) = open(Stamps::default(), Duration::ZERO);
    read(&kernel, &mut shard, HELLO);
    let now = Ticker::here().anchor(Clock::Monotonic);
    kernel.0.borrow_mut().arrival = Some(Arrival { clock: Clock::Monotonic, nanos: now.nanos });
    read(&kernel, &mut shard, HELLO);
    let stages = shard.stages().unwrap();
    assert_eq!((stages.stamped(), stages.messages()), (1, 2));
    let table = stages.to_string();
    assert!(table.contains("arrivals: stamped 1 of 2 messages; nic and total are of these alone\n"), "{table}");
}

#[test]
fn without_a_probe_there_are_no_stages() {
    let (kernel, mut shard) = open_watched(None, Duration::ZERO);
    read(&kernel, &mut shard, HELLO);
    assert!(shard.stages().is_none());
    assert_eq!(shard.handler().heard, 1);
}

#[test]
fn the_handler_has_the_times_of_its_message_alone() {
    let (kernel, mut shard) = open(Stamps::default(), Duration::from_millis(1));
    let arrived = Duration::from_millis(50);
    let now = Ticker::here().anchor(Clock::Monotonic);
    let nanos = now.nanos - u64::try_from(arrived.as_nanos()).unwrap();
    kernel.0.borrow_mut().arrival = Some(Arrival { clock: Clock::Monotonic, nanos });
    let pong = b"\x8a\x80\0\0\0\0";
    read(&kernel, &mut shard, &[HELLO, pong, HELLO].concat());
    let stages = shard.stages().unwrap();
    let times = std::mem::take(&mut shard.handler().times);
    let [Some(first), Some(second)] = times[..] else { panic!("{times:?}") };
    for stage in Stage::ALL {
        let of = |times: MessageTimes| times.stage(stage).map(|time| time.as_secs_f64() * 1e6);
        let sum = of(first).unwrap_or_default() + of(second).unwrap_or_default();
        let spread = stages.spread(stage);
        assert!((sum - spread.mean * spread.count as f64).abs() <= 1.0 + sum / 50.0, "{stage:?}: {sum}, {stages}");
    }
    assert!(second.stage(Stage::Loop) >= Some(Duration::from_millis(1)), "the second waits for the first");
    assert!(second.age() >= Some(arrived) && second.arrived() < Some(std::time::SystemTime::now()));
    let open = tautline_io::Token { index: 0, generation: 0 };
    let conn = crate::ConnId { shard: 0, token: open };
    assert_eq!(shard.with_conn(conn, |_, conn| conn.times().is_none()), Some(true));
    let (kernel, mut shard) = open_watched(None, Duration::ZERO);
    read(&kernel, &mut shard, HELLO);
    assert!(matches!(shard.handler().times[..], [None]));
}

#[test]
fn an_interval_has_its_own_tail() {
    let (kernel, mut shard) = open(Stamps::default(), Duration::ZERO);
    // A turn ends before all of them.
    let read_all = |shard: &mut Shard<_, _>, count: usize, total: u64| {
        read(&kernel, shard, &HELLO.repeat(count));
        while shard.stages().unwrap().messages() < total {
            shard.turn(Some(Duration::ZERO)).unwrap();
        }
        shard.stages().unwrap()
    };
    let first = read_all(&mut shard, 2_000, 2_000);
    shard.handler().takes = Duration::from_millis(2);
    // So many that messages of the first result are counted in another way meanwhile.
    let all = read_all(&mut shard, 100, 2_100);
    let interval = all.since(&first);
    assert_eq!((first.messages(), interval.messages(), all.messages()), (2_000, 100, 2_100));
    // Messages that are held back count as another read.
    assert!((10.0..20.0).contains(&interval.per_read().0), "{:?}", interval.per_read());
    let (all, interval) = (all.spread(Stage::Loop), interval.spread(Stage::Loop));
    assert!(interval.p50 >= 10e3 && interval.p999 >= 20e3, "{interval:?}");
    assert!(all.p99 < all.p999 && all.p999 <= all.max, "{all:?}");
    let none = first.since(&first);
    assert_eq!((none.messages(), none.spread(Stage::Loop)), (0, super::Spread::default()));
}
