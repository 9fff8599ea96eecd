//! Which failures are followed by a further attempt, when, and at which address.

use std::net::SocketAddr;
use std::time::Duration;
use tautline_tokio::{Acceptor, ClientConfig, Config, Connector, Error, Lookup, Reconnect, Resolver, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

const PATIENCE: Duration = Duration::from_secs(20);

/// Waits that no test outlives.
const LONG: Reconnect = Reconnect::new(Duration::from_secs(600), Duration::from_secs(1200));

/// The URI of an address where nobody listens.
async fn nowhere(scheme: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("{scheme}://{}/", listener.local_addr().unwrap())
}

async fn error_of(connector: &Connector, target: Target) -> Error {
    let mut connections = connector.connections(target);
    let error = tokio::time::timeout(PATIENCE, connections.next()).await.unwrap().err().unwrap();
    assert!(connections.next().await.unwrap().is_none(), "it has ended");
    error
}

#[tokio::test]
async fn a_permanent_error_ends_connections_although_no_server_runs() {
    let uri = nowhere("ws").await;
    let target = || Target::new(&uri).unwrap().with_reconnect(LONG);
    let mut reserved = target();
    reserved.headers.insert("host", "mine".parse().unwrap());
    let mut subprotocol = target();
    subprotocol.subprotocols = vec!["a b".into()];
    let secure = Target::new(&nowhere("wss").await).unwrap().with_reconnect(LONG);
    for (target, word) in [(reserved, "host"), (subprotocol, "subprotocol"), (secure, "for ws:// alone")] {
        let error = error_of(&Connector::plain(), target).await;
        assert!(error.is_permanent() && error.to_string().contains(word), "{error}");
    }
    let mut name = Target::new(&nowhere("wss").await).unwrap().with_reconnect(LONG);
    name.server_name = Some("no name".into());
    let error = error_of(&Connector::new(&ClientConfig::default()).unwrap(), name).await;
    assert!(error.is_permanent() && error.to_string().contains("neither a DNS name"), "{error}");
    let mut connections = Connector::plain().connections(target());
    assert!(tokio::time::timeout(Duration::from_millis(300), connections.next()).await.is_err(), "it is tried again");
}

/// Answers a request, and opens a WebSocket for the second.
async fn refusing(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let mut socket = Acceptor::plain().accept(stream).await.unwrap();
        let _ = socket.recv().await;
    });
    address
}

#[tokio::test]
async fn a_refusal_says_when_to_come_back_within_bounds() {
    for (answer, reconnect) in [
        ("HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n", LONG),
        ("HTTP/1.1 429 Slow Down\r\nRetry-After: Sunday, 06-Nov-94 08:49:37 GMT\r\nContent-Length: 0\r\n\r\n", LONG),
        (
            "HTTP/1.1 503 Busy\r\nRetry-After: 99999999999999999999\r\nContent-Length: 0\r\n\r\n",
            Reconnect::new(Duration::from_millis(1), Duration::from_millis(300)),
        ),
    ] {
        let address = refusing(answer).await;
        let target = Target::new(&format!("ws://{address}/")).unwrap().with_reconnect(reconnect);
        let mut connections = Connector::plain().connections(target);
        let begun = std::time::Instant::now();
        assert!(tokio::time::timeout(PATIENCE, connections.next()).await.unwrap().unwrap().is_some(), "{answer}");
        if reconnect != LONG {
            assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
        }
    }
}

/// Knows the addresses of each host.
#[derive(Debug)]
struct Known(Vec<SocketAddr>);

impl Resolver for Known {
    fn resolve(&self, lookup: Lookup) {
        lookup.answer(Ok::<_, &str>(self.0.clone()));
    }
}

#[tokio::test]
async fn the_next_address_follows_one_that_accepts_and_says_nothing() {
    // The kernel accepts for it, and nobody answers.
    let dead = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let known = vec![dead.local_addr().unwrap(), listener.local_addr().unwrap()];
    let mut config = Config::default();
    config.deadlines.handshake = Duration::from_millis(500);
    let connector = Connector::plain().with_config(config);
    let quick = Reconnect::new(Duration::from_millis(10), Duration::from_millis(20)).with_attempts(1);
    let target = Target::new("ws://several.example/").unwrap().with_resolver(Known(known)).with_reconnect(quick);
    let accepting = tokio::spawn(async move {
        let mut sockets = Vec::new();
        while sockets.len() < 2 {
            sockets.push(Acceptor::plain().accept(listener.accept().await.unwrap().0).await.unwrap());
        }
        sockets
    });
    let mut connections = connector.connections(target.clone());
    assert!(tokio::time::timeout(PATIENCE, connections.next()).await.unwrap().unwrap().is_some());
    // Others of the same connector begin with the address that works.
    let other = tokio::time::timeout(PATIENCE, connector.clone().connect(target)).await.unwrap();
    assert!(other.is_ok(), "{other:?}");
    accepting.await.unwrap();
}

#[tokio::test]
async fn all_addresses_of_a_target_are_tried_and_all_failures_named() {
    // Bound, and listening never.
    let closed = [(); 2].map(|()| TcpSocket::new_v4().unwrap());
    closed.iter().for_each(|socket| socket.bind("127.0.0.1:0".parse().unwrap()).unwrap());
    let [one, other] = closed.each_ref().map(|socket| socket.local_addr().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut target = Target::new("ws://127.0.0.9:9/").unwrap();
    target.addresses = vec![one, other, listener.local_addr().unwrap()];
    let accepting =
        tokio::spawn(async move { Acceptor::plain().accept(listener.accept().await.unwrap().0).await.unwrap() });
    let connector = Connector::plain();
    let opened = tokio::time::timeout(PATIENCE, connector.connect(target.clone())).await.unwrap();
    assert!(opened.is_ok(), "{opened:?}");
    drop(accepting.await.unwrap());
    target.addresses.pop();
    let error = tokio::time::timeout(PATIENCE, connector.connect(target)).await.unwrap().unwrap_err();
    let said = format!("{error:#}");
    assert!([one, other].iter().all(|address| said.contains(&address.to_string())), "{said}");
}
