//! Races between the addresses of a host, over a fake driver that connects when a test tells it to.

use crate::fake::{Event, Fake};
use crate::{Config, Conn, DialId, Handler, Lookup, Opening, Reconnect, Resolver, Shard, Target};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline_conn::closed::ConnectError;
use tautline_tls::plain;
use tautline_ws::Message;

#[derive(Default)]
struct App {
    failures: Vec<String>,
    reconnects: bool,
}

impl Handler for App {
    type State = ();

    fn on_open(&mut self, _conn: &mut Conn<'_, ()>, _opening: &Opening<'_>) {
        panic!("no server answers here");
    }

    fn on_message(&mut self, _conn: &mut Conn<'_, ()>, _message: Message<'_>) {}

    fn on_connect_failed(&mut self, _dial: DialId, error: &ConnectError, retry: Option<Duration>) {
        assert_eq!(retry.is_some(), self.reconnects);
        self.failures.push(format!("{error:#}"));
    }
}

struct Bench {
    kernel: Fake,
    shard: Shard<plain::Engine, App>,
}

const ID: DialId = DialId(0);

impl Shard<plain::Engine, App> {
    fn resolved(&mut self, id: DialId, result: Result<Vec<SocketAddr>, ConnectError>) {
        let core = &mut self.reactor.core;
        core.dialer.resolved(&mut *self.driver, id, result, &core.shared);
    }
}

impl Bench {
    /// A shard with a dial whose host has these addresses.
    fn new(connect: Duration, addresses: &[&str]) -> Self {
        let mut config = Config::default();
        config.deadlines.connect = connect;
        let kernel = Fake::default();
        kernel.0.borrow_mut().room = usize::MAX;
        let mut shard = Shard::new(0, Arc::new(config), plain::Engine, kernel.clone(), App::default()).unwrap();
        let target = Arc::new(Target::new("ws://several.example/").unwrap());
        shard.reactor.core.dialer.insert(ID, target);
        let addresses: Vec<SocketAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        shard.resolved(ID, Ok(addresses));
        Self { kernel, shard }
    }

    fn turn(&mut self) {
        self.shard.turn(Some(Duration::ZERO)).unwrap();
    }

    fn wait(&mut self, millis: u64) {
        let end = Instant::now() + Duration::from_millis(millis);
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
            self.turn();
        }
    }

    fn dialed(&self) -> Vec<String> {
        self.kernel.0.borrow().dialed.iter().map(|(_, address)| address.to_string()).collect()
    }

    fn closed(&self, index: u32) -> Option<bool> {
        self.kernel.with(index, |wire| wire.closed)
    }

    fn requested_upgrade(&self, index: u32) -> bool {
        self.kernel.received(index).starts_with(b"GET / HTTP/1.1\r\n")
    }
}

const LONG: Duration = Duration::from_secs(10);

#[test]
fn the_next_address_follows_a_silent_one() {
    let begun = Instant::now();
    let mut bench = Bench::new(LONG, &["[::1]:80", "[::2]:80", "127.0.0.1:80"]);
    assert_eq!(bench.dialed(), ["[::1]:80"]);
    // The next attempt begins 250 ms later, with an address of the other family.
    while bench.dialed().len() == 1 {
        assert!(begun.elapsed() < LONG, "no other address is tried");
        bench.wait(2);
    }
    assert!(begun.elapsed() >= Duration::from_millis(240), "{:?}", begun.elapsed());
    assert_eq!(bench.dialed(), ["[::1]:80", "127.0.0.1:80"]);
    bench.kernel.push(Event::Connected(1));
    bench.turn();
    assert!(bench.requested_upgrade(1));
    // The losing attempt is closed, and no other address is tried.
    assert_eq!((bench.closed(0), bench.closed(1)), (Some(true), None));
    bench.wait(300);
    assert_eq!(bench.dialed().len(), 2);
    assert!(bench.shard.handler().failures.is_empty());
}

#[test]
fn the_next_address_follows_a_refusal_at_once() {
    let mut bench = Bench::new(LONG, &["[::1]:80", "127.0.0.1:80"]);
    bench.kernel.push(Event::Failed(0));
    bench.turn();
    assert_eq!(bench.dialed(), ["[::1]:80", "127.0.0.1:80"]);
    assert!(bench.closed(0).is_some());
    bench.kernel.push(Event::Connected(1));
    bench.turn();
    assert!(bench.requested_upgrade(1));
}

#[test]
fn an_earlier_slow_address_can_still_win() {
    let mut bench = Bench::new(LONG, &["[::1]:80", "127.0.0.1:80"]);
    bench.wait(350);
    assert_eq!(bench.dialed().len(), 2);
    // Both connect in one turn: the first event wins.
    bench.kernel.push(Event::Connected(0));
    bench.kernel.push(Event::Connected(1));
    bench.turn();
    assert!(bench.requested_upgrade(0));
    assert_eq!((bench.closed(0), bench.closed(1)), (None, Some(true)));
    assert_eq!(bench.shard.counters().connections, 1);
}

#[test]
fn refusals_by_all_addresses_fail_the_dial() {
    let mut bench = Bench::new(LONG, &["[::1]:80", "127.0.0.1:80"]);
    bench.kernel.push(Event::Failed(0));
    bench.turn();
    bench.kernel.push(Event::Failed(1));
    bench.turn();
    bench.turn();
    let [failure] = &bench.shard.handler().failures[..] else { panic!("one failure") };
    assert!(failure.contains("reset"), "{failure}");
    assert!(bench.shard.is_idle());
}

#[test]
fn silent_addresses_miss_the_connect_deadline() {
    let mut bench = Bench::new(Duration::from_millis(100), &["[::1]:80", "127.0.0.1:80"]);
    bench.wait(150);
    let failures = std::mem::take(&mut bench.shard.handler().failures);
    assert_eq!(failures, ["the peer missed the connect deadline"]);
    assert_eq!(bench.closed(0), Some(true));
    assert!(bench.shard.is_idle());
    // A later event of the attempt is ignored.
    bench.kernel.push(Event::Connected(0));
    bench.turn();
    assert!(bench.shard.is_idle());
}

#[test]
fn a_name_that_is_not_resolved_in_time_fails_the_dial() {
    let mut config = Config::default();
    config.deadlines.connect = Duration::ZERO;
    let mut shard = Shard::new(0, Arc::new(config), plain::Engine, Fake::default(), App::default()).unwrap();
    // The deadline has passed before the resolver can answer.
    let dial = shard.connect(Arc::new(Target::new("ws://several.example/").unwrap()));
    assert!(shard.handler().failures.is_empty(), "not within the call");
    shard.turn(Some(Duration::ZERO)).unwrap();
    let [failure] = &shard.handler().failures[..] else { panic!("one failure") };
    assert!(failure.contains("several.example was not resolved within 0ns"), "{failure}");
    assert!(shard.is_idle());
    // A later result is ignored.
    shard.resolved(dial, Ok(vec!["127.0.0.1:80".parse().unwrap()]));
    assert!(shard.is_idle());
}

#[test]
fn a_late_failure_of_the_resolver_does_not_end_a_race() {
    let mut bench = Bench::new(LONG, &["[::1]:80"]);
    let late = Err(ConnectError::Resolve("no such host".into()));
    bench.shard.resolved(ID, late);
    bench.kernel.push(Event::Connected(0));
    bench.turn();
    assert!(bench.requested_upgrade(0));
    assert!(bench.shard.handler().failures.is_empty());
}

#[test]
fn an_attempt_that_fails_at_once_is_retried_in_a_later_turn() {
    let (mut bench, kept, target) = resolved_by_test();
    bench.shard.handler().reconnects = true;
    bench.shard.reactor.core.dialer.lookups.store(usize::MAX >> 1, std::sync::atomic::Ordering::Relaxed);
    bench.shard.connect(Arc::new(target.with_reconnect(AT_ONCE)));
    bench.turn();
    assert_eq!(bench.shard.handler().failures.len(), 1);
    assert!(kept.0.lock().unwrap().is_empty());
}

const AT_ONCE: Reconnect = Reconnect::new(Duration::ZERO, Duration::ZERO);

/// Makes a target one that no attempt can use.
type Spoil = fn(&mut Target);

#[test]
fn a_permanent_error_ends_the_dial_before_it_meets_the_network() {
    let reserved = |target: &mut Target| drop(target.headers.insert("host", http::HeaderValue::from_static("x")));
    let subprotocol = |target: &mut Target| target.subprotocols = vec!["not a token".into()];
    let scheme = |target: &mut Target| target.uri = "wss://prices.internal/".parse().unwrap();
    let login = |target: &mut Target| target.proxy = Some("http://a%3Ab:c@prices.internal".parse().unwrap());
    let wrongs: [(Spoil, &str); 4] =
        [(reserved, "host"), (subprotocol, "subprotocol"), (scheme, "wss://"), (login, "user name")];
    for (spoil, word) in wrongs {
        let (mut bench, kept, target) = resolved_by_test();
        let mut target = target.with_reconnect(AT_ONCE);
        spoil(&mut target);
        assert_eq!(target.check().is_err(), word != "wss://", "which only the engine makes wrong");
        bench.shard.connect(Arc::new(target));
        for _ in 0..3 {
            bench.turn();
        }
        // The application asserts that no attempt follows.
        let [failure] = &bench.shard.handler().failures[..] else { panic!("one failure") };
        assert!(failure.contains(word), "{failure}");
        assert!(bench.shard.is_idle() && kept.0.lock().unwrap().is_empty() && bench.dialed().is_empty());
    }
}

#[test]
fn the_next_attempt_goes_to_the_next_address_if_the_last_one_said_nothing() {
    let ends: [fn(u32) -> Option<Event>; 3] =
        [|_| None, |index| Some(Event::Failed(index)), |index| Some(Event::Finished(index))];
    for end in ends {
        let (mut bench, kept, target) = resolved_by_test();
        bench.shard.handler().reconnects = true;
        let mut config = Config::default();
        config.deadlines.handshake = Duration::from_millis(50);
        bench.shard.reactor.core.shared.config = Arc::new(config);
        bench.shard.connect(Arc::new(target.with_reconnect(AT_ONCE)));
        let answer = || Ok::<_, &str>(vec!["[::7]:80".parse().unwrap(), "10.0.0.7:80".parse().unwrap()]);
        for (index, address) in (0..).zip(["[::7]:80", "10.0.0.7:80", "[::7]:80", "10.0.0.7:80"]) {
            while kept.0.lock().unwrap().is_empty() {
                bench.wait(2);
            }
            kept.take().answer(answer());
            bench.turn();
            // Both have failed from the second attempt on, and take turns.
            assert_eq!(bench.dialed()[index as usize..], [address]);
            bench.kernel.push(Event::Connected(index));
            bench.turn();
            assert!(bench.requested_upgrade(index));
            if let Some(event) = end(index) {
                bench.kernel.push(event);
            }
        }
    }
}

/// Keeps lookups until a test answers them.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<std::sync::Mutex<Vec<Lookup>>>);

impl Resolver for Kept {
    fn resolve(&self, lookup: Lookup) {
        self.0.lock().unwrap().push(lookup);
    }
}

impl Kept {
    fn take(&self) -> Lookup {
        self.0.lock().unwrap().remove(0)
    }
}

/// A shard, and a target whose name is resolved by the test.
fn resolved_by_test() -> (Bench, Kept, Target) {
    let kernel = Fake::default();
    kernel.0.borrow_mut().room = usize::MAX;
    let mut config = Config::default();
    config.deadlines.connect = LONG;
    let shard = Shard::new(0, Arc::new(config), plain::Engine, kernel.clone(), App::default()).unwrap();
    let kept = Kept::default();
    let target = Target::new("ws://prices.internal:8080/").unwrap().with_resolver(kept.clone());
    (Bench { kernel, shard }, kept, target)
}

#[test]
fn a_resolver_of_the_application_answers_later_from_any_thread() {
    let (mut bench, kept, target) = resolved_by_test();
    bench.shard.connect(Arc::new(target));
    bench.turn();
    let lookup = kept.take();
    assert_eq!((lookup.host(), lookup.port(), lookup.deadline().is_some()), ("prices.internal", 8080, true));
    assert!(bench.dialed().is_empty());
    let answer =
        move || lookup.answer(Ok::<_, &str>(vec!["[::7]:8080".parse().unwrap(), "10.0.0.7:8080".parse().unwrap()]));
    std::thread::spawn(answer).join().unwrap();
    bench.turn();
    assert_eq!(bench.dialed(), ["[::7]:8080"]);
    // The race between the addresses is the same as ever.
    bench.kernel.push(Event::Failed(0));
    bench.turn();
    assert_eq!(bench.dialed(), ["[::7]:8080", "10.0.0.7:8080"]);
    bench.kernel.push(Event::Connected(1));
    bench.turn();
    assert!(bench.requested_upgrade(1));
    assert_eq!(bench.shard.reactor.core.dialer.lookups.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[test]
fn failures_of_a_resolver_are_reported() {
    let (mut bench, kept, target) = resolved_by_test();
    let target = Arc::new(target);
    for _ in 0..3 {
        bench.shard.connect(target.clone());
    }
    kept.take().answer(Err("no such service"));
    drop(kept.take());
    kept.take().answer(Ok::<_, &str>(Vec::new()));
    // Answers are events of one turn, and failures are reported in the next.
    bench.turn();
    bench.turn();
    assert_eq!(
        bench.shard.handler().failures,
        [
            "cannot resolve prices.internal: no such service",
            "cannot resolve prices.internal: the resolver dropped the lookup without an answer",
            "prices.internal has no address"
        ]
    );
    assert!(bench.shard.is_idle());
}

#[test]
fn a_resolver_holds_a_bounded_number_of_lookups_and_addresses() {
    let (mut bench, kept, target) = resolved_by_test();
    let target = Arc::new(target);
    for _ in 0..4_097 {
        bench.shard.connect(target.clone());
    }
    bench.turn();
    let [failure] = &bench.shard.handler().failures[..] else { panic!("one failure") };
    assert!(failure.contains("holds too many lookups"), "{failure}");
    assert_eq!(kept.0.lock().unwrap().len(), 4_096);
    kept.take().answer(Ok::<_, &str>((1..=1_000).map(|port| ([10, 0, 0, 1], port).into()).collect()));
    bench.turn();
    for refused in 0..64 {
        bench.kernel.push(Event::Failed(refused));
        bench.turn();
    }
    bench.turn();
    assert_eq!((bench.dialed().len(), bench.shard.handler().failures.len()), (64, 2));
}

#[test]
fn a_driver_without_a_choice_of_the_source_says_so() {
    let mut shard = Shard::new(0, Arc::new(Config::default()), plain::Engine, Fake::default(), App::default()).unwrap();
    let source = tautline_io::Source::from([10, 0, 0, 1]).on_interface("eth1");
    shard.connect(Arc::new(Target::new("ws://127.0.0.1:1/").unwrap().with_source(source)));
    shard.turn(Some(Duration::ZERO)).unwrap();
    let [failure] = &shard.handler().failures[..] else { panic!("one failure") };
    assert!(failure.contains("the driver fake cannot choose"), "{failure}");
}

/// A target's own time to connect is neither cut to that of all nor lengthened by it.
#[test]
fn a_target_has_its_own_time_to_connect() {
    for (own, usual) in [(LONG, Duration::from_millis(1)), (Duration::from_secs(2), LONG)] {
        let (mut bench, kept, target) = resolved_by_test();
        let mut config = Config::default();
        config.deadlines.connect = usual;
        bench.shard = Shard::new(0, Arc::new(config), plain::Engine, bench.kernel.clone(), App::default()).unwrap();
        let before = Instant::now();
        bench.shard.connect(Arc::new(target.with_connect(own)));
        bench.turn();
        let deadline = kept.take().deadline().unwrap();
        assert!(deadline >= before + own && deadline <= Instant::now() + own, "{own:?}");
    }
}
