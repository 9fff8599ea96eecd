//! From a name to a TCP connection.

use super::{failure, start};
use crate::common::server::{client_config, config};
use crate::common::{App, Over, PATIENCE, serve, serve_at};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};
use tautline::Target;
use tautline_testkit::ClosedPort;

fn target(uri: &str) -> Target {
    Target::new(uri).unwrap()
}

#[test]
fn a_refused_connection_says_so() {
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
fn a_name_that_does_not_exist_says_so() {
    let mut config = config();
    // Where no name server answers, that may be said late.
    config.deadlines.connect = 6 * PATIENCE;
    let error = failure(target("wss://no-such-host.invalid/"), client_config(), config);
    assert!(error.contains("cannot resolve no-such-host.invalid"), "{error}");
}

#[test]
fn localhost_is_found_where_only_one_family_listens() {
    // Some machines know one address of localhost, others two.
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

/// A listener whose queue is full: the kernel drops what more comes, as a firewall would.
struct Blackhole {
    listener: TcpListener,
    _queued: Vec<TcpStream>,
}

impl Blackhole {
    fn new(at: (&str, u16)) -> Self {
        let listener = TcpListener::bind(at).unwrap();
        // The shortest queue; std asks for a long one.
        rustix::net::listen(&listener, 0).unwrap();
        let address = listener.local_addr().unwrap();
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200));
        let queued: Vec<_> = std::iter::from_fn(|| connect().ok()).take(10).collect();
        assert!(queued.len() < 10, "the queue has no end");
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
    // A quarter of a second later, where the resolver puts IPv6 first; at once where not.
    assert!(begun.elapsed() < config().deadlines.connect);
    socket.text("here").unwrap();
    assert!(socket.receive().is_ok());
    drop(socket);
    server.forgets();
    server.stop();
}

#[test]
fn a_server_that_never_answers_meets_the_handshake_deadline() {
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
fn targets_that_cannot_work_say_why() {
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
    // A loop has one engine.
    let both = tautline::Client::new(client_config()).target(target("ws://a/")).target(target("wss://b/"));
    let error = both.run(App::default()).err().unwrap().to_string();
    assert!(error.contains("a client each"), "{error}");
    assert!(tautline::Client::new(client_config()).run(App::default()).is_err());
}

#[test]
fn a_client_that_drains_gives_up_its_attempts() {
    let hole = Blackhole::new(("127.0.0.1", 0));
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_port = silent.local_addr().unwrap().port();
    let closed = ClosedPort::new().unwrap();
    for (uri, reconnect) in [
        // Racing, before the answer, and between two attempts.
        (format!("ws://127.0.0.1:{}/", hole.port()), false),
        (format!("ws://127.0.0.1:{silent_port}/"), false),
        (format!("ws://{}/", closed.address()), true),
    ] {
        let mut target = target(&uri);
        let long = Duration::from_secs(100);
        target.reconnect = reconnect.then_some(tautline::Reconnect { first: long, longest: long, attempts: None });
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
fn serving_and_connecting_twice_at_one_port_says_so() {
    let server = serve(Over::Plain, config(), App::default());
    for shards in [1, 2] {
        let again = tautline::Server::new(tautline::Tls::Plain).listen(server.address.clone()).shards(shards);
        let error = again.start(|_| App::default()).unwrap_err().to_string();
        assert!(error.contains("it is in use"), "{error}");
    }
    server.survives();
    // Two servers whose loops share their port by SO_REUSEPORT would split the clients between them.
    let server = serve_at("127.0.0.1:0", Over::Plain, 2, config(), App::default());
    for shards in [1, 2] {
        let again = tautline::Server::new(tautline::Tls::Plain).listen(server.address.clone()).shards(shards);
        let error = again.start(|_| App::default()).unwrap_err().to_string();
        assert!(error.contains("it is in use"), "{error}");
    }
    server.survives();
}

#[test]
fn a_server_takes_over_from_another_where_both_agree() {
    let beside = |address: tautline::Address, shards| {
        let server = tautline::Server::new(tautline::Tls::Plain).listen(address).shards(shards).beside_others(true);
        server.start(|_| App::default()).unwrap()
    };
    let first = beside("127.0.0.1:0".parse().unwrap(), 1);
    let second = beside(first.addresses()[0].clone(), 2);
    first.drain(tautline::CloseCode::GOING_AWAY, "", Duration::ZERO);
    first.join().unwrap();
    // All newcomers are the second's from now on.
    for _ in 0..4 {
        let tautline::Address::Tcp(address) = &second.addresses()[0] else { panic!("no TCP address") };
        TcpStream::connect(address).unwrap();
    }
    second.drain(tautline::CloseCode::GOING_AWAY, "", Duration::ZERO);
    second.join().unwrap();
}
