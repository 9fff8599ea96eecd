//! WebSockets on streams of HTTP/2, which axum and hyper serve, to the client of the crate `h2`.

use axum::{Router, routing};
use bytes::{Bytes, BytesMut};
use h2::client::SendRequest;
use h2::ext::Protocol;
use h2::{Reason, RecvStream, SendStream};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::http::request::Builder;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use tautline_tokio::axum::{Socket, WebSocketUpgrade};
use tautline_tokio::{Config, DeflateConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;

async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

async fn echo(mut socket: Socket) {
    assert!(socket.get_ref().tcp().is_none(), "a stream has no TCP connection of its own");
    let request = socket.opened().request.as_ref().unwrap();
    assert_eq!((request.method(), request.version()), (&Method::CONNECT, Version::HTTP_2));
    while let Some(mut message) = socket.recv().await.unwrap() {
        message.echo().unwrap();
    }
}

/// A connection to axum, which serves HTTP/2 to clients that begin with it.
async fn axum() -> SendRequest<Bytes> {
    let (listener, address) = listener().await;
    let upgrade = |request: WebSocketUpgrade| async move {
        request.protocols(["echo"]).deflate(DeflateConfig::default()).max_message_size(100_000).on_upgrade(echo)
    };
    let routes = Router::new().route("/", routing::get(|| async { "hello" })).route("/ws", routing::any(upgrade));
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    client(&address).await
}

async fn client(address: &str) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (send, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    send
}

/// A stream that carries a WebSocket, if the status says so.
struct Client {
    status: StatusCode,
    headers: HeaderMap,
    sending: SendStream<Bytes>,
    receiving: RecvStream,
    bytes: BytesMut,
}

fn connect() -> Builder {
    Request::builder().method(Method::CONNECT).uri("https://localhost/ws").header("sec-websocket-version", "13")
}

fn with_protocol(request: Builder) -> Builder {
    request.extension(Protocol::from_static("websocket"))
}

/// Sends a request whose stream stays open.
async fn open(server: &SendRequest<Bytes>, request: Builder) -> Client {
    let mut ready = server.clone().ready().await.unwrap();
    while !ready.is_extended_connect_protocol_enabled() {
        tokio::task::yield_now().await;
    }
    let request = request.version(Version::HTTP_2).body(()).unwrap();
    let (response, sending) = ready.send_request(request, false).unwrap();
    let (head, receiving) = response.await.unwrap().into_parts();
    Client { status: head.status, headers: head.headers, sending, receiving, bytes: BytesMut::new() }
}

impl Client {
    /// Sends a frame with a mask of zeros.
    async fn send(&mut self, first: u8, payload: &[u8]) {
        let mut frame = BytesMut::from(&[first][..]);
        match payload.len() {
            len if len < 126 => frame.extend([0x80 | u8::try_from(len).unwrap()]),
            len => {
                frame.extend([0xff]);
                frame.extend((len as u64).to_be_bytes());
            }
        }
        frame.extend([0; 4]);
        frame.extend(payload);
        while !frame.is_empty() {
            self.sending.reserve_capacity(frame.len());
            let room = std::future::poll_fn(|cx| self.sending.poll_capacity(cx)).await.unwrap().unwrap();
            self.sending.send_data(frame.split_to(room.min(frame.len())).freeze(), false).unwrap();
        }
    }

    /// The next frame. `None` at the end of the stream.
    async fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            let (head, len) = match self.bytes.get(1).copied() {
                Some(126) => (4, self.bytes.get(2..4).map(|len| usize::from(u16::from_be_bytes([len[0], len[1]])))),
                Some(127) => {
                    (10, self.bytes.get(2..10).map(|len| u64::from_be_bytes(len.try_into().unwrap()) as usize))
                }
                Some(len) => (2, Some(len.into())),
                None => (0, None),
            };
            if let Some(len) = len.filter(|len| self.bytes.len() >= head + len) {
                let frame = self.bytes.split_to(head + len);
                return Some((frame[0], frame[head..].to_vec()));
            }
            let part = self.receiving.data().await?.unwrap();
            self.receiving.flow_control().release_capacity(part.len()).unwrap();
            self.bytes.extend_from_slice(&part);
        }
    }
}

#[tokio::test]
async fn axum_serves_websockets_beside_requests_on_one_connection() {
    let server = axum().await;
    let fields = connect().header("sec-websocket-protocol", "other, echo");
    let fields = fields.header("sec-websocket-extensions", "permessage-deflate").header("origin", "https://localhost");
    let mut first = open(&server, with_protocol(fields)).await;
    let mut second = open(&server, with_protocol(connect())).await;
    assert_eq!((first.status, second.status), (StatusCode::OK, StatusCode::OK));
    assert_eq!(first.headers["sec-websocket-protocol"], "echo");
    assert!(first.headers["sec-websocket-extensions"].to_str().unwrap().starts_with("permessage-deflate"));
    for name in ["sec-websocket-accept", "connection", "upgrade"] {
        assert!(!first.headers.contains_key(name), "{name}");
    }
    for payload in [&b"hello"[..], &[7; 90_000]] {
        for socket in [&mut second, &mut first] {
            socket.send(BINARY, payload).await;
        }
        assert!(second.next().await.unwrap() == (BINARY, payload.to_vec()), "{}", payload.len());
        // Long ones are compressed: the bit is RSV1.
        assert_eq!(first.next().await.unwrap().0, if payload.len() > 100 { BINARY | 0x40 } else { BINARY });
    }
    let mut get = open(&server, Request::get("https://localhost/")).await;
    assert_eq!((get.status, get.receiving.data().await.unwrap().unwrap().as_ref()), (StatusCode::OK, &b"hello"[..]));
    first.send(CLOSE, &1000_u16.to_be_bytes()).await;
    assert_eq!(first.next().await.unwrap(), (CLOSE, 1000_u16.to_be_bytes().to_vec()));
    assert_eq!(first.next().await, None, "the stream ends behind the close frame");
    second.send(BINARY, &[1; 100_001]).await;
    let (first, payload) = second.next().await.unwrap();
    assert_eq!((first, &payload[..2]), (CLOSE, &1009_u16.to_be_bytes()[..]));
}

#[tokio::test]
async fn axum_refuses_what_opens_no_websocket() {
    let server = axum().await;
    let status = async |request: Builder| open(&server, request).await.status.as_u16();
    assert_eq!(status(Request::get("https://localhost/ws").header("sec-websocket-version", "13")).await, 405);
    let other = connect().extension(Protocol::from_static("connect-udp"));
    assert_eq!(status(other).await, 501);
    assert_eq!(status(with_protocol(connect().header("origin", "https://other.example"))).await, 403);
    let old = open(&server, with_protocol(connect().header("sec-websocket-version", "8"))).await;
    assert_eq!((old.status.as_u16(), &old.headers["sec-websocket-version"]), (400, &"13".parse().unwrap()));
    // The connection goes on.
    let mut socket = open(&server, with_protocol(connect())).await;
    socket.send(TEXT, b"hello").await;
    assert_eq!(socket.next().await.unwrap(), (TEXT, b"hello".to_vec()));
}

async fn answer(
    mut request: Request<Incoming>,
    told: oneshot::Sender<bool>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    match tautline_tokio::hyper::upgrade(&mut request, Config::default()) {
        Ok((response, upgrade)) => {
            tokio::spawn(async move {
                let mut socket = upgrade.await.unwrap();
                socket.text("welcome").await.unwrap();
                let _ = told.send(socket.recv().await.map_or(true, |message| message.is_none()));
            });
            Ok(response.map(|()| Empty::new()))
        }
        Err(response) => Ok(response.map(|_| Empty::new())),
    }
}

#[tokio::test]
async fn hyper_hands_a_stream_over_and_its_reset_ends_the_socket() {
    let (listener, address) = listener().await;
    let (tell, told) = oneshot::channel();
    let tell = std::sync::Mutex::new(Some(tell));
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut served = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let service = service_fn(|request| answer(request, tell.lock().unwrap().take().unwrap()));
        let _ = served.enable_connect_protocol().serve_connection(TokioIo::new(stream), service).await;
    });
    let server = client(&address).await;
    let mut socket = open(&server, with_protocol(connect())).await;
    assert_eq!(socket.next().await.unwrap(), (TEXT, b"welcome".to_vec()));
    socket.sending.send_reset(Reason::CANCEL);
    assert!(told.await.unwrap(), "the task of the socket learns of the reset");
}
