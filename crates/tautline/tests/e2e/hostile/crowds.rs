//! Crowds of silent connections: they must not lock honest clients out.

use crate::common::server::config;
use crate::common::{App, Over, PATIENCE, Peer, Started, both, eventually, logs, serve, serve_at};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use tautline::Config;

const GET: &[u8] = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A connection from this address of the loopback interface.
fn from(source: [u8; 4], server: SocketAddr) -> Peer {
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&fd, &SocketAddr::from((Ipv4Addr::from(source), 0))).unwrap();
    connect(&fd, &server).unwrap();
    Peer::over(TcpStream::from(fd))
}

/// Whether the server has reset or ended a connection that says nothing.
fn is_gone(peer: &mut Peer) -> bool {
    peer.socket.set_nonblocking(true).unwrap();
    !matches!(peer.socket.read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

fn bounded(max_handshakes: usize) -> Config {
    let mut config = config();
    config.limits.max_handshakes = max_handshakes;
    // No deadline frees a place during these tests.
    config.deadlines.handshake = PATIENCE * 3;
    config.deadlines.http = PATIENCE * 3;
    config
}

#[test]
fn silent_connections_give_way() {
    both(|over| {
        let server = serve(over, bounded(10), App::default());
        let mut inside = server.peer();
        let mut silent: Vec<_> = (0..50).map(|_| server.attack()).collect();
        let begun = Instant::now();
        for _ in 0..5 {
            server.serves();
        }
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
        inside.echoes("undisturbed");
        // The oldest are gone, and the youngest wait.
        eventually("the limit holds", || server.counters().handshaking <= 10);
        eventually("the oldest is gone", || is_gone(&mut silent[0]));
        let counters = server.counters();
        assert!(counters.handshakes_evicted >= 40, "{counters:?}");
        assert_eq!(counters.handshakes_evicted, counters.handshakes_failed);
        logs::expect(&[&silent[0].name(), "gave way to others at limits.max_handshakes (10)", "of its host"]);
        logs::expect(&["WARN", "limits.max_handshakes (10) is reached"]);
        drop((silent, inside));
        server.survives();
    });
}

/// All come from one address, as clients behind a NAT do when a server has restarted. None is cut, and none has to come twice.
#[test]
fn a_storm_of_honest_clients_from_one_address_gets_through() {
    both(|over| {
        let server = serve(over, bounded(10), App::default());
        // As many as the limit allows ten times over are in their handshake at the same time.
        let waiting: Vec<_> = (0..100).map(|_| server.attack()).collect();
        eventually("all are accepted", || server.counters().accepted == 100);
        let slowest = Instant::now();
        let mut open: Vec<_> =
            waiting.into_iter().map(|peer| if over.is_secure() { peer.secure() } else { peer }.upgrade()).collect();
        if slowest.elapsed() < Duration::from_millis(800) {
            open.iter_mut().for_each(|peer| peer.echoes("in"));
            assert_eq!(server.counters().handshakes_evicted, 0);
        }
        drop(open);
        server.survives();
    });
}

#[test]
fn half_of_all_connections_is_a_limit_at_once() {
    // Without that limit, none gives way in its first second. A slow machine may take that long for a round.
    let is_at_once = (0..5).any(|_| {
        let mut config = bounded(5);
        config.limits.max_connections = 40;
        let server = serve(Over::Plain, config, App::default());
        let start = Instant::now();
        let silent: Vec<_> = (0..60).map(|_| server.attack()).collect();
        eventually("all are accepted", || server.counters().accepted == 60);
        eventually("half of all connections is the limit", || server.counters().handshaking <= 20);
        let is_at_once = start.elapsed() < Duration::from_secs(1);
        eventually("the limit holds after a second", || server.counters().handshaking <= 5);
        drop(silent);
        server.survives();
        is_at_once
    });
    assert!(is_at_once, "none gave way within a second");
}

#[test]
fn a_crowd_pushes_out_only_itself() {
    let server = serve(Over::Plain, bounded(20), App::default());
    // Slow but honest, and older than all others.
    let mut slow = from([127, 0, 1, 1], server.tcp());
    eventually("it is accepted", || server.counters().handshaking == 1);
    // One host, then one network of many hosts, then two networks.
    let mut crowd: Vec<_> = (0..60).map(|_| from([127, 0, 2, 2], server.tcp())).collect();
    crowd.extend((0..60).map(|host| from([127, 0, 3, host], server.tcp())));
    crowd.extend((0..60).map(|n| from([127, 0, 4 + n % 2, n], server.tcp())));
    eventually("all are accepted", || server.counters().accepted == 181);
    eventually("the limit holds", || server.counters().handshaking <= 20);
    assert!(!is_gone(&mut slow));
    slow.socket.set_nonblocking(false).unwrap();
    slow.upgrade().echoes("in");
    drop(crowd);
    server.survives();
}

#[test]
fn limits_are_those_of_all_loops_together() {
    let mut config = bounded(12);
    config.limits.max_connections = 24;
    let server = serve_at("127.0.0.1:0", Over::Plain, 3, config, App::default());
    let silent: Vec<_> = (0..90).map(|_| server.attack()).collect();
    eventually("all are accepted", || server.counters().accepted == 90);
    eventually("the limit holds", || server.counters().handshaking <= 12);
    assert_eq!(server.counters().handshakes_evicted, 90 - server.counters().handshaking);
    drop(silent);
    eventually("no connection", || server.counters().connections == 0);
    // Connections: 24 by all loops, of which one may have all. Each loop accepts again when another's connections end.
    let mut open: Vec<_> = (0..24).map(|_| server.peer()).collect();
    // The loop that is full tells the others.
    std::thread::sleep(Duration::from_millis(50));
    let waiting = server.attack();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(server.counters().connections, 24);
    let first = server.events.open(0).0.shard();
    let other = (0..24).find(|n| server.events.open(*n).0.shard() != first).unwrap_or(0);
    drop(open.remove(other));
    waiting.upgrade().close();
    drop(open);
    server.survives();
}

fn ask(peer: &mut Peer) -> bool {
    peer.try_send_wire(GET).is_ok() && peer.fill() == Ok(true) && peer.response().0.starts_with("HTTP/1.1 404 ")
}

#[test]
fn plain_requests_hold_no_place_of_a_handshake() {
    let mut config = bounded(10);
    config.limits.max_http = 8;
    let server = serve(Over::Plain, config, App::default());
    let mut askers: Vec<_> = (0..30).map(|_| server.attack()).collect();
    let answered = askers.iter_mut().map(ask).filter(|answered| *answered).count();
    assert_eq!(answered, 30 - usize::try_from(server.counters().handshakes_evicted).unwrap());
    eventually("the limit holds", || server.counters().http <= 8);
    assert_eq!(server.counters().http_evicted, answered as u64 - server.counters().http);
    server.serves();
    // A connection may ask first, and then become a WebSocket.
    let mut both = server.attack();
    assert!(ask(&mut both));
    let mut both = both.upgrade();
    both.echoes("in");
    // Lines about each of them are bounded, so that only this one is sure to be there.
    logs::expect(&["WARN", "limits.max_http (8) is reached"]);
    drop((askers, both));
    server.survives();
}

#[test]
fn answers_do_not_prolong_a_connection_for_ever() {
    let mut config = config();
    config.deadlines.http = Duration::from_millis(600);
    let server = serve(Over::Plain, config, App::default());
    let begun = Instant::now();
    let mut asker = server.attack();
    let mut answers = 0;
    while ask(&mut asker) {
        answers += 1;
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(answers > 1 && begun.elapsed() >= Duration::from_millis(600), "{answers} {:?}", begun.elapsed());
    drop(asker);
    server.survives();
}

/// Times from connecting to the first echo of `count` clients, one every 10 ms, sorted.
fn honest(server: &Started, count: u32) -> Vec<Duration> {
    let begun = Instant::now();
    let mut times: Vec<_> = (0..count)
        .map(|n| {
            let due = begun + Duration::from_millis(10) * n;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let start = Instant::now();
            server.peer().echoes("in");
            start.elapsed()
        })
        .collect();
    times.sort();
    times
}

#[test]
#[ignore = "it measures for half a minute and wants the machine for itself: the stage `crowds` of `cargo xtask test --rest`"]
fn three_thousand_silent_connections_delay_nobody() {
    tautline::layers::io::machine::raise_nofile_limit().unwrap();
    for (over, asks) in
        [(Over::Plain, false), (Over::Plain, true), (Over::Fused, false), (Over::Rustls, false), (Over::Uring, false)]
    {
        for hosts in [1, 250_u16] {
            let server = serve(over, config(), App::default());
            let crowd: Vec<_> = (0..3_000_u16)
                .map(|n| {
                    let [_, host] = (n % hosts).to_be_bytes();
                    let mut peer = from([127, 0, 1 + host % 8, host], server.tcp());
                    if asks {
                        let _ = ask(&mut peer);
                    }
                    peer
                })
                .collect();
            // A lockout lasts for seconds. A stall of the machine does not last for three measurements.
            let p99 = (0..3)
                .map(|_| {
                    let times = honest(&server, 300);
                    times[times.len() * 99 / 100]
                })
                .find(|p99| *p99 < Duration::from_millis(50));
            println!("{over:?}, {hosts} hosts, asks {asks}: p99 {p99:?}");
            assert!(p99.is_some());
            drop(crowd);
            server.stop();
        }
    }
}

#[test]
fn floods_of_bad_clients_do_not_flood_the_log() {
    let server = serve(Over::Plain, config(), App::default());
    for host in 0..200 {
        let mut bad = from([127, 0, 77, host], server.tcp());
        bad.send(b"nonsense\r\n\r\n");
        let _ = bad.rest();
    }
    // The lines of one second, or of two if the flood spans the end of one.
    let lines = logs::lines(&["127.0.77."]);
    assert!((20..=80).contains(&lines.len()), "{}: {lines:?}", lines.len());
    logs::expect(&["WARN", "log lines about peers were left out in one second", "about the network of 127.0.77."]);
    server.survives();
}

#[test]
fn warnings_of_a_peer_are_not_logged_by_the_library() {
    for over in [Over::Fused, Over::Rustls] {
        let server = serve(over, config(), App::default());
        let mut peer = server.attack();
        // user_canceled as a warning, in clear, before any ClientHello.
        let _ = peer.try_send_wire(&[21, 3, 3, 0, 2, 1, 90].repeat(4));
        let _ = peer.rest();
        drop(peer);
        server.survives();
    }
    assert_eq!(logs::lines(&["alert warning"]), [""; 0]);
    assert_eq!(logs::lines(&["Sending"]), [""; 0]);
}
