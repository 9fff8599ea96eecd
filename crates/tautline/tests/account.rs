//! The account of memory beside a counting allocator, for each use: what is counted is what was allocated, within a fifth.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of this runs inside tests")]

mod common;

use common::frame::{BINARY, TEXT, header, masked};
use common::server::{client_config, config, server_config};
use common::{Over, Peer, eventually};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tautline::{
    Address, CloseCode, Config, Conn, ConnId, Content, Counters, DeflateConfig, Handler, Message, Opening, Outgoing,
    Reply, Request, Server, ServerHandle, SlowConsumer, Socket, Target, Ticket, Tls, TlsEngine,
};

struct Measuring;

/// Bytes that are allocated, but for those of [`unseen`] code.
static LIVE: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    static IS_UNSEEN: Cell<bool> = const { Cell::new(false) };
}

fn count(bytes: usize, sign: isize) {
    if !IS_UNSEEN.get() {
        LIVE.fetch_add(sign * bytes.cast_signed(), Ordering::Relaxed);
    }
}

// SAFETY: all calls pass unchanged to the system allocator.
unsafe impl GlobalAlloc for Measuring {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Measuring = Measuring;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Lets one test run at a time, because all share the counting allocator.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a test's own part, such as its clients, without counting its memory.
fn unseen<R>(act: impl FnOnce() -> R) -> R {
    let before = IS_UNSEEN.replace(true);
    let result = act();
    IS_UNSEEN.set(before);
    result
}

type Act = dyn Fn(&mut Conn<'_, Vec<u8>>, &str) + Send + Sync;
type Answer = dyn Fn(&Request<'_>) -> Reply<Vec<u8>> + Send + Sync;

/// An application that acts when a client sends a text. It records nothing.
#[derive(Clone)]
struct App {
    act: Arc<Act>,
    answer: Arc<Answer>,
    last: Arc<Mutex<Option<ConnId>>>,
}

impl App {
    fn new(act: impl Fn(&mut Conn<'_, Vec<u8>>, &str) + Send + Sync + 'static) -> Self {
        Self { act: Arc::new(act), answer: Arc::new(|_| Reply::upgrade()), last: Arc::default() }
    }

    fn answering(answer: impl Fn(&Request<'_>) -> Reply<Vec<u8>> + Send + Sync + 'static) -> Self {
        Self { answer: Arc::new(answer), ..Self::new(|_, _| {}) }
    }
}

impl Handler for App {
    type State = Vec<u8>;

    fn on_request(&mut self, request: &Request<'_>) -> Reply<Vec<u8>> {
        (self.answer)(request)
    }

    fn on_open(&mut self, conn: &mut Conn<'_, Vec<u8>>, _: &Opening<'_>) {
        *self.last.lock().unwrap() = Some(conn.id());
    }

    fn on_message(&mut self, conn: &mut Conn<'_, Vec<u8>>, message: Message<'_>) {
        (self.act)(conn, message.text().unwrap_or_default());
    }
}

/// A server on one loop.
struct Serving {
    handle: ServerHandle,
    over: Over,
}

impl Serving {
    fn start(over: Over, config: Config, app: App) -> Self {
        let engine = if over == Over::Plain { TlsEngine::Plain } else { TlsEngine::Fused };
        let server = Server::new(Tls { engine, config: server_config() }).config(config);
        let server = server.listen("127.0.0.1:0".parse().unwrap());
        Self { handle: server.start(move |_| app.clone()).unwrap(), over }
    }

    fn address(&self) -> SocketAddr {
        let Address::Tcp(address) = self.handle.addresses()[0] else { panic!("no TCP") };
        address
    }

    fn counters(&self) -> Counters {
        self.handle.shards()[0].counters()
    }

    fn counted(&self) -> isize {
        isize::try_from(self.counters().memory()).unwrap()
    }

    /// A connection without a handshake.
    fn attack(&self) -> Peer {
        Peer::over(TcpStream::connect(self.address()).unwrap())
    }

    /// Open connections.
    fn peers(&self, count: u64) -> Vec<Peer> {
        let peer = || if self.over == Over::Plain { self.attack() } else { self.attack().secure() };
        let peers = unseen(|| (0..count).map(|_| peer().upgrade()).collect());
        eventually("all are open", || self.counters().open == count);
        peers
    }

    /// Has all peers send these bytes, and waits until they have arrived.
    fn take(&self, peers: &mut [Peer], wire: &[u8]) {
        let bytes = self.counters().bytes_in + peers.len() as u64 * wire.len() as u64;
        unseen(|| peers.iter_mut().for_each(|peer| peer.send_wire(wire)));
        eventually("all arrive", || self.counters().bytes_in >= bytes);
    }

    /// Waits until the loop has nothing more to do.
    fn rests(&self) {
        let now = || (LIVE.load(Ordering::Relaxed), self.counters());
        eventually("the loop rests", || {
            let before = now();
            std::thread::sleep(Duration::from_millis(200));
            before == now()
        });
    }

    /// The growth of allocated bytes, of counted ones, and of those of a use, during `act`.
    fn growth(&self, of_use: impl Fn(&Counters) -> u64, act: impl FnOnce()) -> Growth {
        let now = || {
            self.rests();
            let of_use = isize::try_from(of_use(&self.counters())).unwrap();
            Growth { allocated: LIVE.load(Ordering::Relaxed), counted: self.counted(), of_use }
        };
        let before = now();
        act();
        let after = now();
        Growth {
            allocated: after.allocated - before.allocated,
            counted: after.counted - before.counted,
            of_use: after.of_use - before.of_use,
        }
    }

    fn stop(self) {
        self.handle.drain(CloseCode::GOING_AWAY, "", Duration::from_millis(100));
        unseen(|| self.handle.join().unwrap());
    }
}

struct Growth {
    allocated: isize,
    counted: isize,
    of_use: isize,
}

impl Growth {
    /// Asserts that both are the same within a fifth, and that the use is a good part of it. Buffers through which the bytes went
    /// stay in the loop's pool.
    fn agrees(&self, what: &str) {
        let Self { allocated, counted, of_use } = *self;
        println!("{what}: {allocated} bytes allocated, {counted} counted, {of_use} of them of this use");
        assert!(allocated > 50 << 10, "{what}: too few to compare");
        assert!(3 * of_use > counted, "{what}: {of_use} of {counted}");
        let near = allocated * 4 / 5..=allocated * 6 / 5;
        assert!(near.contains(&counted), "{what}: {allocated} bytes allocated, {counted} counted");
    }
}

/// Compares while each of `count` open connections sends these frames.
fn compare(what: &str, config: Config, app: App, count: u64, wires: &[&[u8]], of_use: fn(&Counters) -> u64) {
    let _alone = alone();
    let server = Serving::start(Over::Plain, config, app);
    let mut peers = server.peers(count);
    let (last, first) = wires.split_last().unwrap();
    for wire in first {
        server.take(&mut peers, wire);
        server.rests();
    }
    server.growth(of_use, || server.take(&mut peers, last)).agrees(what);
    unseen(|| drop(peers));
    server.stop();
}

fn patient() -> Config {
    let mut config = config();
    config.slow_consumer = SlowConsumer::Disconnect(usize::MAX);
    config.limits.pause_receive_above = usize::MAX;
    config.limits.max_subscriptions = 1_000;
    config.limits.max_message = 64 * MIB;
    config
}

#[test]
fn connections() {
    let _alone = alone();
    for over in [Over::Plain, Over::Fused] {
        let server = Serving::start(over, config(), App::new(|_, _| {}));
        // The first ones have the loop make its tables.
        unseen(|| drop(server.peers(1)));
        eventually("it is gone", || server.counters().connections == 0);
        let mut peers = Vec::new();
        let growth = server.growth(|counters| counters.memory_connections, || peers = server.peers(500));
        unseen(|| drop(peers));
        server.stop();
        growth.agrees(&format!("connections, {over:?}"));
    }
}

#[test]
fn heads() {
    let _alone = alone();
    let hello = unseen(|| {
        let server = Serving::start(Over::Fused, config(), App::new(|_, _| {}));
        let hello = server.attack().hello(&client_config());
        server.stop();
        hello
    });
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: {}", "c".repeat(6 * KIB));
    let cases: [(&str, Over, &[u8]); 3] = [
        ("half a hello", Over::Fused, &hello[..hello.len() / 2]),
        ("an answered hello", Over::Fused, &hello),
        ("half a head", Over::Plain, head.as_bytes()),
    ];
    for (what, over, wire) in cases {
        let server = Serving::start(over, config(), App::new(|_, _| {}));
        let mut peers: Vec<_> = unseen(|| (0..200).map(|_| server.attack()).collect());
        eventually("all are there", || server.counters().connections == 200);
        let growth = server.growth(|counters| counters.memory_heads, || server.take(&mut peers, wire));
        unseen(|| drop(peers));
        server.stop();
        growth.agrees(what);
    }
}

#[test]
fn partial_messages() {
    let part = [header(BINARY, 0x80, MIB as u64), vec![0; 4 + 20_000]].concat();
    compare("partial messages", patient(), App::new(|_, _| {}), 200, &[&part], |counters| counters.memory_partial);
}

/// Sends as many messages of a length as a text says: "count len".
fn sends() -> App {
    App::new(|conn, text| {
        let mut numbers = text.split(' ').map(|number| number.parse::<usize>().unwrap());
        let (count, len) = (numbers.next().unwrap(), numbers.next().unwrap());
        (0..count).for_each(|_| _ = conn.send(Outgoing::binary(&vec![5; len])));
    })
}

#[test]
fn bytes_on_their_way() {
    let wire = masked(TEXT, b"1 16777216");
    compare("bytes on their way", patient(), sends(), 4, &[&wire], |counters| counters.memory_sending);
}

#[test]
fn queued_messages() {
    let fill = masked(TEXT, b"1 8388608");
    for (what, wire) in [("large queued messages", "100 65536"), ("small queued messages", "20000 100")] {
        let wire = masked(TEXT, wire.as_bytes());
        compare(what, patient(), sends(), 4, &[&fill, &wire], |counters| counters.memory_queued);
    }
}

#[test]
fn windows_of_compression() {
    let _alone = alone();
    let mut config = patient();
    config.upgrade.deflate = Some(DeflateConfig::with_context_takeover());
    let server = Serving::start(Over::Plain, config, App::new(|conn, text| _ = conn.text(text)));
    let mut sockets = Vec::new();
    let growth = server.growth(
        |counters| counters.memory_deflate,
        || {
            unseen(|| {
                for _ in 0..50 {
                    let mut target = Target::new(&format!("ws://{}/", server.address())).unwrap();
                    target.deflate = Some(DeflateConfig::with_context_takeover());
                    let mut socket = Socket::connect(target, client_config(), Config::low_latency()).unwrap();
                    socket.text(&"compress this ".repeat(100)).unwrap();
                    socket.receive().unwrap();
                    sockets.push(socket);
                }
            });
        },
    );
    unseen(|| drop(sockets));
    server.stop();
    growth.agrees("windows of compression");
}

#[test]
fn unused_buffers() {
    let _alone = alone();
    let mut config = patient();
    config.limits.pool = 64 * MIB;
    let server = Serving::start(Over::Plain, config, App::new(|conn, text| _ = conn.text(text)));
    let mut peers = server.peers(1);
    let growth = server.growth(
        |counters| counters.memory_pooled,
        || {
            unseen(|| {
                peers[0].send(&masked(TEXT, &vec![b'x'; 3 * MIB]));
                assert_eq!(peers[0].frame().payload.len(), 3 * MIB);
            });
        },
    );
    unseen(|| drop(peers));
    server.stop();
    growth.agrees("unused buffers");
}

/// Compares while the loop is blocked and other threads ask for more.
fn compare_blocked(what: &str, of_use: fn(&Counters) -> u64, act: impl FnOnce(&ServerHandle, ConnId)) {
    let _alone = alone();
    let app = App::new(|_, _| {});
    let last = app.last.clone();
    let server = Serving::start(Over::Plain, patient(), app);
    let peers = server.peers(1);
    let conn = last.lock().unwrap().unwrap();
    let (release, blocked) = channel::<()>();
    // It blocks until the sender is gone.
    server.handle.shards()[0].with_handler::<App>(move |_, _| _ = blocked.recv()).unwrap();
    let growth = server.growth(of_use, || act(&server.handle, conn));
    drop(release);
    unseen(|| drop(peers));
    server.stop();
    growth.agrees(what);
}

#[test]
fn commands() {
    compare_blocked(
        "commands",
        |counters| counters.memory_commands,
        |server, conn| {
            let reason = "r".repeat(100);
            (0..2_000).for_each(|_| server.shards()[0].close(conn, CloseCode::NORMAL, &reason).unwrap());
        },
    );
}

#[test]
fn published_messages() {
    for len in [100, 10_000] {
        compare_blocked(
            "published messages",
            |counters| counters.memory_published,
            |server, _| {
                (0..2_000).for_each(|_| server.publish("news", Outgoing::binary(&vec![1; len])).map(drop).unwrap());
            },
        );
    }
}

#[test]
fn requests_that_wait() {
    let _alone = alone();
    let tickets = Arc::<Mutex<Vec<Ticket<Vec<u8>>>>>::default();
    let kept = tickets.clone();
    let app = App::answering(move |request| {
        let kept = kept.clone();
        request.later(move |ticket| unseen(|| kept.lock().unwrap().push(ticket)))
    });
    let server = Serving::start(Over::Plain, patient(), app);
    let mut peers: Vec<_> = unseen(|| (0..200).map(|_| server.attack()).collect());
    eventually("all are there", || server.counters().connections == 200);
    let lines: String = (0..40).map(|n| format!("X-Line-{n}: {}\r\n", "v".repeat(100))).collect();
    let head = format!("GET /path HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let growth = server.growth(
        |counters| counters.memory_requests,
        || {
            unseen(|| peers.iter_mut().for_each(|peer| peer.send_wire(head.as_bytes())));
            eventually("all wait", || unseen(|| tickets.lock().unwrap().len()) == 200);
        },
    );
    unseen(|| drop(peers));
    unseen(|| tickets.lock().unwrap().clear());
    server.stop();
    growth.agrees("requests that wait");
}

/// Content of a table in memory.
struct Table([u8; 20_000]);

impl std::io::Read for Table {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let len = buf.len().min(self.0.len());
        buf[..len].copy_from_slice(&self.0[..len]);
        Ok(len)
    }
}

#[test]
fn responses_that_are_made_while_they_are_sent() {
    let _alone = alone();
    let app = App::answering(|_| Reply::Stream(http::Response::new(Content::new(Table([1; 20_000])))));
    let server = Serving::start(Over::Plain, patient(), app);
    let mut peers: Vec<_> = unseen(|| (0..50).map(|_| server.attack()).collect());
    eventually("all are there", || server.counters().connections == 50);
    let growth = server.growth(
        |counters| counters.memory_requests + counters.memory_sending,
        || {
            unseen(|| peers.iter_mut().for_each(|peer| peer.send_wire(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")));
            eventually("all stream", || server.counters().memory_requests > 50 * 20_000);
        },
    );
    unseen(|| drop(peers));
    server.stop();
    growth.agrees("responses that are made while they are sent");
}

#[test]
fn topics() {
    let wire = masked(TEXT, b"go");
    let of_use = |counters: &Counters| counters.memory_topics;
    let own = App::new(|conn, _| {
        let id = conn.id();
        (0..128).for_each(|n| assert!(conn.subscribe(&format!("topic {n} of {id}"))));
    });
    compare("topics of one", patient(), own, 100, &[&wire], of_use);
    let shared = App::new(|conn, _| (0..128).for_each(|n| assert!(conn.subscribe(&format!("topic {n}")))));
    compare("topics of all", patient(), shared, 100, &[&wire], of_use);
    let prefixes = App::new(|conn, _| {
        let id = conn.id();
        (0..128).for_each(|n| assert!(conn.subscribe_prefix(&format!("{id} {n} {}", "x".repeat(200)))));
    });
    compare("prefixes with long names", patient(), prefixes, 100, &[&wire], of_use);
    let one = App::new(|conn, _| assert!(conn.subscribe("all")));
    compare("one topic of all", patient(), one, 500, &[&wire], of_use);
}

#[test]
fn timers() {
    let wire = masked(TEXT, b"go");
    let app = App::new(|conn, _| {
        (0..64).for_each(|id| conn.set_timer(Duration::from_secs(1_000), id));
    });
    compare("timers", patient(), app, 100, &[&wire], |counters| counters.memory_timers);
}

#[test]
fn sources() {
    let _alone = alone();
    let mut found = [true, false].map(|is_one_source| {
        let mut config = patient();
        config.limits.max_handshakes = 5_000;
        let server = Serving::start(Over::Plain, config, App::new(|_, _| {}));
        let mut peers = unseen(|| Vec::with_capacity(1_000));
        let growth = server.growth(
            |counters| counters.memory_sources,
            || {
                for n in 0..1_000_u32 {
                    let (ours, theirs) = unseen(|| UnixStream::pair().unwrap());
                    unseen(|| peers.push(ours));
                    let ip = 10 << 24 | if is_one_source { 1 } else { n << 8 };
                    let peer = SocketAddr::new(std::net::Ipv4Addr::from_bits(ip).into(), 1);
                    server.handle.shards()[0].adopt(theirs.into(), Some(Address::Tcp(peer))).unwrap();
                }
                eventually("all are there", || server.counters().connections == 1_000);
            },
        );
        unseen(|| drop(peers));
        server.stop();
        growth
    });
    let [one, many] = &mut found;
    many.allocated -= one.allocated;
    many.counted -= one.counted;
    many.agrees("a thousand sources");
}

#[test]
fn the_application() {
    let wire = masked(TEXT, b"go");
    let own = App::new(|conn, _| {
        *conn.state() = vec![1; 10_000];
        conn.set_memory(10_000, 5_000);
    });
    compare("state of connections", patient(), own, 100, &[&wire], |counters| counters.memory_application);
    let kept = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let tables = App::new(move |conn, _| {
        kept.lock().unwrap().push(vec![2; 10_000]);
        conn.shard().memory().add(10_000);
    });
    compare("tables", patient(), tables, 100, &[&wire], |counters| counters.memory_application);
}
