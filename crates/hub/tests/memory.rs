//! Memory that clients of a hub can make it hold, measured by a counting allocator.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of this runs inside tests")]

#[path = "../../testkit/measuring/sys.rs"]
mod measuring;

use measuring::{PEAK, alone, live};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tautline::{CloseCode, Config, Counters, Server, ServerHandle};
use tautline_hub::{Append, Done, Following, Hub, Kind, Log, Page, Position, Sink};

const MIB: usize = 1 << 20;
/// Longest wait. A test that waits longer fails.
const PATIENCE: Duration = Duration::from_secs(120);

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A hub on one loop, with a budget of memory.
fn serve(hub: &Hub, budget: usize) -> ServerHandle {
    let mut config = Config::default();
    config.limits.memory = budget;
    (config.deadlines.ping, config.deadlines.idle) = (None, None);
    let server = Server::plain().config(config).listen("127.0.0.1:0".parse().unwrap()).shards(1).beside_others(true);
    server.start(hub.handlers()).unwrap()
}

fn stop(server: ServerHandle) {
    server.drain(CloseCode::SERVICE_RESTART, "", Duration::from_secs(1));
    server.join().unwrap();
}

fn counters(server: &ServerHandle) -> Counters {
    server.shards()[0].counters()
}

/// A client without memory in this process beside its socket.
struct Peer(TcpStream);

impl Peer {
    fn connect(to: SocketAddr) -> Option<Self> {
        let mut peer = Self(TcpStream::connect(to).ok()?);
        peer.0.set_read_timeout(Some(PATIENCE)).unwrap();
        peer.0.set_nodelay(true).unwrap();
        let upgrade = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        peer.0.write_all(upgrade).ok()?;
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            peer.0.read_exact(&mut byte).ok()?;
            head.push(byte[0]);
        }
        head.starts_with(b"HTTP/1.1 101").then_some(peer)
    }

    /// Sends texts in one piece. False if the server has hung up.
    fn send(&mut self, texts: impl Iterator<Item = String>) -> bool {
        let mut bytes = Vec::new();
        for text in texts {
            match u8::try_from(text.len()) {
                Ok(short @ ..126) => bytes.extend([0x81, 0x80 | short]),
                _ => {
                    bytes.extend([0x81, 0x80 | 126]);
                    bytes.extend(u16::try_from(text.len()).unwrap().to_be_bytes());
                }
            }
            // A mask of zeros changes nothing.
            bytes.extend([0; 4]);
            bytes.extend(text.as_bytes());
        }
        self.0.write_all(&bytes).is_ok()
    }

    /// Reads the answers that have `part` in them, until there are `count`. Returns their number, and the code of a close frame.
    fn answers(&mut self, part: &str, count: usize) -> (usize, Option<u16>) {
        let mut found = 0;
        while found < count {
            match self.frame() {
                Some((0x81, text)) => found += usize::from(String::from_utf8(text).unwrap().contains(part)),
                Some((0x88, close)) => return (found, Some(u16::from_be_bytes([close[0], close[1]]))),
                Some(_) => {}
                None => return (found, None),
            }
        }
        (found, None)
    }

    fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 2];
        self.exactly(&mut head)?;
        let mut long = [0; 8];
        let len = match head[1] {
            127 => {
                self.exactly(&mut long)?;
                usize::try_from(u64::from_be_bytes(long)).unwrap()
            }
            126 => {
                self.exactly(&mut long[6..])?;
                usize::try_from(u64::from_be_bytes(long)).unwrap()
            }
            len => len.into(),
        };
        let mut payload = vec![0; len];
        self.exactly(&mut payload)?;
        Some((head[0], payload))
    }

    /// The next frame, if it has come.
    fn frame_now(&mut self) -> Option<(u8, Vec<u8>)> {
        let has_come = self.0.peek(&mut [0]).is_ok_and(|len| len > 0);
        if !has_come {
            return None;
        }
        self.0.set_nonblocking(false).unwrap();
        let frame = self.frame();
        self.0.set_nonblocking(true).unwrap();
        frame
    }

    fn exactly(&mut self, bytes: &mut [u8]) -> Option<()> {
        match self.0.read_exact(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("the server does not answer"),
            other => other.ok(),
        }
    }
}

fn subscription(topic: &str, more: &str) -> String {
    format!(r#"{{"type":"subscribe","topic":"{topic}"{more}}}"#)
}

/// Clients that all have 128 topics, beside a few with three. They would take several times the budget.
fn a_crowd_with_many_topics(clients: usize, budget: usize, prefix: &str, more: &str) {
    let _alone = alone();
    let base = live();
    let server = serve(&Hub::default(), budget);
    let to = address(&server);
    let mut honest: Vec<_> = (0..10).map(|_| Peer::connect(to).unwrap()).collect();
    let topics = ["news", "log:news", "latest:news"];
    for peer in &mut honest {
        assert!(peer.send(topics.into_iter().map(|topic| subscription(topic, ""))));
        assert_eq!(peer.answers("\"subscribed\"", 3), (3, None));
    }
    PEAK.store(live(), Ordering::Relaxed);
    let mut codes = Vec::new();
    // All of them connect before memory is short.
    let mut crowd: Vec<_> = (0..clients).map(|_| Peer::connect(to).unwrap()).collect();
    for (number, peer) in crowd.iter_mut().enumerate() {
        let topics = (0..128).map(|n| subscription(&format!("{prefix}{number}-{n}"), more));
        if peer.send(topics) {
            codes.extend(peer.answers("\"subscribed\"", 128).1);
        }
        if number % 128 == 0 {
            let text = format!(r#"{{"type":"publish","topic":"news","data":{number}}}"#);
            assert!(honest[0].send([text].into_iter()));
            for peer in &mut honest {
                assert_eq!(peer.answers("\"message\"", 1), (1, None), "an honest client is served");
            }
        }
    }
    let (peak, found) = (PEAK.load(Ordering::Relaxed) - base, counters(&server));
    println!("at most {} KiB for {clients} clients, {} of them closed", peak >> 10, found.memory_closed);
    assert!(peak < budget + 64 * MIB, "{} MiB: {found:?}", peak / MIB);
    // A loop that has gone above it closes connections in its next turns.
    eventually("memory is within the budget", || counters(&server).memory() <= budget as u64);
    assert!(found.memory_closed > 0, "{found:?}");
    // Clients that were closed after their subscriptions are told why, too.
    for peer in &mut crowd {
        peer.0.set_nonblocking(true).unwrap();
        while let Some((first, payload)) = peer.frame_now() {
            codes.extend((first == 0x88).then(|| u16::from_be_bytes([payload[0], payload[1]])));
        }
    }
    assert!(!codes.is_empty() && codes.iter().all(|code| *code == 1013), "{codes:?}");
    drop((crowd, honest));
    eventually("all are gone", || counters(&server).connections == 0);
    // The topics' tracks stay for ten seconds.
    eventually("nothing is left", || counters(&server).memory_application < 4 << 10 && live() < base + 2 * MIB);
    stop(server);
}

#[test]
fn a_crowd_with_history_and_members_stays_within_the_budget() {
    a_crowd_with_many_topics(500, 8 * MIB, "log:", r#","as":"me","presence":true"#);
}

#[test]
#[ignore = "takes a minute: cargo test -p tautline-hub --test memory -- --ignored --nocapture"]
fn three_thousand_clients_with_all_their_topics_stay_within_the_budget() {
    a_crowd_with_many_topics(3_000, 64 * MIB, "log:", r#","as":"me","presence":true"#);
}

#[test]
fn plain_topics_with_long_names_stay_within_the_budget() {
    a_crowd_with_many_topics(300, 8 * MIB, &"n".repeat(240), "");
}

/// Makes `peers` clients act, once they are there. Returns the growth of allocated bytes, and of counted ones.
fn growth(server: &ServerHandle, peers: usize, act: impl Fn(usize, &mut Peer)) -> (usize, usize) {
    let mut peers: Vec<_> = (0..peers).map(|_| Peer::connect(address(server)).unwrap()).collect();
    eventually("all are open", || counters(server).open == peers.len() as u64);
    let counted = || usize::try_from(counters(server).memory_application + counters(server).memory_topics).unwrap();
    let (live_before, counted_before) = (live(), counted());
    peers.iter_mut().enumerate().for_each(|(number, peer)| act(number, peer));
    // Buffers of the last answers are back in the pool soon.
    eventually("the loop rests", || {
        let before = (live(), counted());
        std::thread::sleep(Duration::from_millis(300));
        before == (live(), counted())
    });
    (live() - live_before, counted() - counted_before)
}

fn assert_near(what: &str, (allocated, counted): (usize, usize)) {
    println!("{what}: {allocated} bytes allocated, {counted} counted");
    assert!(allocated > 100 << 10, "{what}: too few to compare");
    let near = allocated * 4 / 5..=allocated * 6 / 5;
    assert!(near.contains(&counted), "{what}: {allocated} bytes allocated, {counted} counted");
}

#[test]
fn subscriptions_count_what_they_allocate() {
    let _alone = alone();
    let long = "n".repeat(200);
    for (what, prefix, is_shared, more) in [
        ("plain topics", "", false, ""),
        ("plain topics of many", "", true, ""),
        ("topics with history", "log:", false, ""),
        ("conflating topics of many", "latest:", true, ""),
        ("members", "", false, r#","as":"me""#),
        ("members of the same topics", "", true, r#","as":"me""#),
        ("watchers", "", false, r#","presence":true"#),
        ("members and watchers of topics with history", "log:", false, r#","as":"me","presence":true"#),
        ("plain topics with long names", &*long, false, ""),
        ("long names of all kinds", &*format!("log:{long}"), false, r#","as":"me","presence":true"#),
    ] {
        let server = serve(&Hub::default(), 1 << 40);
        let found = growth(&server, 50, |number, peer| {
            let number = if is_shared { 0 } else { number };
            assert!(peer.send((0..128).map(|n| subscription(&format!("{prefix}t{n}-{number}"), more))));
            assert_eq!(peer.answers("\"subscribed\"", 128), (128, None));
        });
        assert_near(what, found);
        stop(server);
    }
}

fn publication(topic: &str, n: usize, more: &str) -> String {
    format!(r#"{{"type":"publish","topic":"{topic}","data":"{:0100}","id":"m{n}"{more}}}"#, n)
}

#[test]
fn a_log_in_memory_counts_what_it_allocates() {
    let _alone = alone();
    for (what, topics, messages, more) in [
        ("messages of a few topics", 1, 600, ""),
        ("many topics with a message", 300, 1, ""),
        ("keys of conflating topics", 1, 300, "key"),
    ] {
        let server = serve(&Hub::default(), 1 << 40);
        let found = growth(&server, 20, |number, peer| {
            for n in 0..topics * messages {
                let (prefix, key) =
                    if more.is_empty() { ("log", String::new()) } else { ("latest", format!(r#","key":"{n}""#)) };
                let topic = format!("{prefix}:{number}-{}", n % topics);
                assert!(peer.send([publication(&topic, n, &key)].into_iter()));
                assert_eq!(peer.answers("\"published\"", 1), (1, None));
            }
        });
        assert_near(what, found);
        stop(server);
    }
}

/// A log that answers once it is told to.
#[derive(Default)]
struct Slow(Mutex<Vec<Done<Position>>>);

impl Log for Slow {
    fn append(&self, _: &Arc<str>, _: Append, done: Done<Position>) {
        self.0.lock().unwrap().push(done);
    }

    fn follow(&self, _: &Arc<str>, _: Kind, _: Arc<dyn Sink>) -> Following {
        Box::new(())
    }

    fn read(&self, _: &Arc<str>, _: Kind, _: Option<u64>, _: Done<Page>) {}
}

#[test]
fn messages_that_wait_for_a_slow_log_count_until_it_has_them() {
    let _alone = alone();
    let log = Arc::new(Slow::default());
    let server = serve(&Hub::with_log(tautline_hub::Config::default(), log.clone(), None), 1 << 40);
    let mut peers: Vec<_> = (0..10).map(|_| Peer::connect(address(&server)).unwrap()).collect();
    // The buffers in which bursts waited for their visits stay in the pool.
    let pooled = || counters(&server).memory_pooled;
    let (before, counted, pooled_before) = (live(), counters(&server).memory_application, pooled());
    let messages = 100;
    for peer in &mut peers {
        let text = |n| format!(r#"{{"type":"publish","topic":"log:a","data":"{}","id":"{n}"}}"#, "d".repeat(5_000));
        assert!(peer.send((0..messages).map(text)));
    }
    let read = || counters(&server).messages_in;
    eventually("all are read", || read() == 10 * messages);
    eventually("the loop rests", || {
        let before = live();
        std::thread::sleep(Duration::from_millis(300));
        live() == before
    });
    let grown = counters(&server).memory_application - counted + pooled() - pooled_before;
    let grown = usize::try_from(grown).unwrap();
    assert_near("messages that wait", (live() - before, grown));
    eventually("all are answered", || {
        let dones = std::mem::take(&mut *log.0.lock().unwrap());
        dones.into_iter().for_each(|done| done(Ok(Position { epoch: "a".into(), offset: 1 })));
        counters(&server).messages_out == 10 * messages
    });
    eventually("nothing waits", || counters(&server).memory_application < counted + (10 << 10));
    drop(peers);
    stop(server);
}

#[test]
fn a_full_log_leaves_room_for_connections() {
    let _alone = alone();
    let budget = 16 * MIB;
    let server = serve(&Hub::default(), budget);
    let mut peer = Peer::connect(address(&server)).unwrap();
    let data = "d".repeat(60_000);
    // More than the log would keep, and more than the budget.
    for n in 0..400 {
        let topic = format!("log:{n}");
        let text = format!(r#"{{"type":"publish","topic":"{topic}","data":"{data}","id":"{n}"}}"#);
        assert!(peer.send([text].into_iter()));
        assert_eq!(peer.answers("\"published\"", 1), (1, None));
    }
    let found = counters(&server).memory_application;
    assert!((budget as u64 / 5..budget as u64 / 3).contains(&found), "{found}");
    assert!(Peer::connect(address(&server)).is_some());
    assert_eq!(counters(&server).memory_closed, 0);
    stop(server);
}

#[test]
fn recent_messages_of_followed_topics_count() {
    let _alone = alone();
    let server = serve(&Hub::default(), 1 << 40);
    let found = growth(&server, 20, |number, peer| {
        let topic = format!("log:{number}");
        assert!(peer.send([subscription(&topic, "")].into_iter()));
        assert_eq!(peer.answers("\"subscribed\"", 1), (1, None));
        for n in 0..128 {
            assert!(peer.send([publication(&topic, n, "")].into_iter()));
            assert_eq!(peer.answers("\"message\"", 1), (1, None));
        }
    });
    assert_near("recent messages, and the log", found);
    stop(server);
}

fn address(server: &ServerHandle) -> SocketAddr {
    match &server.addresses()[0] {
        tautline::Address::Tcp(address) => *address,
        other => panic!("{other}"),
    }
}
