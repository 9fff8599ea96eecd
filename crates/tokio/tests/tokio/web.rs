//! WebSockets on connections that axum and hyper serve.

use axum::{Router, routing};
use futures_util::{SinkExt, StreamExt};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::time::{Duration, Instant};
use tautline_tokio::axum::{Socket, WebSocketUpgrade};
use tautline_tokio::{CloseCode, Config, ConnectError, Connector, DeflateConfig, Error, Message, Target};
use tokio::net::{TcpListener, TcpStream};

async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

async fn echo(mut socket: Socket) {
    while let Some(mut message) = socket.recv().await.unwrap() {
        message.echo().unwrap();
    }
}

async fn axum_server() -> String {
    let (listener, address) = listener().await;
    let upgrade = |request: WebSocketUpgrade| async move {
        request.protocols(["echo"]).deflate(DeflateConfig::default()).max_message_size(100_000).on_upgrade(echo)
    };
    let routes = Router::new().route("/", routing::get(|| async { "hello" })).route("/ws", routing::any(upgrade));
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    address
}

#[tokio::test]
async fn axum_serves_a_websocket_beside_other_routes() {
    let address = axum_server().await;
    let mut target = Target::new(&format!("ws://{address}/ws")).unwrap();
    target.subprotocols = vec!["other".into(), "echo".into()];
    target.deflate = Some(DeflateConfig::default());
    let mut socket = Connector::plain().connect(target).await.unwrap();
    assert_eq!(socket.opened().subprotocol.as_deref(), Some("echo"));
    assert!(socket.opened().deflate);
    for message in [Message::from("hello"), Message::from(vec![7; 90_000])] {
        SinkExt::send(&mut socket, message.clone()).await.unwrap();
        assert_eq!(StreamExt::next(&mut socket).await.unwrap().unwrap(), message);
    }
    socket.close(CloseCode::NORMAL, "enough").await.unwrap();
    assert_eq!(socket.closed().unwrap().code, CloseCode::NORMAL);

    let mut socket = Connector::plain().connect(Target::new(&format!("ws://{address}/ws")).unwrap()).await.unwrap();
    socket.binary(&[1; 100_001]).await.unwrap();
    assert!(socket.recv().await.unwrap().is_none());
    assert_eq!(socket.closed().unwrap().code, CloseCode::MESSAGE_TOO_BIG);
}

/// With Nagle's algorithm the second of two messages waits for the client's delayed acknowledgement, 40 ms and more.
#[tokio::test]
async fn the_second_of_two_messages_does_not_wait() {
    let (listener, address) = listener().await;
    let answer_twice = |mut socket: Socket| async move {
        assert!(socket.get_ref().tcp().unwrap().nodelay().unwrap());
        while let Some(message) = socket.recv().await.unwrap() {
            let text = message.text().unwrap().to_owned();
            socket.text(&text).await.unwrap();
            socket.text(&text).await.unwrap();
        }
    };
    let upgrade = move |request: WebSocketUpgrade| async move { request.on_upgrade(answer_twice) };
    let routes = Router::new().route("/ws", routing::any(upgrade));
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    let mut socket = Connector::plain().connect(Target::new(&format!("ws://{address}/ws")).unwrap()).await.unwrap();
    let mut times = Vec::new();
    for _ in 0..31 {
        let begun = Instant::now();
        socket.text("hello").await.unwrap();
        for _ in 0..2 {
            assert_eq!(socket.recv().await.unwrap().unwrap().text(), Some("hello"));
        }
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    assert!(times[times.len() / 2] < Duration::from_millis(30), "{times:?}");
    socket.close(CloseCode::NORMAL, "").await.unwrap();
}

#[tokio::test]
async fn axum_refuses_what_is_no_upgrade() {
    let address = axum_server().await;
    let refused = Connector::plain().connect(Target::new(&format!("ws://{address}/")).unwrap()).await.unwrap_err();
    assert!(matches!(refused, Error::Connect(ConnectError::Handshake(_))), "{refused}");
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let request = format!("GET /ws HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await.unwrap();
    let mut response = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 426"), "{response}");
}

async fn answer(mut request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, std::convert::Infallible> {
    match tautline_tokio::hyper::upgrade(&mut request, Config::default()) {
        Ok((response, upgrade)) => {
            tokio::spawn(async move {
                let mut socket = upgrade.await.unwrap();
                assert_eq!(socket.opened().request.as_ref().unwrap().uri().path(), "/there");
                socket.text("welcome").await.unwrap();
                assert!(socket.recv().await.unwrap().is_none());
            });
            Ok(response.map(|()| Empty::new()))
        }
        Err(response) => Ok(response.map(|_| Empty::new())),
    }
}

#[tokio::test]
async fn hyper_hands_its_connection_over() {
    let (listener, address) = listener().await;
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let served = hyper::server::conn::http1::Builder::new();
        served.serve_connection(TokioIo::new(stream), service_fn(answer)).with_upgrades().await.unwrap();
    });
    let target = Target::new(&format!("ws://{address}/there")).unwrap();
    let mut socket = Connector::plain().connect(target).await.unwrap();
    assert_eq!(socket.recv().await.unwrap().unwrap().text(), Some("welcome"));
    socket.close(CloseCode::NORMAL, "").await.unwrap();
}

#[tokio::test]
async fn answers_of_hyper_and_axum_have_one_date() {
    let (listener, address) = listener().await;
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let served = hyper::server::conn::http1::Builder::new();
        served.serve_connection(TokioIo::new(stream), service_fn(answer)).with_upgrades().await.unwrap();
    });
    for (address, path) in [(address, "/"), (axum_server().await, "/ws")] {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await.unwrap();
        let mut response = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut response).await.unwrap();
        let head = response.to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 426") && head.matches("\r\ndate: ").count() == 1, "{response}");
    }
}
