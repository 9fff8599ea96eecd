//! Memory of idle connections with HTTP/2 and of their streams, beside HTTP/1.1's, by an allocator that counts what the server holds.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of this runs inside tests")]

#[expect(dead_code, clippy::expect_used, reason = "other tests use the rest")]
mod client;

use client::{Client, Plain};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tautline::http::Response;
use tautline::{Config, Conn, Content, Handler, Message, Outgoing, Reply, Request, Server, ServerConfig};
use tautline::{ServerHandle, http2};
use tautline_testkit::certificate::{Authority, Leaf};

thread_local! {
    /// Whether this thread is one of the clients, whose memory is not counted.
    static IS_CLIENT: Cell<bool> = const { Cell::new(false) };
}

/// Bytes that threads of the server hold.
static LIVE: AtomicUsize = AtomicUsize::new(0);

struct Measuring;

fn is_counted() -> bool {
    !IS_CLIENT.try_with(Cell::get).unwrap_or_default()
}

// SAFETY: all calls pass unchanged to the system allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Measuring {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_counted() {
            LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        if is_counted() {
            LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        }
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if is_counted() {
            LIVE.fetch_add(new_size, Ordering::Relaxed);
            LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        }
        // SAFETY: the caller's promise.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Measuring = Measuring;

/// Echoes, and answers requests with a body that no client takes at once.
struct Echo;

impl Handler for Echo {
    type State = ();

    fn on_request(&mut self, request: &Request<'_>) -> Reply {
        if request.is_upgrade {
            return Reply::upgrade();
        }
        Reply::Stream(Response::new(Content::with_len(std::io::repeat(7), 64 << 20)))
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.send(Outgoing::from(&message));
    }
}

/// Connections of each kind.
const CONNECTIONS: usize = 1_000;
/// Further sockets of each connection.
const FURTHER: usize = 4;

fn serve() -> (ServerHandle, Authority) {
    let authority = Authority::new("Test CA").unwrap();
    let tls = ServerConfig::new([authority.issue(&Leaf::new(&["localhost"])).unwrap()]);
    let server = Server::new(tls).config(Config::default()).http2(http2::Limits::default());
    (server.listen("127.0.0.1:0".parse().unwrap()).start(|_| Echo).unwrap(), authority)
}

/// Bytes that the server holds, without those that its pool keeps for later, once `open` connections are open and it is idle.
fn held(handle: &ServerHandle, open: usize) -> usize {
    let shard = &handle.shards()[0];
    let end = Instant::now() + Duration::from_secs(60);
    while shard.counters().open != open as u64 {
        assert!(Instant::now() < end, "{} of {open} connections are open", shard.counters().open);
        std::thread::sleep(Duration::from_millis(5));
    }
    // Written bytes leave meanwhile, and figures of the pool are reported at the end of a turn.
    std::thread::sleep(Duration::from_millis(300));
    LIVE.load(Ordering::Relaxed) - usize::try_from(shard.counters().memory_pooled).unwrap()
}

/// Held by each test, since they share the count.
static ALONE: Mutex<()> = Mutex::new(());

/// The budget of memory has the bytes that downloads hold for clients that do not read, and little beside them.
#[test]
fn downloads_that_rest_hold_what_the_budget_counts() {
    const CLIENTS: usize = 10;
    const STREAMS: usize = 50;
    IS_CLIENT.set(true);
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (handle, authority) = serve();
    let address = handle.addresses()[0].clone();
    let shard = handle.shards()[0].clone();
    let counted = || {
        let counters = shard.counters();
        usize::try_from(counters.memory() - counters.memory_pooled).unwrap()
    };
    let mut warm = Client::new(&address, &authority);
    let socket = warm.websocket("/");
    assert_eq!(warm.opened(socket), 200);
    let (before, counted_before) = (held(&handle, 1), counted());
    let clients: Vec<Client> = (0..CLIENTS)
        .map(|_| {
            let mut client = Client::new(&address, &authority);
            // Nothing is read from now on.
            (0..STREAMS).for_each(|_| _ = client.get("/"));
            client
        })
        .collect();
    let end = Instant::now() + Duration::from_secs(60);
    while shard.counters().carried < 1 + (CLIENTS * STREAMS) as u64 {
        assert!(Instant::now() < end, "{:?}", shard.counters());
        std::thread::sleep(Duration::from_millis(5));
    }
    let (held, counted) = (held(&handle, 1).saturating_sub(before), counted() - counted_before);
    println!("{CLIENTS} connections with {STREAMS} downloads each hold {held} B, of which {counted} B are counted");
    assert!(counted > CLIENTS * (STREAMS - 20) * (32 << 10), "{counted} B are counted: the downloads rest");
    assert!(held < counted + counted / 4, "{held} B are held, and {counted} B are counted");
    drop(clients);
}

#[test]
fn idle_streams_are_small() {
    IS_CLIENT.set(true);
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Each connection has two ends here.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let (handle, authority) = serve();
    let address = handle.addresses()[0].clone();
    let echo = |client: &mut Client| {
        let socket = client.websocket("/");
        assert_eq!(client.opened(socket), 200);
        client.text(socket, "hello");
        assert_eq!(client.message(socket), b"hello");
    };
    // Tables, pools and thread-locals grow before.
    let mut warm = (Plain::new(&address, &authority), Client::new(&address, &authority));
    warm.0.echo();
    echo(&mut warm.1);
    let before = held(&handle, 2);
    let plain: Vec<Plain> = (0..CONNECTIONS)
        .map(|_| {
            let mut plain = Plain::new(&address, &authority);
            plain.echo();
            plain
        })
        .collect();
    let with_plain = held(&handle, 2 + CONNECTIONS);
    drop(plain);
    let again = held(&handle, 2);
    // Connections without a stream give way to others.
    let mut clients: Vec<Client> = (0..CONNECTIONS)
        .map(|_| {
            let mut client = Client::new(&address, &authority);
            echo(&mut client);
            client
        })
        .collect();
    let with_one = held(&handle, 2 + CONNECTIONS);
    for _ in 0..FURTHER {
        clients.iter_mut().for_each(echo);
    }
    let with_all = held(&handle, 2 + CONNECTIONS * (1 + FURTHER));
    let each = |more: usize, less: usize, count: usize| more.saturating_sub(less) / count;
    let http1 = each(with_plain, before.min(again), CONNECTIONS);
    let first = each(with_one, again, CONNECTIONS);
    let further = each(with_all, with_one, CONNECTIONS * FURTHER);
    println!("HTTP/1.1: {http1} B; HTTP/2 with one socket: {first} B; a further socket: {further} B");
    assert!(http1 > 500, "{http1}: the connections are counted");
    assert!(first <= http1 + (4 << 10), "an idle connection with one socket: {first} B, with HTTP/1.1 {http1} B");
    assert!(further <= 2 << 10, "a further idle stream: {further} B");
}
