//! Tests of single turns: waiting, waking, fairness, and callbacks that change the events still to be delivered.

use super::*;
use rustix::time::{ClockId, clock_gettime};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use tautline_io::Clock;

pub fn timeouts_hold<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    for wanted in [Duration::from_micros(1500), Duration::from_millis(12), Duration::from_micros(30_500)] {
        let start = Instant::now();
        driver.turn(Some(wanted), &mut script).unwrap();
        let took = start.elapsed();
        assert!(took >= wanted, "waited {took:?} of {wanted:?}");
        assert!(took < PATIENCE, "waited {took:?} instead of {wanted:?}");
    }
}

pub fn short_timeouts_are_precise<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let wanted = Duration::from_micros(200);
    let mut best = Duration::MAX;
    let begun = Instant::now();
    // A busy machine lets few turns end in time; rounded up to a millisecond, none would.
    while best >= Duration::from_micros(900) {
        assert!(begun.elapsed() < PATIENCE, "waited {best:?} instead of {wanted:?}");
        let start = Instant::now();
        driver.turn(Some(wanted), &mut script).unwrap();
        best = best.min(start.elapsed());
        assert!(best >= wanted, "waited {best:?} of {wanted:?}");
    }
}

/// Counts waits and events, and asserts that no event comes before the end of the turn's wait.
#[derive(Default)]
struct Woke {
    awake: bool,
    waits: usize,
    events: usize,
}

impl Woke {
    fn event(&mut self) {
        assert!(self.awake, "an event came before the end of the wait was told");
        self.events += 1;
    }
}

impl Sink for Woke {
    fn woke(&mut self, _: &mut dyn Driver) {
        self.awake = true;
        self.waits += 1;
    }
    fn accepted(&mut self, _: &mut dyn Driver, _: Token, _: Listener) {
        self.event();
    }
    fn connected(&mut self, _: &mut dyn Driver, _: Token) {
        self.event();
    }
    fn received(&mut self, _: &mut dyn Driver, _: Token, _: Received<'_>) {
        self.event();
    }
    fn sent(&mut self, _: &mut dyn Driver, _: Token, _: Buf) {
        self.event();
    }
    fn ended(&mut self, _: &mut dyn Driver, _: Token, _: End) {
        self.event();
    }
    fn woken(&mut self, _: &mut dyn Driver) {
        self.event();
    }
    fn accept_failed(&mut self, _: &mut dyn Driver, _: io::Error) {
        self.event();
    }
}

pub fn each_turn_tells_that_its_wait_is_over<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut sink = Woke::default();
    let at = listen(&mut driver);
    let nowhere = Address::Unix("/nonexistent/taut.sock".into());
    let start = Instant::now();
    let mut turns = 0;
    let mut peers = Vec::new();
    while sink.events < 40 {
        assert!(start.elapsed() < PATIENCE);
        peers.push(TcpStream::connect(at).unwrap());
        // Where there are no Unix sockets, connections and wakes are enough.
        let _ = driver.connect(&nowhere);
        driver.waker().wake();
        sink.awake = false;
        driver.turn(Some(Duration::from_millis(20)), &mut sink).unwrap();
        turns += 1;
        assert_eq!(sink.waits, turns, "once a turn");
    }
    drop(driver);
    let mut driver = make();
    driver.turn(Some(Duration::ZERO), &mut sink).unwrap();
    assert_eq!(sink.waits, turns + 1, "also where nothing else happened");
}

pub fn zero_does_not_wait<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let turns = (0..100).map(|_| {
        let start = Instant::now();
        driver.turn(Some(Duration::ZERO), &mut script).unwrap();
        start.elapsed()
    });
    let best = turns.min().unwrap();
    assert!(best < Duration::from_millis(1), "{best:?}");
}

pub fn woken_from_another_thread<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let waker = driver.waker();
    let remote = waker.clone();
    let start = Instant::now();
    let thread = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        remote.wake();
    });
    while script.events.is_empty() {
        driver.turn(None, &mut script).unwrap();
    }
    assert!(start.elapsed() >= Duration::from_millis(15));
    assert_eq!(script.events, [Event::Woken]);
    thread.join().unwrap();
    waker.wake();
    driver.turn(Some(Duration::MAX), &mut script).unwrap();
    assert_eq!(script.events.len(), 2);
}

pub fn wakes_coalesce<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let (one, other) = (driver.waker(), driver.waker());
    for round in 1..=3 {
        for _ in 0..1000 {
            one.wake();
            other.wake();
        }
        driver.turn(None, &mut script).unwrap();
        assert_eq!(script.events.len(), round, "two thousand wakes are one event");
        assert_idle(&mut driver, &mut script);
    }
    // A wake inside the callback counts for the next turn.
    let again = one.clone();
    let mut left = 2;
    let mut script = Script::new(move |_: &mut dyn Driver, _: &Event| {
        left -= 1;
        if left > 0 {
            again.wake();
        }
    });
    one.wake();
    driver.turn(None, &mut script).unwrap();
    driver.turn(None, &mut script).unwrap();
    assert_eq!(script.events, [Event::Woken, Event::Woken]);
    assert_idle(&mut driver, &mut script);
}

pub fn no_wake_is_lost<D: Driver>(make: fn() -> D) {
    const ROUNDS: u32 = 5000;
    let mut driver = make();
    let mut script = watch();
    let waker = driver.waker();
    let (asked, answered) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (ask, answer) = (Arc::clone(&asked), Arc::clone(&answered));
    let thread = thread::spawn(move || {
        for round in 1..=ROUNDS {
            ask.store(round, Ordering::Relaxed);
            waker.wake();
            while round % 4 != 0 && answer.load(Ordering::Relaxed) < round {
                std::hint::spin_loop();
                thread::yield_now();
            }
        }
    });
    while answered.load(Ordering::Relaxed) < ROUNDS {
        let before = script.events.len();
        driver.turn(Some(PATIENCE), &mut script).unwrap();
        assert!(script.events.len() > before, "slept although a wake was due");
        answered.store(asked.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    thread.join().unwrap();
}

pub fn waker_outlives_the_driver<D: Driver>(make: fn() -> D) {
    let driver = make();
    let waker = driver.waker();
    drop(driver);
    waker.wake();
    waker.wake();
}

pub fn flood_starves_nobody<D: Driver>(make: fn() -> D) {
    const QUIET: usize = 50;
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let mut quiet: Vec<_> = (0..QUIET).map(|_| pair(&mut driver, &mut script, at)).collect();
    let (mut flood, flooding) = pair(&mut driver, &mut script, at);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = thread::spawn(move || {
        let chunk = pattern(1 << 20);
        while !stopped.load(Ordering::Relaxed) {
            flood.write_all(&chunk).unwrap();
        }
    });
    run(&mut driver, &mut script, |script| script.events.iter().any(|e| matches!(e, Event::Received(..))));
    for _ in 0..20 {
        for (peer, _) in &mut quiet {
            peer.write_all(b"q").unwrap();
        }
        let mut heard = HashSet::new();
        for turn in 0.. {
            script.events.clear();
            driver.turn(Some(Duration::from_millis(20)), &mut script).unwrap();
            let mut chunks = HashMap::<Token, usize>::new();
            for event in &script.events {
                if let Event::Received(token, data) = event {
                    assert!(data.len() <= 256 * 1024, "one receive is bounded");
                    *chunks.entry(*token).or_default() += 1;
                }
            }
            assert!(chunks.values().all(|&chunks| chunks == 1), "one receive a turn: {chunks:?}");
            heard.extend(chunks.into_keys().filter(|&token| token != flooding));
            if heard.len() == QUIET {
                break;
            }
            assert!(turn < 5, "{} of {QUIET} were heard after {turn} turns beside the flood", heard.len());
        }
    }
    stop.store(true, Ordering::Relaxed);
    run(&mut driver, &mut script, |_| thread.is_finished());
    thread.join().unwrap();
}

pub fn closing_others_in_one_batch<D: Driver>(make: fn() -> D) {
    for abort in [false, true] {
        let mut driver = make();
        let mut all = Vec::new();
        let mut script = watch();
        let at = listen(&mut driver);
        let mut peers: Vec<_> = (0..20).map(|_| pair(&mut driver, &mut script, at)).collect();
        all.extend(peers.iter().map(|&(_, token)| token));
        for (peer, _) in &mut peers {
            peer.write_all(b"ready").unwrap();
        }
        let mut script = Script::new(move |driver: &mut dyn Driver, event: &Event| {
            if let Event::Received(first, _) = event {
                // Itself included.
                all.iter().for_each(|&token| driver.close(token, abort));
                assert_eq!(driver.peer(*first), None);
            }
        });
        run(&mut driver, &mut script, |script| !script.events.is_empty());
        assert_idle(&mut driver, &mut script);
        assert_eq!(script.events.len(), 1, "closed connections are silent: {:?}", script.events);
    }
}

pub fn slots_reused_in_one_batch<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let mut peers: Vec<_> = (0..20).map(|_| pair(&mut driver, &mut script, at)).collect();
    let old: Vec<_> = peers.iter().map(|&(_, token)| token).collect();
    for (peer, _) in &mut peers {
        peer.write_all(b"ready").unwrap();
    }
    // A listener whose backlog accepts the connections that take over the slots, and never speaks.
    let (_silent, to) = outside();
    let mut done = false;
    let mut script = Script::new(move |driver: &mut dyn Driver, event: &Event| {
        if let Event::Received(..) = event
            && !std::mem::replace(&mut done, true)
        {
            for &token in &old {
                driver.close(token, true);
                let new = driver.connect(&to).unwrap();
                assert_eq!(new.index, token.index, "the latest free slot is the warmest");
                assert_ne!(new, token);
            }
        }
    });
    let connected = |script: &Script<_>| script.events.iter().filter(|e| matches!(e, Event::Connected(_))).count();
    run(&mut driver, &mut script, |script| connected(script) == 20);
    assert_idle(&mut driver, &mut script);
    assert_eq!(script.events.len(), 21, "late events of the old connections reached the new: {:?}", script.events);
}

pub fn generations_differ<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let mut seen = HashSet::new();
    for _ in 0..50 {
        let (_peer, token) = pair(&mut driver, &mut script, at);
        assert!(token.index < 2, "slots are used again, so that they can index a table");
        assert!(seen.insert(token), "{token:?} came twice");
        driver.close(token, false);
        script.events.clear();
    }
}

pub fn never_sleeps_on_known_work<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    driver.pause_receive(token, true);
    peer.set_nonblocking(true).unwrap();
    let chunk = pattern(1 << 20);
    let mut written = 0;
    while let Ok(n) = peer.write(&chunk) {
        written += n;
    }
    idle(&mut driver, &mut script, Duration::from_millis(10));
    driver.pause_receive(token, false);
    let start = Instant::now();
    while script.bytes_of(token).len() < written {
        driver.turn(Some(PATIENCE), &mut script).unwrap();
        assert!(start.elapsed() < PATIENCE / 2, "slept although there was more to receive");
    }
}

pub fn never_sleeps_on_known_failures<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let nowhere = Address::Unix("/nonexistent/taut.sock".into());
    let failed = driver.connect(&nowhere).unwrap();
    let start = Instant::now();
    driver.turn(Some(PATIENCE), &mut script).unwrap();
    assert!(script.has(&Event::Failed(failed, io::ErrorKind::NotFound)));
    assert!(start.elapsed() < PATIENCE / 2, "slept although a failure was known");
}

pub fn new_failures_wait_for_the_next_turn<D: Driver>(make: fn() -> D) {
    let nowhere = Address::Unix("/nonexistent/taut.sock".into());
    let mut driver = make();
    driver.connect(&nowhere).unwrap();
    driver.connect(&nowhere).unwrap();
    let mut left = 100;
    let mut script = Script::new(move |driver: &mut dyn Driver, event: &Event| {
        if let Event::Failed(token, _) = event {
            driver.close(*token, false);
            left -= 1;
            if left > 0 {
                driver.connect(&nowhere).unwrap();
            }
        }
    });
    for turn in 1..5 {
        driver.turn(Some(PATIENCE), &mut script).unwrap();
        assert_eq!(script.failures().len(), 2 * turn, "a sink that tries again must not keep the turn from ending");
    }
}

pub fn arrivals_are_stamped_or_refused<D: Driver>(make: fn() -> D) {
    let now = |clock| {
        let id = match clock {
            Clock::Realtime => ClockId::Realtime,
            Clock::Monotonic => ClockId::Monotonic,
        };
        let now = clock_gettime(id);
        u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap()
    };
    let mut driver = make();
    let asked = driver.stamp_arrivals();
    let stamps = RefCell::new(Vec::new());
    let mut script = Script::new(|driver: &mut dyn Driver, event: &Event| {
        if let (Event::Received(..), Some(arrival)) = (event, driver.arrival()) {
            stamps.borrow_mut().push((arrival, now(arrival.clock)));
        }
    });
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    let sent = [Clock::Realtime, Clock::Monotonic].map(now);
    // The kernel begins to stamp a moment after the first socket asked for it, a long one where it has much to do.
    let start = Instant::now();
    for messages in 1.. {
        peer.write_all(b"x").unwrap();
        run(&mut driver, &mut script, |script| script.bytes_of(token).len() == messages);
        thread::sleep(Duration::from_millis(1));
        if messages >= 100 && (asked.is_err() || !stamps.borrow().is_empty() || start.elapsed() > PATIENCE) {
            break;
        }
    }
    drop(script);
    let stamps = stamps.into_inner();
    match asked {
        Ok(()) => assert!(!stamps.is_empty()),
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
            assert_eq!(stamps, []);
        }
    }
    for (arrival, delivered) in stamps {
        let sent = if arrival.clock == Clock::Realtime { sent[0] } else { sent[1] };
        assert!((sent..=delivered).contains(&arrival.nanos), "{arrival:?} is not between {sent} and {delivered}");
    }
}

/// The kernel announces stamps like errors. They end nothing, whatever else the connection does.
pub fn sends_are_stamped_or_have_no_number<D: Driver>(make: fn() -> D) {
    let now = || {
        let now = clock_gettime(ClockId::Realtime);
        u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap()
    };
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    let send_order = |driver: &mut D| {
        let mut order = Buf::new();
        order.put(b"order");
        let (sent, number) = driver.send_stamped(token, order);
        assert!(matches!(sent, Sent::Done(buf) if buf.is_empty()));
        number
    };
    for round in 0..30_u32 {
        // While nobody reads, then with bytes from the peer.
        driver.pause_receive(token, round % 3 == 0);
        let before = now();
        let number = send_order(&mut driver);
        if round % 3 == 1 {
            peer.write_all(b"price").unwrap();
        }
        if let Some(number) = number {
            assert_eq!(number, 4 + 10 * round, "bytes of other sends count");
            let is = |event: &Event| matches!(event, Event::Departed(_, its, _) if *its == number);
            run(&mut driver, &mut script, |script| script.events.iter().any(is));
            let departed = script.events.iter().find(|event| is(event)).unwrap();
            let Event::Departed(of, _, nanos) = *departed else { unreachable!() };
            assert_eq!(of, token);
            assert!((before..=now()).contains(&nanos), "{departed:?} is not between {before} and {}", now());
        } else if ["epoll", "io_uring"].contains(&driver.name()) {
            skip("stamps of sent bytes", "they take Linux 6.2");
        }
        assert!(matches!(send(&mut driver, token, b"plain"), Sent::Done(_)));
    }
    let mut sent = [0; 300];
    peer.read_exact(&mut sent).unwrap();
    assert_eq!(sent[..], b"orderplain".repeat(30)[..]);
    driver.pause_receive(token, false);
    run(&mut driver, &mut script, |script| script.bytes_of(token).len() == 50);
    assert_idle(&mut driver, &mut script);
    // Bytes that wait for the peer are counted too.
    let mut total = 300;
    total += send_until_pending(&mut driver, token);
    let reader = thread::spawn(move || {
        let mut rest = vec![0; total - 300];
        peer.read_exact(&mut rest).unwrap();
        peer
    });
    run(&mut driver, &mut script, |script| script.has(&Event::Sent(token)));
    let peer = reader.join().unwrap();
    if let Some(number) = send_order(&mut driver) {
        assert_eq!(number as usize, total + 4);
        run(&mut driver, &mut script, |script| {
            script.events.iter().any(|event| matches!(event, Event::Departed(_, its, _) if *its == number))
        });
    }
    assert_eq!(script.failures(), []);
    // The peer resets: its bytes are unread.
    drop(peer);
    run(&mut driver, &mut script, |script| script.failures() == [token]);
    driver.close(token, false);
    assert_idle(&mut driver, &mut script);
}
