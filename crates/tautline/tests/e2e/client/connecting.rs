//! Resolving names and connecting over TCP.

use super::{failure, start};
use crate::common::server::{client_config, config};
use crate::common::{App, Over, PATIENCE, serve, serve_at};
use std::net::{IpAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};
use tautline::{Keepalive, Source, Target, TcpOptions};
use tautline_testkit::ClosedPort;

fn target(uri: &str) -> Target {
    Target::new(uri).unwrap()
}

#[test]
fn reports_a_refused_connection() {
    for scheme in ["ws", "wss"] {
        for host in ["127.0.0.1", "localhost"] {
            let closed = ClosedPort::new().unwrap();
            let port = closed.address().port();
            let error = failure(target(&format!("{scheme}://{host}:{port}/")), client_config(), config());
            assert!(error.contains("refused") && error.contains(&format!(":{port}: ")), "{error}");
        }
    }
    let mut missing = target("ws://localhost/");
    missing.address = Some("unix:/nowhere/at/all.sock".parse().unwrap());
    let error = failure(missing, client_config(), config());
    assert!(error.contains("cannot connect to unix:/nowhere/at/all.sock: No such file"), "{error}");
}

#[test]
fn reports_a_name_that_does_not_exist() {
    let mut config = config();
    // Without a name server, the resolver's error may take long.
    config.deadlines.connect = 6 * PATIENCE;
    let error = failure(target("wss://no-such-host.invalid/"), client_config(), config);
    assert!(error.contains("cannot resolve no-such-host.invalid"), "{error}");
}

#[test]
fn localhost_is_reached_if_only_one_family_listens() {
    // On some machines localhost resolves to one address, on others to two.
    for found in ("localhost", 0).to_socket_addrs().unwrap() {
        let server = serve_at(&found.to_string(), Over::Fused, 1, config(), App::default());
        let mut socket = server.socket_to(target(&format!("wss://localhost:{}/", server.tcp().port())));
        socket.text("here").unwrap();
        assert!(socket.receive().is_ok());
        drop(socket);
        server.forgets();
        server.stop();
    }
}

/// A listener whose queue is full. The kernel drops further connections, as a firewall would.
struct Blackhole {
    listener: TcpListener,
    _queued: Vec<TcpStream>,
}

impl Blackhole {
    fn new(at: (&str, u16)) -> Self {
        let listener = TcpListener::bind(at).unwrap();
        // The shortest queue; the standard library sets a long one.
        rustix::net::listen(&listener, 0).unwrap();
        let address = listener.local_addr().unwrap();
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200));
        let queued: Vec<_> = std::iter::from_fn(|| connect().ok()).take(10).collect();
        assert!(queued.len() < 10, "the queue does not fill up");
        Self { listener, _queued: queued }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }
}

#[test]
fn connecting_has_a_deadline() {
    let hole = Blackhole::new(("127.0.0.1", 0));
    let mut config = config();
    config.deadlines.connect = Duration::from_millis(300);
    let begun = Instant::now();
    let error = failure(target(&format!("ws://127.0.0.1:{}/", hole.port())), client_config(), config);
    assert!(error.contains("connect deadline"), "{error}");
    assert!((Duration::from_millis(295)..PATIENCE).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

#[test]
fn a_silent_address_is_overtaken_by_the_next() {
    // Happy eyeballs: one family swallows the first attempt, the other answers.
    let reserved = ClosedPort::new().unwrap();
    let port = reserved.address().port();
    let _hole = Blackhole::new(("::1", port));
    let server = serve_at(&format!("127.0.0.1:{port}"), Over::Plain, 1, config(), App::default());
    let begun = Instant::now();
    let mut target = target(&format!("ws://localhost:{port}/"));
    target.address = None;
    let mut socket = server.socket_to(target);
    // The connection opens 250 ms later if the resolver puts IPv6 first, otherwise at once.
    assert!(begun.elapsed() < config().deadlines.connect);
    socket.text("here").unwrap();
    assert!(socket.receive().is_ok());
    drop(socket);
    server.forgets();
    server.stop();
}

#[test]
fn a_silent_server_misses_the_handshake_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for scheme in ["ws", "wss"] {
        let mut config = config();
        config.deadlines.handshake = Duration::from_millis(200);
        let error = failure(target(&format!("{scheme}://localhost:{port}/")), client_config(), config);
        assert!(error.contains("handshake deadline"), "{error}");
    }
}

#[test]
fn invalid_targets_are_explained() {
    for (uri, word) in [
        ("http://localhost/", "is no WebSocket URI; write wss://"),
        ("localhost:80", "it has no scheme; write ws:// or wss:// before it"),
        ("wss://localhost:99999/", "its port is not 1 to 65535"),
        ("wss://", "URI"),
        ("", "URI"),
    ] {
        let error = Target::new(uri).unwrap_err().to_string();
        assert!(error.contains(word), "{uri}: {error}");
    }
    // Each scheme needs its own engine, and a loop has only one.
    let both = tautline::Client::new(client_config()).target(target("ws://a/")).target(target("wss://b/"));
    let error = both.run(App::default()).err().unwrap().to_string();
    assert!(error.contains("a client each"), "{error}");
    assert!(tautline::Client::new(client_config()).run(App::default()).is_err());
}

#[test]
fn a_drain_ends_the_attempts_of_a_client() {
    let hole = Blackhole::new(("127.0.0.1", 0));
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_port = silent.local_addr().unwrap().port();
    let closed = ClosedPort::new().unwrap();
    for (uri, reconnect) in [
        // The drain begins while addresses race, before the server's answer, and between two attempts.
        (format!("ws://127.0.0.1:{}/", hole.port()), false),
        (format!("ws://127.0.0.1:{silent_port}/"), false),
        (format!("ws://{}/", closed.address()), true),
    ] {
        let mut target = target(&uri);
        let long = Duration::from_secs(100);
        target.reconnect = reconnect.then_some(tautline::Reconnect::new(long, long));
        let (client, events) = start(target, App::default());
        if reconnect {
            assert!(events.failure(0).1.is_some());
        } else {
            std::thread::sleep(Duration::from_millis(30));
        }
        let begun = Instant::now();
        client.drain(tautline::CloseCode::GOING_AWAY, "", 2 * PATIENCE);
        client.join().unwrap();
        assert!(begun.elapsed() < PATIENCE, "{uri}");
        let (error, retry) = events.failure(usize::from(reconnect));
        assert_eq!((&*error, retry), ("we stopped", None), "{uri}");
    }
}

#[test]
fn two_servers_at_one_port_are_an_error() {
    let server = serve(Over::Plain, config(), App::default());
    for shards in [1, 2] {
        let again = tautline::Server::plain().listen(server.address.clone()).shards(shards);
        let error = again.start(|_| App::default()).unwrap_err().to_string();
        assert!(error.contains("it is in use"), "{error}");
    }
    server.survives();
    // A server of two shards listens with SO_REUSEPORT: the kernel would spread clients over both servers.
    let server = serve_at("127.0.0.1:0", Over::Plain, 2, config(), App::default());
    for shards in [1, 2] {
        let again = tautline::Server::plain().listen(server.address.clone()).shards(shards);
        let error = again.start(|_| App::default()).unwrap_err().to_string();
        assert!(error.contains("it is in use"), "{error}");
    }
    server.survives();
}

#[test]
fn a_server_takes_over_from_another_if_both_allow_it() {
    let beside = |address: tautline::Address, shards| {
        let server = tautline::Server::plain().listen(address).shards(shards).beside_others(true);
        server.start(|_| App::default()).unwrap()
    };
    let first = beside("127.0.0.1:0".parse().unwrap(), 1);
    let second = beside(first.addresses()[0].clone(), 2);
    first.drain(tautline::CloseCode::GOING_AWAY, "", Duration::ZERO);
    first.join().unwrap();
    // All new connections go to the second server from now on.
    for _ in 0..4 {
        let tautline::Address::Tcp(address) = &second.addresses()[0] else { panic!("no TCP address") };
        TcpStream::connect(address).unwrap();
    }
    second.drain(tautline::CloseCode::GOING_AWAY, "", Duration::ZERO);
    second.join().unwrap();
}

#[test]
fn connects_from_the_address_and_interface_of_each_target() {
    let app = App::default().on_open(|events, conn| events.note(conn.peer().to_string()));
    let server = serve(Over::Fused, config(), app);
    for (n, ip) in ["127.0.0.8", "127.0.0.9"].into_iter().enumerate() {
        let source = Source::from(ip.parse::<IpAddr>().unwrap()).on_interface("lo");
        drop(server.socket_to(server.target().with_source(source)));
        let seen = server.events.noted(n);
        assert!(seen.starts_with(&format!("{ip}:")), "{seen}");
    }
    let nowhere = server.target().with_source(Source::default().on_interface("no-such-if"));
    let error = failure(nowhere, client_config(), config());
    assert!(error.contains("\"no-such-if\"") && error.contains("ip link"), "{error}");
    server.stop();
}

/// Whether the kernel runs a timer for the connection that has this port at one end, as for probes of an idle one
/// (`proc_net_tcp` of the kernel's documentation). `None` before it is established.
fn has_timer(at_this_end: bool, port: u16) -> Option<bool> {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let column = if at_this_end { 1 } else { 2 };
    let mut found = rows.filter(|row| row[column].ends_with(&format!(":{port:04X}")) && row[3] == "01");
    found.next().map(|row| row[5].starts_with("02:"))
}

fn await_timer(at_this_end: bool, port: u16) -> bool {
    let end = Instant::now() + PATIENCE;
    loop {
        match has_timer(at_this_end, port) {
            Some(found) => return found,
            None => assert!(Instant::now() < end, "no connection"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn both_ends_have_tcp_options() {
    for keepalive in
        [None, Some(Keepalive { idle: Duration::from_secs(60), interval: Duration::from_secs(9), probes: 3 })]
    {
        let mut options = TcpOptions::default();
        options.keepalive = keepalive;
        // The other end is a socket without options.
        let server = tautline::Server::plain().listen("127.0.0.1:0".parse().unwrap()).tcp(options.clone());
        let server = server.start(|_| App::default()).unwrap();
        let tautline::Address::Tcp(address) = &server.addresses()[0] else { panic!("not TCP") };
        let _client = TcpStream::connect(address).unwrap();
        assert_eq!(await_timer(true, address.port()), keepalive.is_some());
        server.drain(tautline::CloseCode::GOING_AWAY, "", Duration::ZERO);
        server.join().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (client, _) = start(target(&format!("ws://127.0.0.1:{port}/")).with_tcp(options), App::default());
        let _accepted = listener.accept().unwrap();
        assert_eq!(await_timer(false, port), keepalive.is_some());
        drop(client);
    }
}
