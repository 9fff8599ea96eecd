//! Memory that hostile peers can make a server hold, measured by a counting allocator.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of this runs inside tests")]

mod common;

use common::frame::{BINARY, CONTINUES, ENDS, PING, RSV1, TEXT, TEXT_BEGINS, header, masked};
use common::server::config;
use common::{App, Over, Peer, Started, both, eventually, payload, serve};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tautline::{Cause, Config, Deadline, Reply, SlowConsumer};

struct Measuring;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grown(by: usize) {
    let live = LIVE.fetch_add(by, Ordering::Relaxed) + by;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: all calls pass unchanged to the system allocator.
unsafe impl GlobalAlloc for Measuring {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        grown(new_size);
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(ptr, layout, new_size) }
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

/// A server that has served before, and the bytes that are allocated now.
fn warm(over: Over, config: Config, app: App) -> (Started, usize) {
    let server = serve(over, config, app);
    server.serves();
    server.forgets();
    let live = LIVE.load(Ordering::Relaxed);
    PEAK.store(live, Ordering::Relaxed);
    (server, live)
}

/// The peak of allocated bytes since `warm`, above `live`.
fn peak_above(server: &Started, live: usize) -> usize {
    // Its answer means that the server has processed its input.
    server.counters();
    PEAK.load(Ordering::Relaxed).saturating_sub(live)
}

/// A configuration with a short send deadline.
fn impatient() -> Config {
    let mut config = config();
    config.deadlines.send = Duration::from_millis(400);
    config
}

/// Writes `wire` again and again, until the server hangs up or `most` bytes are written. Returns the bytes written.
fn flood(socket: &mut std::net::TcpStream, wire: &[u8], most: usize) -> usize {
    let mut sent = 0;
    let mut at = 0;
    while sent < most {
        match socket.write(&wire[at..]) {
            Ok(n) => {
                sent += n;
                at = (at + n) % wire.len();
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    sent
}

#[test]
fn pings_of_a_peer_that_does_not_read_pongs() {
    let _alone = alone();
    let (server, live) = warm(Over::Plain, impatient(), App::default());
    let mut peer = server.peer();
    let sent = flood(&mut peer.socket, &masked(PING, &[7; 125]).repeat(1000), 64 * MIB);
    assert!(sent > 4 * MIB, "{sent}");
    assert!(peak_above(&server, live) < 2 * MIB, "{}", peak_above(&server, live));
    let closed = server.events.close(server.events.open(1).0);
    assert!(matches!(closed.cause, Cause::Timeout(Deadline::Send) | Cause::Io(_)), "{closed:?}");
    drop(peer);
    server.survives();
}

/// Floods an echo server without reading. The server stops reading, and finally disconnects the peer.
fn echoes_unread(over: Over, policy: SlowConsumer, size: usize) {
    let mut config = impatient();
    config.slow_consumer = policy;
    let (server, live) = warm(over, config, App::default());
    let mut peer = server.peer();
    let messages = masked(TEXT, &vec![b'x'; size]);
    let repeat = (MIB / messages.len()).max(1);
    let wire = if over.is_secure() {
        // Each megabyte is sealed anew, since a record is accepted only once.
        let mut sent = 0;
        let plain = messages.repeat(repeat);
        while sent < 64 * MIB {
            let wire = peer.seal(&plain);
            let taken = flood(&mut peer.socket, &wire, wire.len());
            sent += taken;
            if taken < wire.len() {
                break;
            }
        }
        Vec::new()
    } else {
        messages.repeat(repeat)
    };
    if !wire.is_empty() {
        flood(&mut peer.socket, &wire, 64 * MIB);
    }
    // The peak includes the test's own megabyte of messages, and its sealed copy.
    assert!(peak_above(&server, live) < 9 * MIB, "{over:?} {policy:?} {size}: {}", peak_above(&server, live));
    let closed = server.events.close(server.events.open(1).0);
    // The slow-consumer policy does not apply: an echo server stops reading before its queue is full.
    assert!(matches!(closed.cause, Cause::Timeout(Deadline::Send) | Cause::Io(_)), "{size}: {closed:?}");
    assert_eq!(server.counters().messages_dropped, 0, "{size}");
    drop(peer);
    server.survives();
}

#[test]
fn messages_of_a_peer_that_does_not_read_echoes() {
    let _alone = alone();
    both(|over| {
        for size in [10, 1000, 100 * KIB, MIB] {
            echoes_unread(over, SlowConsumer::Disconnect(MIB), size);
        }
    });
    echoes_unread(Over::Plain, SlowConsumer::DropOldest(MIB), 1000);
}

#[test]
fn a_head_of_twenty_megabytes() {
    let _alone = alone();
    let (server, live) = warm(Over::Plain, config(), App::default());
    let mut peer = server.attack();
    peer.send(b"GET / HTTP/1.1\r\n");
    let line = format!("X-Header: {}\r\n", "y".repeat(1000));
    assert_eq!(flood(&mut peer.socket, line.as_bytes(), 20 * MIB) / (20 * MIB), 1);
    assert!(peer.head().starts_with("HTTP/1.1 431 "));
    assert!(peak_above(&server, live) < MIB, "{}", peak_above(&server, live));
    drop(peer);
    server.survives();
}

#[test]
fn announced_bytes_that_never_arrive() {
    let _alone = alone();
    let (server, live) = warm(Over::Plain, config(), App::default());
    let peers: Vec<_> = (0..200)
        .map(|_| {
            let mut peer = server.peer();
            peer.send(&[header(TEXT, 0x80, MIB as u64), vec![0; 4 + 10]].concat());
            peer
        })
        .collect();
    eventually("all of it is read", || server.counters().open == 200);
    server.serves();
    // For an announced length the server allocates next to nothing before the bytes arrive.
    assert!(peak_above(&server, live) < 200 * 16 * KIB, "{}", peak_above(&server, live));
    drop(peers);
    server.survives();
}

/// Bytes that `count` quiet connections hold, each with `part` as the beginning of a frame or record that goes no further. Large
/// messages went through the server's buffers before, and between.
fn held_by_quiet_peers(over: Over, count: u64, part: impl Fn(&mut Peer)) -> usize {
    let mut config = config();
    config.limits.max_message = 4 * MIB;
    config.limits.pool = 64 * MIB;
    let server = serve(over, config, App::default());
    let large = masked(BINARY, &payload(MIB));
    let mut busy = server.peer();
    let exchange = |busy: &mut Peer| {
        busy.send(&large);
        assert_eq!(busy.frame().payload.len(), MIB);
    };
    let mut peers: Vec<_> = (0..count).map(|_| server.peer()).collect();
    // Memory in the pool is no connection's. It is reported at the end of a turn, and a small message comes after that.
    let beside_pool = |busy: &mut Peer| {
        exchange(busy);
        busy.send(&masked(BINARY, b"next"));
        assert_eq!(busy.frame().payload, b"next");
        LIVE.load(Ordering::Relaxed).saturating_sub(usize::try_from(server.counters().memory_pooled).unwrap())
    };
    let before = beside_pool(&mut busy);
    let received = server.counters().bytes_in;
    for peer in &mut peers {
        exchange(&mut busy);
        part(peer);
    }
    let exchanged = u64::try_from(large.len()).unwrap() * count;
    eventually("all of it is read", || server.counters().bytes_in >= received + exchanged + 5 * count);
    let held = beside_pool(&mut busy).saturating_sub(before);
    drop(peers);
    drop(busy);
    server.survives();
    held
}

#[test]
fn quiet_peers_with_a_few_bytes_hold_a_few_bytes() {
    let _alone = alone();
    let most = |count: u64, over| {
        let frame = [header(BINARY, 0x80, MIB as u64), vec![0; 4 + 1]].concat();
        let held = held_by_quiet_peers(over, count, |peer| peer.send(&frame));
        assert!(held < 2 * MIB, "{over:?}: {held}");
        held
    };
    both(|over| {
        let (few, many) = (most(20, over), most(60, over));
        assert!(many.saturating_sub(few) < 40 * 2 * KIB, "{over:?}: {few} then {many}");
    });
}

#[test]
fn quiet_peers_with_the_beginning_of_a_record_hold_a_few_bytes() {
    let _alone = alone();
    let most = |count| {
        held_by_quiet_peers(Over::Fused, count, |peer| {
            let record = peer.seal(&masked(BINARY, &[7; 100]));
            peer.socket.write_all(&record[..9]).unwrap();
        })
    };
    let (few, many) = (most(20), most(60));
    assert!(many.saturating_sub(few) < 40 * 2 * KIB, "{few} then {many}");
}

/// A raw DEFLATE stream of zeros, which inflates to 1032 times its length.
fn bomb(len: usize) -> Vec<u8> {
    use tautline::layers::buf::Buf;
    use tautline::layers::ws::Role;
    use tautline::layers::ws::deflate::{DeflateParams, Deflater};
    let params = DeflateParams {
        server_no_context_takeover: true,
        client_no_context_takeover: true,
        server_max_window_bits: 15,
        client_max_window_bits: 15,
    };
    let mut out = Buf::new();
    Deflater::new(&params, Role::Client, 9).deflate(&vec![0; len], true, &mut out).unwrap();
    out.filled().to_vec()
}

#[test]
fn decompression_bombs() {
    let _alone = alone();
    let bomb = bomb(64 * MIB);
    assert!(bomb.len() < 100 * KIB);
    for max_message in [MIB, usize::MAX] {
        let mut config = config();
        config.limits.max_message = max_message;
        config.upgrade.deflate = Some(tautline::DeflateConfig::default());
        let (server, live) = warm(Over::Plain, config, App::default());
        let mut peer = server.attack();
        let upgrade = common::peer::UPGRADE.trim_end();
        peer.send(format!("{upgrade}\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n").as_bytes());
        assert!(peer.head().contains("permessage-deflate"));
        peer.send(&masked(RSV1 | TEXT, &bomb));
        assert_eq!(peer.close_frame().0, 1009);
        peer.end();
        // The ratio is checked from 64 KiB on.
        assert!(peak_above(&server, live) < 4 * MIB, "{}", peak_above(&server, live));
        drop(peer);
        server.survives();
    }
}

#[test]
fn empty_fragments() {
    let _alone = alone();
    let (server, live) = warm(Over::Plain, config(), App::default());
    let mut peer = server.peer();
    peer.send(&masked(TEXT_BEGINS, b"in "));
    let fragments = masked(CONTINUES, b"").repeat(10_000);
    for _ in 0..50 {
        peer.send(&fragments);
    }
    // Other clients are served meanwhile.
    server.serves();
    peer.send(&masked(ENDS, b"time"));
    assert_eq!(peer.frame().text(), "in time");
    assert!(peak_above(&server, live) < MIB, "{}", peak_above(&server, live));
    peer.close();
    server.survives();
}

#[test]
fn pipelined_requests_for_large_answers() {
    let _alone = alone();
    let page = vec![b'x'; 100 * KIB];
    let app = App::default().on_request(move |request| {
        if request.is_upgrade { Reply::upgrade() } else { Reply::Respond(http::Response::new(page.clone())) }
    });
    let (server, live) = warm(Over::Plain, impatient(), app);
    let mut peer = server.attack();
    flood(&mut peer.socket, &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(8000), 4 * MIB);
    assert!(peak_above(&server, live) < 4 * MIB, "{}", peak_above(&server, live));
    drop(peer);
    server.survives();
}

#[test]
fn ended_connections_leave_no_memory() {
    let _alone = alone();
    both(|over| {
        let (server, _) = warm(over, config(), App::default());
        let round = || {
            let mut peers: Vec<_> = (0..50).map(|_| server.peer()).collect();
            for peer in &mut peers {
                peer.send(&masked(TEXT, &payload(20_000).iter().map(|byte| byte & 0x7f).collect::<Vec<_>>()));
                assert_eq!(peer.frame().payload.len(), 20_000);
            }
            for (at, peer) in peers.into_iter().enumerate() {
                match at % 3 {
                    0 => drop(peer),
                    1 => peer.reset(),
                    _ => peer.close(),
                }
            }
            server.forgets();
            LIVE.load(Ordering::Relaxed)
        };
        round();
        let before = round();
        let after = (0..4).map(|_| round()).min().unwrap();
        // The test's own events and log lines take some memory.
        assert!(after < before + 200 * KIB, "{over:?}: {before} then {after}");
        server.survives();
    });
}

#[test]
fn a_peer_that_takes_few_bytes_is_not_stuck() {
    let _alone = alone();
    let mut config = config();
    config.deadlines.send = Duration::from_secs(1);
    let (server, _) = warm(Over::Plain, config, App::default());
    let mut peer = server.peer();
    peer.send(&masked(TEXT, &vec![b'x'; MIB]));
    // The whole message takes longer than the send deadline, but each pause is shorter.
    let mut left = MIB + 10;
    let mut bytes = vec![0; 32 * KIB];
    while left > 0 {
        left -= peer.socket.read(&mut bytes).unwrap();
        std::thread::sleep(Duration::from_millis(40));
    }
    peer.close();
    server.survives();
}
