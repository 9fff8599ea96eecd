//! Outgoing WebSockets that move from shard to shard while messages are in flight.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline_engine::{Config, Conn, DialId, Handler, Movers, Opening, Outgoing, Reconnect, Shard, Staying, Target};
use tautline_io::{Address, DriverConfig, ListenOptions};
use tautline_testkit::rustls_peer::Fixture;
use tautline_tls::{Engine, Versions, plain};
use tautline_tls_rustls::fused;
use tautline_ws::Message;

const PATIENCE: Duration = Duration::from_secs(60);
/// Messages that are on their way at a time.
const ON_WAY: u64 = 8;

/// Either end: a server sends back, and a client counts what comes back.
#[derive(Default)]
struct App {
    restored: Vec<DialId>,
    /// For connections that come from another shard.
    target: Option<Target>,
    ended: usize,
}

/// The numbers of the next messages to be sent, and to be received.
#[derive(Default)]
struct Numbers(u64, u64);

impl Numbers {
    fn send(&mut self) -> Vec<u8> {
        self.0 += 1;
        let len = usize::try_from(self.0 * 977 % 40_000).unwrap();
        [&self.0.to_be_bytes()[..], &vec![7; len]].concat()
    }
}

impl Handler for App {
    type State = Numbers;

    fn on_open(&mut self, conn: &mut Conn<'_, Numbers>, _: &Opening<'_>) {
        if conn.dial().is_some() {
            for _ in 0..ON_WAY {
                let message = conn.state().send();
                conn.binary(&message);
            }
        }
    }

    fn on_message(&mut self, conn: &mut Conn<'_, Numbers>, message: Message<'_>) {
        if conn.dial().is_none() {
            conn.send(Outgoing::from(&message));
            return;
        }
        conn.state().1 += 1;
        assert_eq!(message.data()[..8], conn.state().1.to_be_bytes(), "lost, doubled or out of order");
        let next = conn.state().send();
        conn.binary(&next);
    }

    fn on_dial_end(&mut self, _: DialId) {
        self.ended += 1;
    }

    fn save_state(&mut self, state: &mut Numbers, out: &mut Vec<u8>) -> bool {
        out.extend([state.0.to_be_bytes(), state.1.to_be_bytes()].concat());
        true
    }

    fn restore_state(&mut self, saved: &[u8]) -> Option<Numbers> {
        let (sent, received) = saved.split_at_checked(8)?;
        Some(Numbers(u64::from_be_bytes(sent.try_into().ok()?), u64::from_be_bytes(received.try_into().ok()?)))
    }

    fn restore_target(&mut self, _: &Numbers) -> Option<Target> {
        self.target.clone()
    }

    fn on_restored(&mut self, conn: &mut Conn<'_, Numbers>) {
        self.restored.extend(conn.dial());
    }
}

fn shard<E: Engine>(engine: &E, app: App) -> Shard<E, App> {
    Shard::new(0, Arc::new(Config::default()), engine.clone(), DriverConfig::default().open().unwrap(), app).unwrap()
}

fn turns<E: Engine>(shards: [&mut Shard<E, App>; 2], what: &str, is_so: impl Fn([&Shard<E, App>; 2]) -> bool) {
    let (start, [one, two]) = (Instant::now(), shards);
    while !is_so([one, two]) {
        assert!(start.elapsed() < PATIENCE, "{what}");
        one.turn(Some(Duration::from_millis(1))).unwrap();
        two.turn(Some(Duration::from_millis(1))).unwrap();
    }
}

/// Moves what can move. Returns the number of connections that the new shard has refused.
fn go<E: Engine>(old: &mut Shard<E, App>, new: &mut Shard<E, App>) -> (usize, Staying) {
    old.settle();
    old.hold_still().unwrap();
    let mut all: Vec<(Movers, Vec<OwnedFd>, Vec<u8>)> = Vec::new();
    let staying = old.save(&mut |movers, sockets, saved| {
        all.push((movers, sockets.iter().map(|socket| socket.try_clone_to_owned().unwrap()).collect(), saved.to_vec()));
        Ok(())
    });
    let (mut conns, mut refused) = (Vec::new(), 0);
    for (movers, sockets, saved) in all {
        match new.restore(sockets, &saved) {
            Ok(_) => conns.extend(movers.conns()),
            Err(_) => refused += 1,
        }
    }
    assert_eq!(new.begin_restored(), conns.len());
    old.give_away(&conns);
    (refused, staying.unwrap())
}

fn echo<E: Engine>(engine: &E) -> (Shard<E, App>, Target) {
    let mut echo = shard(engine, App::default());
    let at = echo.listen(&"127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).unwrap();
    let Address::Tcp(address) = at else { panic!("a TCP address") };
    let scheme = if engine.is_plain() { "ws" } else { "wss" };
    let mut target = Target::new(&format!("{scheme}://localhost:{}/", address.port())).unwrap();
    target.address = Some(at);
    target.deflate = Some(Default::default());
    (echo, target)
}

fn moves_again_and_again<E: Engine>(engine: &E) {
    let (mut echo, target) = echo(engine);
    let mut current = shard(engine, App::default());
    for _ in 0..3 {
        current.connect(Arc::new(target.clone()));
    }
    for round in 1..=5 {
        let enough = echo.counters().messages_in + 200;
        turns([&mut echo, &mut current], "messages", |[echo, _]| echo.counters().messages_in >= enough);
        let mut new = shard(engine, App::default());
        // A message amid which it is compressed stays: it ends with the next turns.
        let start = Instant::now();
        while current.counters().connections > 0 {
            assert!(start.elapsed() < PATIENCE, "round {round}");
            let (refused, staying) = go(&mut current, &mut new);
            assert_eq!((refused, staying.compressed), (0, staying.total()), "{staying}");
            turns([&mut echo, &mut current], "a turn", |_| true);
            new.turn(Some(Duration::from_millis(1))).unwrap();
            current.turn(Some(Duration::from_millis(1))).unwrap();
            echo.turn(Some(Duration::from_millis(1))).unwrap();
        }
        assert_eq!((new.handler().restored.len(), current.handler().ended, echo.handler().ended), (3, 0, 0));
        assert!(current.is_idle(), "no dial is left");
        current = new;
    }
    assert!(current.counters().messages_in > 0 || echo.counters().messages_in >= 1000);
}

#[test]
fn nothing_is_lost_without_tls() {
    moves_again_and_again(&plain::Engine);
}

#[test]
fn nothing_is_lost_with_our_own_records() {
    let fixture = Fixture::default();
    let engine =
        fused::Engine::new(Some(&fixture.server(Versions::All)), Some(&fixture.client(Versions::All))).unwrap();
    moves_again_and_again(&engine);
}

#[test]
fn a_connection_that_comes_back_needs_its_target() {
    let (mut echo, mut target) = echo(&plain::Engine);
    target.reconnect = Some(Reconnect::new(Duration::from_millis(1), Duration::from_millis(2)));
    target.deflate = None;
    let mut old = shard(&plain::Engine, App::default());
    old.connect(Arc::new(target.clone()));
    turns([&mut echo, &mut old], "messages", |[echo, _]| echo.counters().messages_in >= 20);
    let mut without = shard(&plain::Engine, App::default());
    assert_eq!(go(&mut old, &mut without).0, 1);
    let enough = echo.counters().messages_in + 20;
    turns([&mut echo, &mut old], "it goes on", |[echo, _]| echo.counters().messages_in >= enough);
    let mut with = shard(&plain::Engine, App { target: Some(target), ..App::default() });
    let (refused, staying) = go(&mut old, &mut with);
    assert_eq!((refused, staying.total(), with.handler().restored.len()), (0, 0, 1));
    // The server loses it, and it comes back.
    echo.drain(tautline_ws::CloseCode::new(1012), "restart", Duration::from_secs(1));
    turns([&mut echo, &mut with], "the end", |[_, with]| with.counters().open == 0);
    assert_eq!(with.handler().ended, 0, "the target is not given up");
}
