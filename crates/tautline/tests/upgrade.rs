//! Servers that take over from each other, while clients talk to them.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::server::{client_config, config, server_config};
use common::{eventually, logs};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tautline::{
    Bridge, CloseCode, Config, Conn, DeflateConfig, DriverConfig, HandOver, HandedOver, Handler, MemoryBroker, Message,
    Outgoing, Reconnect, Server, ServerHandle, Socket, Target, Tls, TlsEngine,
};

/// Answers with the number of messages so far, and tells everybody about each hundredth.
struct Count {
    saves: bool,
}

impl Handler for Count {
    type State = u64;

    fn on_message(&mut self, conn: &mut Conn<'_, u64>, message: Message<'_>) {
        *conn.state() += 1;
        let count = *conn.state();
        conn.text(&format!("{count} {}", message.text().unwrap()));
    }

    fn save_state(&mut self, state: &mut u64, out: &mut Vec<u8>) -> bool {
        out.extend(state.to_be_bytes());
        self.saves
    }

    fn restore_state(&mut self, saved: &[u8]) -> Option<u64> {
        saved.try_into().ok().map(u64::from_be_bytes)
    }
}

fn server(engine: TlsEngine, driver: &DriverConfig) -> Server<TlsEngine> {
    Server::new(Tls { engine, config: server_config() }).shards(2).driver(driver.clone()).config(compression())
}

/// Windows go from message to message.
fn compression() -> Config {
    let mut config = config();
    config.upgrade.deflate = Some(deflate());
    config
}

fn deflate() -> DeflateConfig {
    let mut deflate = DeflateConfig::with_context_takeover();
    deflate.min_size = 0;
    deflate
}

/// Has another server of this process take over.
fn upgrade(old: &ServerHandle, new: Server<TlsEngine>, saves: bool) -> (ServerHandle, HandedOver) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let giving = old.clone();
    let giver = std::thread::spawn(move || giving.hand_over(ours, &HandOver::default()));
    let taken = new.take_over(theirs).start(move |_| Count { saves });
    let handed = giver.join().unwrap().unwrap();
    (taken.unwrap(), handed)
}

fn connect(at: &tautline::Address, secure: bool, compresses: bool) -> Socket {
    let mut target = Target::new(if secure { "wss://localhost/" } else { "ws://localhost/" }).unwrap();
    target.address = Some(at.clone());
    target.deflate = compresses.then(deflate);
    Socket::connect(target, client_config(), config()).unwrap()
}

/// Sends numbered messages on many sockets until `stop`, several at a time, and checks each answer. Returns their number.
fn talk(sockets: &mut [Socket], stop: &AtomicBool, longest: &AtomicU64) -> u64 {
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        for number in round * 3..round * 3 + 3 {
            for socket in &mut *sockets {
                socket.text(&format!("message {number}")).unwrap();
            }
        }
        for number in round * 3..round * 3 + 3 {
            for socket in &mut *sockets {
                let answer = socket.receive().unwrap();
                assert_eq!(
                    String::from_utf8_lossy(answer.data()),
                    format!("{} message {number}", number + 1),
                    "lost, doubled or out of order"
                );
            }
        }
        longest.fetch_max(u64::try_from(start.elapsed().as_micros()).unwrap(), Ordering::Relaxed);
        round += 1;
    }
    round * 3
}

/// The connections and upgrades of a run; `TAUTLINE_UPGRADE=10000,100` asks for more.
fn size() -> (usize, usize) {
    let text = std::env::var("TAUTLINE_UPGRADE").unwrap_or_else(|_| "64,6".into());
    let (connections, upgrades) = text.split_once(',').unwrap();
    (connections.parse().unwrap(), upgrades.parse().unwrap())
}

fn several_upgrades_in_a_row(engine: TlsEngine, driver: &DriverConfig) {
    logs::keep();
    tautline::layers::io::machine::raise_nofile_limit().unwrap();
    let (connections, upgrades) = size();
    let mut current =
        server(engine, driver).listen("127.0.0.1:0".parse().unwrap()).start(|_| Count { saves: true }).unwrap();
    let at = current.addresses()[0].clone();
    let (stop, longest) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let ready = Arc::new(std::sync::Barrier::new(5));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (at, stop, longest, ready) = (at.clone(), stop.clone(), longest.clone(), ready.clone());
            std::thread::spawn(move || {
                let secure = engine != TlsEngine::Plain;
                let mut sockets: Vec<_> =
                    (0..connections / 4).map(|number| connect(&at, secure, number % 2 == 0)).collect();
                ready.wait();
                talk(&mut sockets, &stop, &longest) * sockets.len() as u64
            })
        })
        .collect();
    ready.wait();
    let mut pause = Duration::ZERO;
    for _ in 0..upgrades {
        std::thread::sleep(Duration::from_millis(20));
        let (new, handed) = upgrade(&current, server(engine, driver), true);
        assert_eq!((handed.moved, handed.refused, handed.staying.total()), (connections / 4 * 4, 0, 0));
        pause = pause.max(handed.pause);
        current.join().unwrap();
        current = new;
        // New clients come too.
        let mut another = connect(&at, engine != TlsEngine::Plain, false);
        another.text("0").unwrap();
        assert_eq!(another.receive().unwrap().data(), b"1 0");
        another.close(CloseCode::NORMAL, "").unwrap();
        while current.shards().iter().map(|shard| shard.counters().connections).sum::<u64>() > connections as u64 {
            std::thread::yield_now();
        }
    }
    stop.store(true, Ordering::Relaxed);
    let messages: u64 = clients.into_iter().map(|client| client.join().unwrap()).sum();
    assert!(messages > 0);
    eprintln!(
        "{engine} over {}: {connections} connections, {upgrades} upgrades, {messages} messages, \
         pause {pause:?}, longest round {:?}",
        driver.name(),
        Duration::from_micros(longest.load(Ordering::Relaxed))
    );
    current.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
    current.join().unwrap();
}

#[test]
fn live_connections_notice_nothing_over_tls() {
    several_upgrades_in_a_row(TlsEngine::Fused, &DriverConfig::default());
}

#[test]
fn live_connections_notice_nothing_over_io_uring() {
    let driver: DriverConfig = "uring".parse().unwrap();
    match driver.probe() {
        Ok(_) => several_upgrades_in_a_row(TlsEngine::Fused, &driver),
        Err(error) => eprintln!("skipped: {error}"),
    }
}

#[test]
fn live_connections_notice_nothing_without_tls() {
    several_upgrades_in_a_row(TlsEngine::Plain, &DriverConfig::default());
}

#[test]
fn connections_that_cannot_move_are_named_and_closed_with_1012() {
    logs::keep();
    let driver = DriverConfig::default();
    for (engine, saves) in [(TlsEngine::Fused, false), (TlsEngine::Rustls, true)] {
        let old =
            server(engine, &driver).listen("127.0.0.1:0".parse().unwrap()).start(move |_| Count { saves }).unwrap();
        let mut socket = connect(&old.addresses()[0], true, false);
        socket.text("0").unwrap();
        socket.receive().unwrap();
        let (new, handed) = upgrade(&old, server(engine, &driver), saves);
        assert_eq!((handed.moved, handed.refused, handed.staying.total()), (0, 0, 1));
        assert_eq!((handed.staying.state, handed.staying.tls), (usize::from(!saves), usize::from(saves)));
        match socket.receive().unwrap_err() {
            tautline::Error::Closed(closed) => assert_eq!(closed.code.get(), 1012),
            other => panic!("{other}"),
        }
        drop(socket);
        old.join().unwrap();
        let mut again = connect(&new.addresses()[0], true, false);
        again.send(Outgoing::text("0")).unwrap();
        assert_eq!(again.receive().unwrap().data(), b"1 0");
        new.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
        new.join().unwrap();
    }
}

#[test]
fn clients_resume_their_sessions_at_the_new_process() {
    logs::keep();
    let (engine, driver) = (TlsEngine::Fused, DriverConfig::default());
    let old = server(engine, &driver).listen("127.0.0.1:0".parse().unwrap()).start(|_| Count { saves: false }).unwrap();
    let mut target = Target::new("wss://localhost/").unwrap();
    target.address = Some(old.addresses()[0].clone());
    let wait = Duration::from_millis(5);
    target.reconnect = Some(Reconnect::new(wait, wait));
    let client = tautline::Client::new(client_config()).target(target);
    let client = client.start(|_| Count { saves: false }).unwrap();
    let opened = |server: &ServerHandle| server.shards().iter().map(|shard| shard.counters().opened).sum::<u64>();
    eventually("the client connects", || opened(&old) == 1);
    // Its connection cannot move, so it is closed, and the client comes back.
    let (new, handed) = upgrade(&old, server(engine, &driver), true);
    assert_eq!((handed.moved, handed.staying.state), (0, 1));
    // The old process has counted the first connection.
    eventually("the client comes back", || opened(&new) == 2);
    assert_eq!(new.shards().iter().map(|shard| shard.counters().resumed).sum::<u64>(), 1);
    old.join().unwrap();
    client.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
    client.join().unwrap();
    new.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
    new.join().unwrap();
}

#[test]
fn counters_of_the_broker_go_on() {
    logs::keep();
    let (engine, driver) = (TlsEngine::Plain, DriverConfig::default());
    let with_broker = || server(engine, &driver).bridge(Bridge::start(MemoryBroker::new()).unwrap());
    let old = with_broker().listen("127.0.0.1:0".parse().unwrap()).start(|_| Count { saves: true }).unwrap();
    let counters = |server: &ServerHandle| server.broker_counters().unwrap();
    eventually("the broker is connected", || counters(&old).connected);
    for _ in 0..3 {
        old.publish("news", Outgoing::text("for other hosts")).unwrap();
    }
    eventually("they are passed", || counters(&old).passed == 3);
    let (new, _) = upgrade(&old, with_broker(), true);
    eventually("the broker is connected", || counters(&new).connected);
    assert_eq!((counters(&new).passed, counters(&new).connects), (3, counters(&old).connects + 1));
    for server in [old, new] {
        server.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
        server.join().unwrap();
    }
}

#[test]
fn a_new_process_that_gives_up_says_why_and_changes_nothing() {
    logs::keep();
    let (engine, driver) = (TlsEngine::Plain, DriverConfig::default());
    let old = server(engine, &driver).listen("127.0.0.1:0".parse().unwrap()).start(|_| Count { saves: true }).unwrap();
    let mut socket = connect(&old.addresses()[0], false, false);
    for gives_up in [true, false] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let giving = old.clone();
        let giver = std::thread::spawn(move || giving.hand_over(ours, &HandOver::default()));
        let new = server(engine, &driver).take_over(theirs).prepare(|_| Count { saves: true }).unwrap();
        assert!(new.takes_over());
        assert_eq!(new.handle().addresses(), old.addresses());
        if gives_up {
            new.give_up(&"the disk is full");
        } else {
            drop(new);
        }
        let error = giver.join().unwrap().unwrap_err().to_string();
        assert!(error.contains(if gives_up { "the disk is full" } else { "did not go on" }), "{error}");
        socket.text("0").unwrap();
        assert!(socket.receive().unwrap().data().ends_with(b" 0"));
    }
    old.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
    old.join().unwrap();
}

#[test]
fn listening_sockets_of_further_servers_go_along() {
    logs::keep();
    let (engine, driver) = (TlsEngine::Plain, DriverConfig::default());
    let at = |address: &str| server(engine, &driver).listen(address.parse().unwrap()).start(|_| Count { saves: true });
    let place = std::env::temp_dir().join(format!("tautline-also-{}", std::process::id()));
    let path = format!("unix:{}", place.display());
    let (old, further) = (at("127.0.0.1:0").unwrap(), at(&path).unwrap());
    for fails in [true, false] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (giving, also) = (old.clone(), further.clone());
        let giver = std::thread::spawn(move || {
            let mut settings = HandOver::default();
            settings.also.push(also);
            giving.hand_over(ours, &settings)
        });
        let mut new = server(engine, &driver).take_over(theirs).prepare(|_| Count { saves: true }).unwrap();
        assert!(new.take_listening_of(1).is_empty());
        let sockets = new.take_listening_of(0);
        assert_eq!((sockets.len(), new.take_listening_of(0).len()), (1, 0));
        let mut another = server(engine, &driver);
        for socket in sockets {
            another = another.listen_on(socket);
        }
        let another = another.prepare(|_| Count { saves: true }).unwrap();
        assert!(!another.takes_over());
        if fails {
            new.give_up(&"no reason");
            another.give_up(&"no reason");
            assert!(giver.join().unwrap().is_err());
            let mut socket = connect(&further.addresses()[0], false, false);
            socket.text("0").unwrap();
            assert_eq!(socket.receive().unwrap().data(), b"1 0");
            continue;
        }
        let new = new.go_on().unwrap();
        let another = another.go_on().unwrap();
        giver.join().unwrap().unwrap();
        for server in [&old, &further] {
            server.clone().join().unwrap();
        }
        assert!(place.exists(), "the socket's file is the new process's");
        let mut socket = connect(&another.addresses()[0], false, false);
        socket.text("0").unwrap();
        assert_eq!(socket.receive().unwrap().data(), b"1 0");
        for server in [new, another] {
            server.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
            server.join().unwrap();
        }
    }
    let _ = std::fs::remove_file(place);
}
