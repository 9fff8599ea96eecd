//! Sockets over TCP: TLS, limits, deadlines, halves, proxies, reconnection.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "all of this runs inside tests"
)]

use futures_util::{FutureExt as _, SinkExt, StreamExt as _};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tautline_dev_cert::{Authority, Leaf};
use tautline_tokio::{
    Acceptor, Cause, ClientConfig, CloseCode, Config, ConnectError, Connector, Counted, Deadline, DeflateConfig, Drain,
    Error, Keepalive, Kind, Message, Outgoing, Prefixes, Prepared, ProtocolVersion, Reconnect, Roots, ServerConfig,
    SlowConsumer, Target, TcpOptions, Unsent, WebSocket,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

struct Site {
    acceptor: Acceptor,
    connector: Connector,
    listener: TcpListener,
    target: Target,
}

async fn site(server: Config, client: Config) -> Site {
    let authority = Authority::new("test").unwrap();
    let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
    let roots = Roots::Pem(authority.certificate().into());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut target = Target::new(&format!("wss://localhost:{port}/")).unwrap();
    target.address = Some(listener.local_addr().unwrap().into());
    Site {
        acceptor: Acceptor::new(&ServerConfig::new([certificate])).unwrap().with_config(server),
        connector: Connector::new(&ClientConfig::default().with_roots(roots)).unwrap().with_config(client),
        listener,
        target,
    }
}

impl Site {
    async fn accept(&self) -> WebSocket<TcpStream> {
        let (stream, _) = self.listener.accept().await.unwrap();
        self.acceptor.accept(stream).await.unwrap()
    }

    async fn connect(&self) -> WebSocket<TcpStream> {
        self.connector.connect(self.target.clone()).await.unwrap()
    }

    async fn pair(&self) -> (WebSocket<TcpStream>, WebSocket<TcpStream>) {
        tokio::join!(self.accept(), self.connect())
    }
}

#[tokio::test]
async fn counts_connections_messages_and_refusals() {
    let mut site = site(Config::default(), Config::default()).await;
    let counted = Counted::new();
    site.acceptor = site.acceptor.with_counted(&counted);
    let (mut server, mut client) = site.pair().await;
    for text in ["one", "three"] {
        client.text(text).await.unwrap();
        server.recv().await.unwrap().unwrap().echo().unwrap();
    }
    server.send(Outgoing::binary(&[0; 10])).await.unwrap();
    let open = counted.counters();
    assert_eq!((open.connections, open.opened, open.refused), (1, 1, 0));
    assert_eq!((open.messages_received, open.bytes_received), (2, 8));
    assert_eq!((open.messages_sent, open.bytes_sent, open.messages_dropped), (3, 18, 0));
    drop((server, client));
    // One that speaks no TLS.
    let (mut stream, accepted) =
        tokio::join!(TcpStream::connect(site.listener.local_addr().unwrap()), site.listener.accept());
    stream.as_mut().unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(site.acceptor.accept(accepted.unwrap().0).await.is_err());
    let closed = counted.counters();
    assert_eq!((closed.connections, closed.opened, closed.refused), (0, 1, 1));
    // A client joins by itself.
    let (server, mut client) = site.pair().await;
    let own = Counted::new();
    client.count_in(&own);
    client.feed(Outgoing::text("x")).unwrap();
    drop(client);
    assert_eq!((own.counters().connections, own.counters().opened, own.counters().messages_sent), (0, 1, 1));
    drop(server);
}

#[tokio::test]
async fn a_prepared_message_reaches_many_and_keeps_its_place() {
    let mut config = Config::default();
    config.upgrade.deflate = Some(DeflateConfig::default());
    let site = site(config.clone(), config).await;
    let mut pairs = Vec::new();
    for _ in 0..3 {
        pairs.push(site.pair().await);
    }
    let long = "news ".repeat(40_000);
    for text in ["short", &"rates rise, ".repeat(100), &long] {
        let news = Prepared::new(Kind::Text, text.as_bytes());
        for (server, client) in &mut pairs {
            let (sent, received) = tokio::join!(server.send(&news), client.recv());
            sent.unwrap();
            assert_eq!(received.unwrap().unwrap().text(), Some(text));
            // A client masks each message anew, and other messages follow in order.
            client.send(&news).await.unwrap();
            server.recv().await.unwrap().unwrap().echo().unwrap();
            let (_, received) = tokio::join!(server.flush(), client.recv());
            assert_eq!(received.unwrap().unwrap().text(), Some(text));
        }
    }
}

/// The time that this thread has run.
fn cpu() -> Duration {
    // The kernel brings the figure up to date when a thread yields, and at times.
    std::thread::yield_now();
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn a_prepared_message_is_compressed_once_for_all_sockets() {
    let mut config = Config::default();
    config.upgrade.deflate = Some(DeflateConfig::default());
    let site = site(config.clone(), config).await;
    let mut pairs = Vec::new();
    for _ in 0..4 {
        pairs.push(site.pair().await);
    }
    // Numbers take a compressor long, and its output is small enough for the buffers of the kernel.
    let text: String = (0..60_000).map(|n| format!("{}, ", n % 997)).collect();
    let news = Prepared::new(Kind::Text, text.as_bytes());
    let mut times = Vec::new();
    for (server, _) in &mut pairs {
        let before = cpu();
        server.send(&news).await.unwrap();
        times.push(cpu() - before);
    }
    // Sealing and sending take a part of each time.
    let others: Duration = times[1..].iter().sum();
    assert!(others / 3 < times[0] * 7 / 10, "{times:?}");
    for (_, client) in &mut pairs {
        assert_eq!(client.recv().await.unwrap().unwrap().text(), Some(&*text));
    }
}

/// Whether the kernel runs a timer for a connection to this port, as for probes of an idle one (proc_net_tcp of the kernel's documentation).
fn has_timer(port: u16) -> bool {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut found = rows.filter(|row| row[2].ends_with(&format!(":{port:04X}")) && row[3] == "01");
    found.next().unwrap()[5].starts_with("02:")
}

#[tokio::test]
async fn a_target_has_tcp_options() {
    for probes in [None, Some(Keepalive { idle: Duration::from_secs(60), interval: Duration::from_secs(9), probes: 3 })]
    {
        let mut site = site(Config::default(), Config::default()).await;
        let mut options = TcpOptions::default();
        options.keepalive = probes;
        site.target = site.target.with_tcp(options);
        let (_server, client) = site.pair().await;
        let port = client.get_ref().peer_addr().unwrap().port();
        assert_eq!(has_timer(port), probes.is_some());
    }
}

#[tokio::test]
async fn messages_of_all_sizes_cross_tls_both_ways() {
    let site = site(Config::default(), Config::default()).await;
    let (mut server, mut client) = site.pair().await;
    assert_eq!(client.tls().version, Some(ProtocolVersion::Tls13));
    for size in [0, 1, 125, 126, 16_383, 16_384, 16_385, 65_536, 1 << 20] {
        let payload: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        let (sent, received) = tokio::join!(client.binary(&payload), server.recv());
        sent.unwrap();
        let mut received = received.unwrap().unwrap();
        assert!(received.data() == payload, "{size}");
        received.echo().unwrap();
        let (flushed, received) = tokio::join!(server.flush(), client.recv());
        flushed.unwrap();
        assert!(received.unwrap().unwrap().data() == payload, "{size}");
    }
    let (closed, end) = tokio::join!(client.close(CloseCode::GOING_AWAY, "bye"), server.recv());
    closed.unwrap();
    assert!(end.unwrap().is_none());
    assert_eq!((server.closed().unwrap().code, &*server.closed().unwrap().reason), (CloseCode::GOING_AWAY, "bye"));
    assert!(matches!(client.closed().unwrap().cause, Cause::Local));
    assert!(matches!(client.text("late").await, Err(Error::Unsent(_))));
}

#[tokio::test]
async fn a_drain_closes_all_connections() {
    let site = site(Config::default(), Config::default()).await;
    let drain = Drain::new();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let (mut server, client) = site.pair().await;
        let mut draining = drain.watch();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    message = server.recv() => match message.unwrap() {
                        Some(mut message) => message.echo().unwrap(),
                        None => return,
                    },
                    (code, reason) = draining.begun() => return server.close(code, &reason).await.unwrap(),
                }
            }
        });
        clients.push(client);
    }
    for client in &mut clients {
        client.text("hello").await.unwrap();
        assert_eq!(client.recv().await.unwrap().unwrap().text(), Some("hello"));
    }
    assert_eq!(drain.open(), 3);
    let drained = drain.drain(CloseCode::GOING_AWAY, "the server stops", Duration::from_secs(60));
    let ends = futures_util::future::join_all(clients.iter_mut().map(|client| async {
        assert!(client.recv().await.unwrap().is_none());
        client.closed().unwrap().clone()
    }));
    let (left, ends) = tokio::join!(drained, ends);
    assert_eq!(left, 0);
    for end in ends {
        assert_eq!((end.code, &*end.reason), (CloseCode::GOING_AWAY, "the server stops"));
    }
}

#[tokio::test]
async fn an_acceptor_reads_its_certificate_from_files() {
    let mut site = site(Config::default(), Config::default()).await;
    let authority = Authority::new("test").unwrap();
    let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
    let folder = std::env::temp_dir().join(format!("tautline-tokio-files-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let [chain, key] = ["cert.pem", "key.pem"].map(|name| folder.join(name));
    std::fs::write(&chain, &certificate.chain).unwrap();
    let missing = Acceptor::from_files(&chain, &key).unwrap_err().to_string();
    assert!(missing.contains("key.pem: No such file"), "{missing}");
    std::fs::write(&key, &Authority::new("other").unwrap().issue(&Leaf::new(&["localhost"])).unwrap().key).unwrap();
    let mismatch = Acceptor::from_files(&chain, &key).unwrap_err().to_string();
    assert!(mismatch.contains("cert.pem: the private key does not belong"), "{mismatch}");
    std::fs::write(&key, &certificate.key).unwrap();
    site.acceptor = Acceptor::from_files(&chain, &key).unwrap();
    let roots = Roots::Pem(authority.certificate().into());
    site.connector = Connector::new(&ClientConfig::default().with_roots(roots)).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let (mut server, mut client) = site.pair().await;
    let (sent, received) = tokio::join!(client.text("hello"), server.recv());
    sent.unwrap();
    assert_eq!(received.unwrap().unwrap().text(), Some("hello"));
}

#[tokio::test]
async fn many_messages_leave_as_one_record() {
    let site = site(Config::default(), Config::default()).await;
    let (mut server, client) = site.pair().await;
    let counted = client.get_ref();
    for number in 0..100_u8 {
        server.feed(Outgoing::binary(&[number; 50])).unwrap();
    }
    server.flush().await.unwrap();
    let mut bytes = vec![0; 20_000];
    let mut len = 0;
    // 5,200 bytes of frames, with one record's header, tag and type.
    while len < 5200 + 22 {
        counted.readable().await.unwrap();
        len += counted.try_read(&mut bytes[len..]).unwrap_or(0);
    }
    assert_eq!(usize::from(u16::from_be_bytes([bytes[3], bytes[4]])), 5200 + 17);
}

#[tokio::test]
async fn halves_work_on_two_tasks_of_two_threads() {
    let site = site(Config::default(), Config::default()).await;
    let (server, client) = site.pair().await;
    let (mut to_client, mut from_client) = server.split();
    let (mut to_server, mut from_server) = client.split();
    let echo = tokio::spawn(async move {
        while let Some(message) = from_client.recv().await.unwrap() {
            to_client.send(&message).await.unwrap();
        }
    });
    let sending = tokio::spawn(async move {
        for number in 0..2000_u32 {
            let size = if number % 100 == 0 { 70_000 } else { number as usize % 300 };
            let message = Message::from([&number.to_be_bytes()[..], &vec![1; size]].concat());
            to_server.send(&message).await.unwrap();
        }
        to_server
    });
    for number in 0..2000_u32 {
        let message = from_server.recv().await.unwrap().unwrap();
        assert_eq!(message.data()[..4], number.to_be_bytes());
    }
    let mut to_server = sending.await.unwrap();
    to_server.close(CloseCode::NORMAL, "").await.unwrap();
    assert!(from_server.recv().await.unwrap().is_none());
    echo.await.unwrap();
    assert!(from_server.reunite(to_server).unwrap().closed().is_some());
}

#[tokio::test]
async fn halves_are_streams_and_sinks() {
    let site = site(Config::default(), Config::default()).await;
    let (server, client) = site.pair().await;
    let (to_client, from_client) = server.split();
    let (mut to_server, mut from_server) = client.split();
    let echo = tokio::spawn(from_client.forward(to_client));
    to_server.text("one").await.unwrap();
    to_server.binary(b"two").await.unwrap();
    to_server.ping(b"a ping is answered, and its pong is no message").unwrap();
    assert!(matches!(to_server.ping(&[0; 126]), Err(Error::Unsent(_))));
    SinkExt::send(&mut to_server, Message::from("three")).await.unwrap();
    let all = [Message::from("one"), Message::from(b"two".to_vec()), Message::from("three")];
    for message in all {
        assert_eq!(from_server.next().await.unwrap().unwrap(), message);
    }
    SinkExt::close(&mut to_server).await.unwrap();
    assert!(from_server.next().await.is_none());
    assert!(matches!(from_server.closed().unwrap().cause, Cause::Local));
    // The stream has ended, and the sink of the other end is closed with it.
    echo.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_silent_peer_is_pinged_and_given_up() {
    let mut config = Config::default();
    config.deadlines.ping = Some(Duration::from_millis(100));
    config.deadlines.idle = Some(Duration::from_millis(400));
    config.deadlines.close = Duration::from_millis(100);
    let site = site(config, Config::default()).await;
    let (mut server, client) = site.pair().await;
    // A client that does not poll answers no ping.
    let ended = server.recv().await.map(|found| found.map(drop));
    assert!(matches!(ended, Err(Error::Closed(closed)) if matches!(closed.cause, Cause::Timeout(Deadline::Idle))));
    assert!(server.recv().await.unwrap().is_none());
    drop(client);

    let (mut server, mut client) = site.pair().await;
    let answering = tokio::spawn(async move { client.recv().await.map(|found| found.map(drop)) });
    assert!(tokio::time::timeout(Duration::from_millis(1500), server.recv()).await.is_err(), "pongs are input");
    assert!(!answering.is_finished());
}

/// In virtual time: a feed that answers pings, but sends nothing more.
#[tokio::test(start_paused = true)]
async fn a_feed_that_sends_no_message_is_given_up() {
    let mut config = Config::default();
    config.deadlines.ping = Some(Duration::from_secs(1));
    config.deadlines.silence = Some(Duration::from_secs(10));
    let (near, far) = tokio::io::duplex(1 << 16);
    let feed = tokio::spawn(async move {
        let mut socket = Acceptor::plain().accept(far).await.unwrap();
        tokio::time::sleep(Duration::from_secs(6)).await;
        socket.text("price").await.unwrap();
        assert!(socket.recv().await.unwrap().is_none());
        socket.closed().unwrap().clone()
    });
    let connector = Connector::plain().with_config(config);
    let mut client = connector.connect_over(Target::new("ws://localhost/").unwrap(), near).await.unwrap();
    let begun = tokio::time::Instant::now();
    assert_eq!(client.recv().await.unwrap().unwrap().text(), Some("price"));
    let ended = client.recv().await.map(|found| found.map(drop));
    assert!(matches!(ended, Err(Error::Closed(closed)) if matches!(closed.cause, Cause::Timeout(Deadline::Silence))));
    assert!((15..=17).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    drop(client);
    // The feed is told the reason, as by a loop.
    let told = feed.await.unwrap();
    assert_eq!((told.code, &*told.reason), (CloseCode::GOING_AWAY, "no message for too long"));
}

/// In virtual time: one feed of a connector may be silent for a shorter time than others.
#[tokio::test(start_paused = true)]
async fn a_target_has_a_silence_of_its_own() {
    let target = || Target::new("ws://localhost/").unwrap();
    for (target, expected) in [(target().with_silence(Duration::from_secs(10)), true), (target(), false)] {
        let (near, far) = tokio::io::duplex(1 << 16);
        let feed = tokio::spawn(async move { Acceptor::plain().accept(far).await.unwrap().recv().await.map(drop) });
        let mut client = Connector::plain().connect_over(target, near).await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(12), client.recv()).await.map(|found| found.map(drop));
        let was_silent = matches!(
            ended, Ok(Err(Error::Closed(closed))) if matches!(closed.cause, Cause::Timeout(Deadline::Silence))
        );
        assert_eq!(was_silent, expected);
        feed.abort();
    }
}

#[tokio::test]
async fn a_handshake_that_stalls_misses_its_deadline() {
    let mut config = Config::default();
    config.deadlines.handshake = Duration::from_millis(50);
    let site = site(config, Config::default()).await;
    let _silent = TcpStream::connect(site.listener.local_addr().unwrap()).await.unwrap();
    let (stream, _) = site.listener.accept().await.unwrap();
    let error = site.acceptor.accept(stream).await.unwrap_err();
    assert!(matches!(&error, Error::Connect(ConnectError::Ended(Cause::Timeout(Deadline::Handshake)))), "{error}");
}

#[tokio::test]
async fn a_stream_that_ends_without_close_notify_is_truncated() {
    let site = site(Config::default(), Config::default()).await;
    let (mut server, client) = site.pair().await;
    drop(client);
    let ended = server.recv().await.map(|found| found.map(drop));
    assert!(matches!(ended, Err(Error::Closed(closed)) if matches!(closed.cause, Cause::Truncated | Cause::Io(_))));
}

#[tokio::test]
async fn a_message_above_the_limit_ends_the_connection() {
    let mut config = Config::default();
    config.limits.max_message = 1000;
    let site = site(config, Config::default()).await;
    let (mut server, mut client) = site.pair().await;
    client.binary(&[0; 1001]).await.unwrap();
    assert!(matches!(server.recv().await, Err(Error::Closed(_))));
    let ending = tokio::spawn(async move { server.recv().await.map(|found| found.map(drop)) });
    assert!(client.recv().await.unwrap().is_none());
    assert_eq!(client.closed().unwrap().code, CloseCode::MESSAGE_TOO_BIG);
    drop(client);
    assert!(ending.await.unwrap().unwrap().is_none());
}

#[tokio::test]
async fn a_client_goes_through_a_proxy() {
    let site = site(Config::default(), Config::default()).await;
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut target = site.target.clone();
    target.address = None;
    target.proxy = Some(format!("http://me:secret@{}", proxy.local_addr().unwrap()).parse().unwrap());
    let server_address = site.listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut near, _) = proxy.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(near.read_u8().await.unwrap());
        }
        assert!(String::from_utf8(head).unwrap().starts_with("CONNECT localhost:"));
        near.write_all(b"HTTP/1.1 200 Fine\r\n\r\n").await.unwrap();
        let mut far = TcpStream::connect(server_address).await.unwrap();
        tokio::io::copy_bidirectional(&mut near, &mut far).await.ok();
    });
    let (mut server, client) = tokio::join!(site.accept(), site.connector.connect(target));
    let mut client = client.unwrap();
    client.text("through").await.unwrap();
    assert_eq!(server.recv().await.unwrap().unwrap().text(), Some("through"));
}

#[tokio::test]
async fn connections_follow_each_other() {
    let mut site = site(Config::default(), Config::default()).await;
    site.target.reconnect = Some(Reconnect::new(Duration::from_millis(10), Duration::from_millis(20)).with_attempts(2));
    let mut connections = site.connector.connections(site.target.clone());
    for _ in 0..2 {
        let (server, client) = tokio::join!(site.accept(), connections.next());
        let mut client = client.unwrap().unwrap();
        drop(server);
        assert!(client.recv().await.is_err());
    }
    drop(site.listener);
    assert!(matches!(connections.next().await, Err(Error::Connect(_))));
    assert!(connections.next().await.unwrap().is_none());
}

#[tokio::test]
async fn an_attempt_goes_on_although_its_futures_are_dropped() {
    let mut site = site(Config::default(), Config::default()).await;
    site.target.reconnect = Some(Reconnect::new(Duration::from_millis(10), Duration::from_millis(20)));
    let mut connections = site.connector.connections(site.target.clone());
    let (opened, mut servers) = tokio::sync::mpsc::unbounded_channel();
    let serving = tokio::spawn(async move {
        loop {
            opened.send(site.accept().await).unwrap();
        }
    });
    for _ in 0..3 {
        // Each future is polled once.
        let mut client = loop {
            match connections.next().now_or_never() {
                Some(connection) => break connection.unwrap().unwrap(),
                None => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        };
        let mut server = servers.recv().await.unwrap();
        client.text("hello").await.unwrap();
        assert_eq!(server.recv().await.unwrap().unwrap().text(), Some("hello"));
        assert!(servers.try_recv().is_err(), "no attempt was doubled");
    }
    serving.abort();
}

#[tokio::test]
async fn a_server_says_when_to_come_back() {
    let mut site = site(Config::default(), Config::default()).await;
    // Without the hint the next attempt would come after half a minute at the earliest.
    site.target.reconnect = Some(Reconnect::new(Duration::from_secs(60), Duration::from_secs(600)));
    let mut connections = site.connector.connections(site.target.clone());
    let (mut server, client) = tokio::join!(site.accept(), connections.next());
    let mut client = client.unwrap().unwrap();
    let closing = server.close(CloseCode::SERVICE_RESTART, "retry-after=0.2s the server restarts");
    let (closed, end) = tokio::join!(closing, client.recv());
    closed.unwrap();
    assert!(end.unwrap().is_none());
    assert_eq!(client.closed().unwrap().retry_after(), Some(Duration::from_millis(200)));
    let closed = tokio::time::Instant::now();
    let back =
        tokio::time::timeout(Duration::from_secs(25), async { tokio::join!(site.accept(), connections.next()).1 });
    assert!(back.await.unwrap().unwrap().is_some());
    assert!(closed.elapsed() >= Duration::from_millis(200), "{:?}", closed.elapsed());
}

#[tokio::test]
async fn connections_end_when_too_many_in_a_row_were_short() {
    let mut site = site(Config::default(), Config::default()).await;
    site.target.reconnect = Some(Reconnect::new(Duration::from_millis(10), Duration::from_secs(600)).with_attempts(2));
    let mut connections = site.connector.connections(site.target.clone());
    for _ in 0..3 {
        let (server, client) = tokio::join!(site.accept(), connections.next());
        let mut client = client.unwrap().unwrap();
        drop(server);
        assert!(client.recv().await.is_err());
    }
    assert!(connections.next().await.unwrap().is_none());
}

#[tokio::test]
async fn a_request_is_answered_by_path() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        for _ in 0..2 {
            let (stream, _) = listener.accept().await.unwrap();
            let asking = Acceptor::plain().ask(stream).await.unwrap();
            if asking.request().uri().path() == "/feed" {
                let mut socket = asking.upgrade(Default::default()).await.unwrap();
                assert!(socket.recv().await.unwrap().is_none());
            } else {
                let response = http::Response::builder().status(404).body("not here").unwrap();
                assert!(asking.respond(&response).await.unwrap().is_none());
            }
        }
    });
    let connect = async |path: &str| {
        let target = Target::new(&format!("ws://{address}{path}")).unwrap();
        Connector::plain().connect(target).await
    };
    let error = connect("/other").await.unwrap_err();
    assert!(error.to_string().contains("404"), "{error}");
    connect("/feed").await.unwrap().close(CloseCode::NORMAL, "").await.unwrap();
    serving.await.unwrap();
}

/// A client that is read without ever waiting: its request, an answer to a close frame or none, and then messages for ever.
struct Flood {
    begin: Vec<u8>,
    read: usize,
    until: std::time::Instant,
}

impl Flood {
    fn new(answer: &[u8]) -> Self {
        let request = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
            Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
        let until = std::time::Instant::now() + Duration::from_secs(20);
        Self { begin: [request.as_bytes(), answer].concat(), read: 0, until }
    }
}

impl tokio::io::AsyncRead for Flood {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        const EMPTY_MESSAGE: [u8; 6] = [0x82, 0x80, 0, 0, 0, 0];
        if self.read < self.begin.len() {
            buffer.put_slice(&self.begin[self.read..]);
            self.read = self.begin.len();
        } else if std::time::Instant::now() < self.until {
            buffer.put_slice(&EMPTY_MESSAGE);
        }
        Poll::Ready(Ok(()))
    }
}

impl tokio::io::AsyncWrite for Flood {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_peer_that_never_pauses_does_not_outlast_the_deadline_of_a_close() {
    let mut config = Config::default();
    config.deadlines.close = Duration::from_millis(100);
    let acceptor = Acceptor::plain().with_config(config);
    let mut socket = acceptor.accept(Flood::new(b"")).await.unwrap();
    let Err(Error::Closed(closed)) = socket.close(CloseCode::NORMAL, "").await else {
        panic!("a peer without a close")
    };
    assert!(matches!(closed.cause, Cause::Timeout(Deadline::Close)), "{closed:?}");

    // A peer that has closed is to say no more.
    let answer = [0x88, 0x82, 0, 0, 0, 0, 0x03, 0xE8];
    let flood = Flood::new(&answer);
    let until = flood.until;
    let mut socket = acceptor.accept(flood).await.unwrap();
    socket.close(CloseCode::NORMAL, "").await.unwrap();
    assert!(std::time::Instant::now() < until);
}

/// Feeds numbers until the kernel takes no more, and then `more` of them. Returns what the client receives.
async fn feed_a_reader_that_sleeps(policy: SlowConsumer, more: usize) -> (Vec<String>, Vec<Result<(), Error>>, u64) {
    let mut config = Config::default();
    config.slow_consumer = policy;
    let site = site(config, Config::default()).await;
    let (mut server, mut client) = site.pair().await;
    let filling = "x".repeat(60_000);
    // Each flush is given up once the kernel takes no more bytes.
    while tokio::time::timeout(Duration::from_millis(200), server.text(&filling)).await.is_ok() {}
    let fed = (0..more).map(|number| server.feed(Outgoing::text(&number.to_string()))).collect();
    let dropped = server.messages_dropped();
    let reader = async {
        let mut texts = Vec::new();
        while let Some(message) = client.recv().await.unwrap() {
            let text = message.text().unwrap_or_default();
            if text.len() < 100 {
                texts.push(text.to_owned());
            }
        }
        texts
    };
    let (closed, texts) = tokio::join!(server.close(CloseCode::NORMAL, ""), reader);
    closed.unwrap();
    (texts, fed, dropped)
}

#[tokio::test]
async fn policies_for_slow_readers_mean_what_they_mean_in_a_loop() {
    // Each waiting message counts 64 bytes beside its own one.
    let (texts, fed, dropped) = feed_a_reader_that_sleeps(SlowConsumer::DropOldest(3 * 65), 5).await;
    assert!(fed.iter().all(Result::is_ok));
    assert_eq!((texts, dropped), (vec!["2".to_owned(), "3".into(), "4".into()], 2));
    let (texts, fed, dropped) = feed_a_reader_that_sleeps(SlowConsumer::DropNewest(3 * 65), 5).await;
    assert!(matches!(fed[2..], [Ok(()), Err(Error::Unsent(Unsent::Dropped)), Err(Error::Unsent(Unsent::Dropped))]));
    assert_eq!((texts, dropped), (vec!["0".to_owned(), "1".into(), "2".into()], 2));
    let (texts, fed, dropped) = feed_a_reader_that_sleeps(SlowConsumer::Disconnect(3 * 65), 5).await;
    assert!(fed.iter().all(|fed| matches!(fed, Err(Error::Unsent(Unsent::Full)))), "a task can wait");
    assert_eq!((texts, dropped), (Vec::new(), 0));
}

#[tokio::test]
async fn a_request_waits_for_the_application_and_not_for_its_client() {
    let mut config = Config::default();
    config.deadlines.handshake = Duration::from_millis(400);
    let site = site(config, Config::default()).await;
    let server = async {
        let (stream, _) = site.listener.accept().await.unwrap();
        let asking = site.acceptor.ask(stream).await.unwrap();
        tokio::time::sleep(Duration::from_millis(900)).await;
        asking.upgrade(http::HeaderMap::new()).await.map(drop)
    };
    let (served, connected) = tokio::join!(server, site.connector.connect(site.target.clone()));
    served.unwrap();
    connected.unwrap();
}

#[tokio::test]
async fn the_body_of_a_request_is_read_within_its_limit() {
    let mut config = Config::default();
    config.limits.max_body = 5;
    let acceptor = Acceptor::plain().with_config(config);
    let (mut near, far) = tokio::io::duplex(10_000);
    near.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello").await.unwrap();
    let asking = acceptor.ask(far).await.unwrap();
    assert_eq!(asking.body(), b"hello");
    near.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n").await.unwrap();
    let next = asking.respond(&http::Response::new("thanks")).await.unwrap();
    assert!(next.is_none());
    let mut told = String::new();
    near.read_to_string(&mut told).await.unwrap();
    assert!(told.starts_with("HTTP/1.1 200") && told.contains("HTTP/1.1 413"), "{told}");
}

#[tokio::test]
async fn a_configuration_that_streams_is_an_error() {
    let mut config = Config::default();
    config.streaming = true;
    let (_near, far) = tokio::io::duplex(100);
    let error = Acceptor::plain().with_config(config).ask(far).await.unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("Config::streaming"), "{error}");
}

/// A proxy of TCP sends the header, and then all that its client sends.
#[tokio::test]
async fn the_client_behind_a_proxy_is_the_peer() {
    let mut config = Config::default();
    config.front.proxy_protocol_from = Prefixes::list(&["127.0.0.1"]).unwrap();
    let site = site(config, Config::default()).await;
    for (header, is_right) in [("PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\n", true), ("PROXY TCP5 x\r\n", false)] {
        let mut stream = TcpStream::connect(site.listener.local_addr().unwrap()).await.unwrap();
        let (accepted, direct) = site.listener.accept().await.unwrap();
        stream.write_all(header.as_bytes()).await.unwrap();
        let client = site.connector.connect_over(site.target.clone(), stream);
        let (server, client) = tokio::join!(site.acceptor.accept_from(accepted, direct), client);
        if is_right {
            let server = server.unwrap();
            assert_eq!(server.peer(), Some(&"192.0.2.7:4711".parse().unwrap()));
            assert_eq!(server.via().unwrap().direct, direct.into());
        } else {
            let error = server.unwrap_err().to_string();
            assert!(error.contains("a malformed header of the PROXY protocol"), "{error}");
            assert!(client.is_err());
        }
    }
}
