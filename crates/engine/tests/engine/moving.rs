//! Connections that move from shard to shard while messages are in flight.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tautline_buf::Buf;
use tautline_engine::connection::{Connection, Context, Event};
use tautline_engine::{Config, Conn, Handler, Movers, Outgoing, Prefixes, ProxyHeader, Shard, Staying, Target, Totals};
use tautline_io::{Address, DriverConfig, ListenOptions};
use tautline_testkit::rustls_peer::Fixture;
use tautline_tls::{Engine, Session, Versions, plain};
use tautline_tls_rustls::fused;
use tautline_ws::Message;
use tautline_ws::deflate::DeflateConfig;

const PATIENCE: Duration = Duration::from_secs(60);

/// Answers each message with its first eight bytes, the number of messages so far, and the rest.
struct Count {
    saves: bool,
    restored: usize,
}

impl Handler for Count {
    type State = u64;

    fn on_message(&mut self, conn: &mut Conn<'_, u64>, message: Message<'_>) {
        *conn.state() += 1;
        let count = conn.state().to_be_bytes();
        match message.data() {
            b"topic" => assert!(conn.subscribe("news") && conn.subscribe_prefix("pre.")),
            b"timer" => conn.set_timer(Duration::from_millis(400), 7),
            data => {
                let (number, rest) = data.split_at(8);
                conn.binary(&[number, &count, rest].concat());
            }
        }
    }

    fn on_timer(&mut self, conn: &mut Conn<'_, u64>, id: u64) {
        conn.text(&format!("timer {id}"));
    }

    fn save_state(&mut self, state: &mut u64, out: &mut Vec<u8>) -> bool {
        out.extend(state.to_be_bytes());
        self.saves
    }

    fn restore_state(&mut self, saved: &[u8]) -> Option<u64> {
        saved.try_into().ok().map(u64::from_be_bytes)
    }

    fn on_restored(&mut self, _: &mut Conn<'_, u64>) {
        self.restored += 1;
    }
}

/// A blocking client.
struct Client<S> {
    socket: TcpStream,
    context: Context,
    connection: Connection<S>,
}

impl<S: Session> Client<S> {
    fn connect(session: S, at: SocketAddr) -> Self {
        Self::compressing(session, at, None)
    }

    fn compressing(session: S, at: SocketAddr, deflate: Option<DeflateConfig>) -> Self {
        let socket = TcpStream::connect(at).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut context = Context::new().unwrap();
        let uri = if session.is_plain() { "ws://localhost/" } else { "wss://localhost/" };
        let mut target = Target::new(uri).unwrap();
        target.deflate = deflate;
        let target = Arc::new(target);
        let connection = Connection::client(session, target, Arc::default(), &mut context, Instant::now()).unwrap();
        let mut client = Self { socket, context, connection };
        assert!(matches!(client.event(), Event::Open(_)));
        client
    }

    fn flush(&mut self) {
        while !self.connection.output(&mut self.context).is_empty() {
            let written = self.socket.write(self.connection.output(&mut self.context)).unwrap();
            self.connection.written(written, &mut self.context);
        }
    }

    fn event(&mut self) -> Event {
        loop {
            if let Some(event) = self.connection.next(&mut self.context) {
                return event;
            }
            self.flush();
            let read = self.socket.read(self.connection.window(&mut self.context)).unwrap();
            assert!(read > 0, "the server ended the connection");
            self.connection.filled(read, Instant::now());
        }
    }

    fn send(&mut self, data: &[u8]) {
        self.connection.send(Outgoing::binary(data), &mut self.context).unwrap();
        self.flush();
    }

    fn receive(&mut self) -> Vec<u8> {
        match self.event() {
            Event::Message(_) => self.connection.payload().data().to_vec(),
            other => panic!("a message was expected, and not {other:?}"),
        }
    }

    /// Sends numbered messages of many sizes, several at a time, and checks that each is answered once and in order.
    fn converse(&mut self, messages: u64, offset: u64) {
        for first in (0..messages).step_by(4) {
            for number in first..first + 4 {
                self.send(&content(number));
                if self.connection.tls_info().version.is_some() && number % 37 == 5 {
                    self.connection.update_keys(number % 2 == 0).unwrap();
                }
            }
            for number in first..first + 4 {
                let answer = self.receive();
                let expected = content(number);
                assert_eq!(answer[..8], expected[..8], "lost, doubled or out of order");
                assert_eq!(answer[8..16], (number + 1 + offset).to_be_bytes(), "the state is another");
                assert!(answer[16..] == expected[8..], "message {number} is another");
            }
        }
    }
}

fn content(number: u64) -> Vec<u8> {
    let len = match number % 16 {
        3 => 300_000,
        7 => 70_000,
        _ => usize::try_from(number * 131 % 5_000).unwrap(),
    };
    let mut data = number.to_be_bytes().to_vec();
    data.extend((0..len).map(|at| (at as u64 * 31 + number).to_le_bytes()[0]));
    data
}

fn shard<E: Engine>(engine: &E, driver: &DriverConfig, saves: bool) -> Shard<E, Count> {
    let handler = Count { saves, restored: 0 };
    let mut config = Config::default();
    config.upgrade.deflate = Some(DeflateConfig::with_context_takeover());
    Shard::new(0, Arc::new(config), engine.clone(), driver.open().unwrap(), handler).unwrap()
}

/// Connections that were sent ahead: the number in the new shard, and the bytes.
type Ahead = HashMap<Movers, (usize, Vec<u8>)>;

fn copies(sockets: &[BorrowedFd<'_>]) -> Vec<OwnedFd> {
    sockets.iter().map(|socket| socket.try_clone_to_owned().unwrap()).collect()
}

/// Restores connections while they go on, as `turns` has the old shard do between two slices.
fn send_ahead<E: Engine>(
    old: &mut Shard<E, Count>,
    new: &mut Shard<E, Count>,
    rounds: usize,
    mut turns: impl FnMut(&mut Shard<E, Count>),
) -> Ahead {
    let mut ahead = Ahead::new();
    old.begin_move();
    for round in 0..rounds {
        let mut next = Some(0);
        while let Some(from) = next {
            let mut slice = Vec::new();
            next = old
                .save_ahead(from, &mut |conn| {
                    slice.extend(conn.map(|(conn, sockets, saved)| (conn, copies(sockets), saved.to_vec())));
                    Ok(if slice.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
                })
                .unwrap();
            for (conn, socket, saved) in slice {
                match ahead.get_mut(&conn) {
                    Some((number, before)) if *before != saved => {
                        new.restore_again(*number, &saved).unwrap();
                        *before = saved;
                    }
                    None if round == 0 => {
                        let number = new.restore(socket, &saved).unwrap();
                        ahead.insert(conn, (number, saved));
                    }
                    _ => {}
                }
            }
            turns(old);
        }
    }
    ahead
}

/// Moves all that can move from `old` to `new`, of which some were sent ahead, or saves it only.
fn go<E: Engine>(
    old: &mut Shard<E, Count>,
    new: &mut Shard<E, Count>,
    goes: bool,
    mut ahead: Ahead,
) -> (usize, Staying) {
    old.settle();
    old.hold_still().unwrap();
    let mut all: Vec<(_, Vec<OwnedFd>, Vec<u8>)> = Vec::new();
    let staying = old.save(&mut |conn, sockets, saved| {
        all.push((conn, copies(sockets), saved.to_vec()));
        Ok(())
    });
    if !goes {
        return (0, staying.unwrap());
    }
    let conns: Vec<_> = all.iter().flat_map(|(conn, ..)| conn.conns()).collect();
    for (conn, socket, saved) in all {
        match ahead.remove(&conn) {
            Some((_, before)) if before == saved => {}
            Some((number, _)) => new.restore_again(number, &saved).unwrap(),
            None => _ = new.restore(socket, &saved).unwrap(),
        }
    }
    for (number, _) in ahead.into_values() {
        new.undo_restore(number);
        assert!(new.restore_again(number, b"").is_err());
    }
    let begun = new.begin_restored();
    assert_eq!(begun, conns.len());
    old.give_away(&conns);
    (begun, staying.unwrap())
}

fn listen<E: Engine>(shard: &mut Shard<E, Count>) -> SocketAddr {
    let Address::Tcp(at) = shard.listen(&"127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).unwrap() else {
        panic!("a TCP address")
    };
    at
}

/// Runs clients against a shard that is replaced again and again, over this driver.
fn moves_again_and_again<E: Engine>(engine: &E, driver: &DriverConfig, deflate: Option<DeflateConfig>) {
    let mut old = shard(engine, driver, true);
    let at = listen(&mut old);
    let clients: Vec<JoinHandle<()>> = (0..6)
        .map(|_| {
            let engine = engine.clone();
            std::thread::spawn(move || {
                Client::compressing(engine.connect("localhost").unwrap(), at, deflate).converse(400, 0);
            })
        })
        .collect();
    let (start, mut moved, mut sent_ahead, mut seed) = (Instant::now(), 0, 0, 9_u64);
    while !clients.iter().all(JoinHandle::is_finished) {
        assert!(start.elapsed() < PATIENCE, "nothing more happens");
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        for _ in 0..(seed >> 33) % 20 {
            old.turn(Some(Duration::from_millis(2))).unwrap();
        }
        if seed >> 40 & 3 == 0 {
            go(&mut old, &mut shard(engine, driver, true), false, Ahead::new());
            continue;
        }
        // Those within a compressed message cannot move either. Saving the others has changed nothing.
        while deflate.is_some() && go(&mut old, &mut shard(engine, driver, true), false, Ahead::new()).1.compressed > 0
        {
            assert!(start.elapsed() < PATIENCE, "a message does not end");
            old.turn(Some(Duration::from_millis(2))).unwrap();
        }
        let mut new = shard(engine, driver, true);
        for socket in old.listening().unwrap() {
            new.listen_on(socket).unwrap();
        }
        old.give_listening_away();
        // Those in their handshake cannot move: the old shard serves them until they can.
        while old.counters().handshaking > 0 {
            old.turn(Some(Duration::from_millis(2))).unwrap();
        }
        let rounds = (seed >> 50) as usize % 4;
        let ahead = send_ahead(&mut old, &mut new, rounds, |old| {
            old.turn(Some(Duration::from_millis(1))).unwrap();
        });
        while deflate.is_some() && go(&mut old, &mut shard(engine, driver, true), false, Ahead::new()).1.compressed > 0
        {
            old.turn(Some(Duration::from_millis(2))).unwrap();
        }
        sent_ahead += ahead.len();
        let (went, staying) = go(&mut old, &mut new, true, ahead);
        if staying.total() > 0 {
            // They are closing, since their client is done.
            old.turn(Some(Duration::from_millis(2))).unwrap();
        }
        assert_eq!(new.handler().restored, went);
        assert_eq!(new.counters().open, went as u64);
        assert_eq!(old.counters().open, 0);
        moved += went;
        old = new;
    }
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert!(moved > 20, "{moved} moved");
    // io_uring's connections hold still first.
    assert!(sent_ahead > 10 || driver.name() == "uring", "{sent_ahead} were sent ahead");
}

fn drivers() -> impl Iterator<Item = DriverConfig> {
    let all: [DriverConfig; 3] = ["epoll".parse().unwrap(), "select".parse().unwrap(), "uring".parse().unwrap()];
    all.into_iter().filter(|driver| driver.probe().inspect_err(|error| eprintln!("skipped: {error}")).is_ok())
}

#[test]
fn nothing_is_lost_without_tls() {
    drivers().for_each(|driver| moves_again_and_again(&plain::Engine, &driver, None));
}

#[test]
fn nothing_is_lost_over_tls_and_key_updates() {
    let fixture = Fixture::default();
    let (server, client) = (fixture.server(Versions::All), fixture.client(Versions::All));
    let engine = fused::Engine::new(Some(&server), Some(&client)).unwrap();
    drivers().for_each(|driver| moves_again_and_again(&engine, &driver, None));
}

#[test]
fn nothing_is_lost_with_compression() {
    for deflate in [DeflateConfig::default(), DeflateConfig::with_context_takeover()] {
        moves_again_and_again(&plain::Engine, &DriverConfig::default(), Some(deflate));
    }
}

#[test]
fn subscriptions_timers_and_state_go_along() {
    let driver = DriverConfig::default();
    let (mut old, mut new) = (shard(&plain::Engine, &driver, true), shard(&plain::Engine, &driver, true));
    let at = listen(&mut old);
    let client = std::thread::spawn(move || {
        let mut client = Client::connect(plain::Session, at);
        client.send(b"topic");
        client.send(b"timer");
        client.converse(4, 2);
        let (first, second, third) = (client.receive(), client.receive(), client.receive());
        client.send(&content(0));
        (first, second, third, client.receive())
    });
    let start = Instant::now();
    let run = |shard: &mut Shard<_, Count>, messages| {
        while shard.counters().messages_in < messages {
            assert!(start.elapsed() < PATIENCE);
            shard.turn(Some(Duration::from_millis(2))).unwrap();
        }
    };
    run(&mut old, 6);
    let ahead = send_ahead(&mut old, &mut new, 1, |_| ());
    assert_eq!(ahead.len(), 1);
    // Its bytes do not change by that.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(go(&mut old, &mut new, true, ahead), (1, Staying::default()));
    assert_eq!(old.counters().connections, 0);
    totals_go_along(&old, &mut new);
    for shard in [&old, &new] {
        shard.handle().publish("news", Outgoing::text("one")).unwrap();
        shard.handle().publish("pre.fix", Outgoing::text("two")).unwrap();
        shard.handle().publish("other", Outgoing::text("never")).unwrap();
    }
    old.turn(Some(Duration::ZERO)).unwrap();
    run(&mut new, 7);
    let (first, second, third, last) = client.join().unwrap();
    assert_eq!((&first[..], &second[..], &third[..]), (&b"one"[..], &b"two"[..], &b"timer 7"[..]));
    assert_eq!(last[8..16], 7_u64.to_be_bytes());
}

fn totals_go_along<E: Engine>(old: &Shard<E, Count>, new: &mut Shard<E, Count>) {
    let (before, present) = (old.counters(), new.counters());
    assert_eq!((before.accepted, before.opened, present.accepted, present.open), (1, 1, 0, 1));
    let totals = Totals::decode(&old.totals().encode()).unwrap();
    new.add_totals(&totals);
    let after = new.counters();
    assert_eq!((after.accepted, after.opened, after.messages_in), (1, 1, before.messages_in));
    assert_eq!((after.bytes_in, after.bytes_out), (before.bytes_in, before.bytes_out));
    // Present numbers are those of the new shard.
    assert_eq!((after.connections, after.open), (1, 1));
    assert_eq!(after.memory(), present.memory());
    let mut unknown = Totals::default();
    unknown.put("counter_of_a_later_build", 3);
    unknown.put("open", 3);
    new.add_totals(&unknown);
    assert_eq!(new.counters(), after);
}

#[test]
fn reasons_are_counted_by_their_names() {
    let mut staying = Staying::default();
    let names: Vec<_> = staying.by_reason().map(|(name, _)| name).collect();
    for (count, name) in names.iter().enumerate() {
        staying.add(name, count);
    }
    staying.add("boredom", 9);
    assert_eq!((staying.closing, staying.forwarding, staying.total()), (1, 7, 36));
    assert_eq!(staying.by_reason().map(|(_, count)| count).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let mut twice = staying;
    twice.merge(&staying);
    assert_eq!((twice.outgoing, twice.total()), (4, 72));
    assert!(staying.to_string().starts_with("1 closing, 2 outgoing and not established, 3 in the middle"), "{staying}");
}

#[test]
fn connections_of_other_handlers_stay_and_are_named() {
    let driver = DriverConfig::default();
    let (mut old, mut new) = (shard(&plain::Engine, &driver, false), shard(&plain::Engine, &driver, true));
    let at = listen(&mut old);
    let client = std::thread::spawn(move || Client::connect(plain::Session, at).converse(4, 0));
    let start = Instant::now();
    // The client gets its last answer whole: this process does not send the rest later.
    while old.counters().messages_in < 4 || old.counters().memory_sending > 0 {
        assert!(start.elapsed() < PATIENCE);
        old.turn(Some(Duration::from_millis(2))).unwrap();
    }
    let _silent = TcpStream::connect(at).unwrap();
    while old.counters().handshaking < 1 {
        assert!(start.elapsed() < PATIENCE);
        old.turn(Some(Duration::from_millis(2))).unwrap();
    }
    old.hold_still().unwrap();
    let staying = old.save(&mut |_, _, _| panic!("nothing moves")).unwrap();
    assert_eq!(staying.handshaking, 1);
    assert_eq!((staying.state + staying.closing, staying.total()), (staying.total() - 1, staying.total()));
    let socket = TcpStream::connect(at).unwrap();
    assert!(new.restore(vec![socket.into()], b"\x01 is no connection").is_err());
    assert_eq!(new.begin_restored(), 0);
    client.join().unwrap();
}

/// Answers each message with what is known of the client.
struct Where;

impl Handler for Where {
    type State = ();

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, _: Message<'_>) {
        let id = conn.via().and_then(|via| via.header.as_ref()?.unique_id.as_deref().map(<[u8]>::to_vec));
        let Address::Tcp(direct) = conn.direct_peer() else { panic!("a TCP address") };
        conn.text(&format!("{} by {} {id:?}", conn.peer(), direct.ip()));
    }

    fn save_state(&mut self, (): &mut (), _: &mut Vec<u8>) -> bool {
        true
    }

    fn restore_state(&mut self, _: &[u8]) -> Option<()> {
        Some(())
    }
}

#[test]
fn a_connection_keeps_its_client_and_its_direct_peer() {
    let shard = || {
        let mut config = Config::default();
        config.front.proxy_protocol_from = Prefixes::list(&["127.0.0.1"]).unwrap();
        config.front.forwarded_from = Prefixes::list(&["10.0.0.0/8"]).unwrap();
        Shard::new(0, Arc::new(config), plain::Engine, DriverConfig::default().open().unwrap(), Where).unwrap()
    };
    let (mut old, mut new) = (shard(), shard());
    let at = old.listen(&"127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).unwrap();
    let Address::Tcp(at) = at else { panic!("a TCP address") };
    let mut header = ProxyHeader::new("10.0.0.1:4711".parse().unwrap(), "198.51.100.1:443".parse().unwrap());
    header.unique_id = Some(b"id".as_slice().into());
    let mut bytes = Buf::new();
    header.write_v2(true, &mut bytes).unwrap();
    bytes.put(
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Forwarded-For: 192.0.2.7\r\n\
          Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    );
    let mut client = TcpStream::connect(at).unwrap();
    client.write_all(bytes.filled()).unwrap();
    client.set_nonblocking(true).unwrap();
    until(&mut old, &mut client, b"\r\n\r\n");
    // An empty text with a mask of zeros.
    const HI: &[u8] = &[0x81, 0x80, 0, 0, 0, 0];
    let expected = b"192.0.2.7:0 by 127.0.0.1 Some([105, 100])";
    client.write_all(HI).unwrap();
    until(&mut old, &mut client, expected);
    old.hold_still().unwrap();
    let mut all = Vec::new();
    old.save(&mut |conn, sockets, saved| {
        all.push((conn, copies(sockets), saved.to_vec()));
        Ok(())
    })
    .unwrap();
    let (conn, socket, saved) = all.pop().unwrap();
    new.restore(socket, &saved).unwrap();
    assert_eq!(new.begin_restored(), 1);
    old.give_away(&conn.conns().collect::<Vec<_>>());
    client.write_all(HI).unwrap();
    until(&mut new, &mut client, expected);
    drop(client);
    let begun = Instant::now();
    while new.counters().connections > 0 {
        assert!(begun.elapsed() < PATIENCE);
        new.turn(Some(Duration::from_millis(1))).unwrap();
    }
    // The memory of the client's way is counted once, and given back.
    let left = [old, new].map(|mut shard| {
        shard.turn(Some(Duration::ZERO)).unwrap();
        shard.counters().memory_connections
    });
    assert_eq!(left, [0, 0]);
}

/// Turns a shard until its client has got bytes with this end.
fn until(shard: &mut Shard<plain::Engine, Where>, client: &mut TcpStream, end: &[u8]) {
    let (begun, mut got) = (Instant::now(), Vec::new());
    while !got.ends_with(end) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", String::from_utf8_lossy(&got));
        shard.turn(Some(Duration::from_millis(1))).unwrap();
        let mut some = [0; 4096];
        let read = client.read(&mut some).unwrap_or(0);
        got.extend(&some[..read]);
    }
}
