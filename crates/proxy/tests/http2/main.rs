//! Clients with HTTP/2 in front of servers with HTTP/1.1.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

mod client;
#[path = "../kit/hosts.rs"]
mod hosts;
#[path = "../kit/mod.rs"]
mod kit;

use client::{Client, WebSocket};
use h2::Reason;
use hosts::{Hosts, LAX, OPEN, RULES, STRICT, names_ada};
use kit::wire::{BINARY, CLOSE, End, TEXT, closing};
use kit::{LONG, body_of, head, parsed, raw_config, reader, scripted, text};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tautline::http::{Request, Response};
use tautline::layers::tls::{Capabilities, EngineKind, Error, mixed};
use tautline::{
    Certificate, ClientConfig, CloseCode, Config, Conn, DeflateConfig, Fused, Handler, Message, Outgoing, Reply, Roots,
    Server, ServerConfig, ServerHandle, Tls, http2,
};
use tautline_dev_cert::{Authority, Leaf};
use tautline_proxy::edge::Edge;
use tautline_proxy::sources::Sources;
use tautline_proxy::tally::Figures;
use tautline_proxy::{CertificateNames, CertificatePaths, Live};
use tokio::task::spawn_blocking;

/// TLS for clients, and TLS towards servers that trusts the authority with this certificate.
#[derive(Clone, Copy, Debug)]
struct Both(&'static str);

impl EngineKind for Both {
    type Engine = mixed::Engine<<Fused as EngineKind>::Engine>;

    fn capabilities(self) -> &'static Capabilities {
        Fused.capabilities()
    }

    fn server(self, config: &ServerConfig) -> Result<Self::Engine, Error> {
        let client = ClientConfig::default().with_roots(Roots::Pem(self.0.into()));
        Ok(mixed::Engine::new(Fused.server(config)?, Fused.client(&client)?))
    }

    fn client(self, _: &ClientConfig) -> Result<Self::Engine, Error> {
        Err(Error::ApiMisuse("it is for servers"))
    }
}

/// A proxy with HTTP/2, and the certificate of its authority.
struct Proxy {
    handle: ServerHandle,
    authority: Authority,
}

impl Proxy {
    fn new(text: &str) -> Self {
        let authority = Authority::new("test").unwrap();
        let certificates = vec![authority.issue(&Leaf::new(&["localhost"])).unwrap()];
        Self::with(authority, certificates, raw_config(), parsed(text))
    }

    fn with(authority: Authority, certificates: Vec<Certificate>, config: Config, live: Live) -> Self {
        let engine = Both(authority.certificate().to_owned().leak());
        let server = Server::new(Tls { engine, config: ServerConfig::new(certificates) }).config(config);
        let server = server.http2(http2::Limits::default()).listen("127.0.0.1:0".parse().unwrap());
        let handle = server.start(move |_| Edge::new(live.clone())).unwrap();
        Self { handle, authority }
    }

    async fn client(&self) -> Client {
        Client::of(&self.handle, self.authority.certificate(), "localhost").await
    }
}

/// Answers with the method, the path and the body, and echoes messages.
struct Site(Arc<AtomicUsize>);

impl Handler for Site {
    type State = ();

    fn on_request(&mut self, request: &tautline::Request<'_>) -> Reply<()> {
        if request.is_upgrade {
            return Reply::upgrade();
        }
        self.0.fetch_add(1, Ordering::SeqCst);
        let head = format!("{} {} ", request.http.method(), request.http.uri());
        Reply::Respond(Response::new([head.as_bytes(), request.body].concat()))
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.send(Outgoing::from(&message));
    }
}

/// A server without TLS, its address and the number of its requests.
fn site() -> (ServerHandle, String, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let mut config = Config::default();
    config.upgrade.subprotocols = vec!["chat".to_owned()];
    config.upgrade.deflate = Some(DeflateConfig::default());
    let server = Server::plain().config(config).listen("127.0.0.1:0".parse().unwrap());
    let server = server.start(move |_| Site(counter.clone())).unwrap();
    let address = format!("http://{}", server.addresses()[0]);
    (server, address, count)
}

/// A server whose heads come to the test, each with its body. It answers with the lines.
fn told(lines: &'static str) -> (String, Receiver<(String, String)>) {
    let (sender, heads) = channel();
    let (address, _) = scripted(move |mut stream| {
        let mut reader = reader(&stream);
        while let Some(head) = head(&mut reader) {
            let body = body_of(&head, &mut reader);
            let _ = sender.send((head, body));
            stream.write_all(lines.as_bytes()).unwrap();
        }
    });
    (address, heads)
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_share_a_connection() {
    let (_server, address, count) = site();
    let proxy = Proxy::new(&text(&address, ""));
    let client = proxy.client().await;
    let ask = async |number: u32| {
        let answer = client.get(&format!("https://localhost/{number}?q")).await;
        assert_eq!((answer.status, answer.body), (200, format!("GET /{number}?q ")));
    };
    for number in 0..5 {
        tokio::join!(ask(4 * number), ask(4 * number + 1), ask(4 * number + 2), ask(4 * number + 3));
    }
    let long = "0123456789".repeat(6_000);
    // Once with a length, and once without, which are chunks for the server.
    for length in [Some(long.len()), None] {
        let mut request = Request::post("https://localhost/body");
        if let Some(length) = length {
            request = request.header("content-length", length);
        }
        let answer = client.ask(request, Some(&long)).await.unwrap();
        assert!(answer.status == 200 && answer.body == format!("POST /body {long}"), "{length:?}");
    }
    let head = client.ask(Request::head("https://localhost/"), None).await.unwrap();
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(count.load(Ordering::SeqCst), 23);
    let counters = proxy.handle.shards()[0].counters();
    assert_eq!((counters.carriers, counters.carriers_failed), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_gets_http1_as_of_any_other_client() {
    let answer =
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nX-Own: 1\r\n\r\nok";
    let (address, heads) = told(answer);
    let proxy = Proxy::new(&text(&address, ""));
    let client = proxy.client().await;
    let request = Request::get("https://localhost/a?b").header("cookie", "a=b").header("cookie", "c=d");
    let request =
        request.header("x-forwarded-for", "10.0.0.1").header("te", "trailers").header("expect", "100-continue");
    let answer = client.ask(request, None).await.unwrap();
    assert_eq!((answer.status, answer.body.as_str(), &answer.headers["x-own"]), (200, "ok", &"1".parse().unwrap()));
    for name in ["connection", "keep-alive", "transfer-encoding", "x-hop"] {
        assert!(!answer.headers.contains_key(name), "{name}");
    }
    let (head, _) = heads.recv_timeout(LONG).unwrap();
    assert!(head.starts_with("get /a?b http/1.1\r\n"), "{head}");
    for field in ["host: localhost", "cookie: a=b; c=d", "x-forwarded-for: 127.0.0.1", "x-forwarded-proto: https"] {
        assert_eq!(head.matches(&format!("\r\n{field}\r\n")).count(), 1, "{field}: {head}");
    }
    for field in ["connection: close", "te:", "expect:", "10.0.0.1", "transfer-encoding"] {
        assert!(!head.contains(field), "{field}: {head}");
    }
    // Connections to servers are kept, though streams are not.
    client.get("https://localhost/again").await;
    let body = client.ask(Request::post("https://localhost/c"), Some("abc")).await.unwrap();
    assert_eq!(body.status, 200);
    let _ = heads.recv_timeout(LONG).unwrap();
    let (head, body) = heads.recv_timeout(LONG).unwrap();
    assert!(head.contains("transfer-encoding: chunked\r\n") && body == "abc", "{head} {body:?}");
}

/// Sends a message up and down. The server's end blocks, on a thread of its own.
async fn pass_both_ways(socket: &mut WebSocket, mut end: End, payload: &[u8]) -> End {
    let up = spawn_blocking(move || (end.next(), end));
    socket.send(BINARY, payload).await;
    let (got, mut end) = up.await.unwrap();
    assert!(got == (BINARY, payload.to_vec()), "up, {} bytes", payload.len());
    let sent = payload.to_vec();
    let down = spawn_blocking(move || {
        end.send(TEXT, &sent);
        end
    });
    assert!(socket.next().await.unwrap() == (TEXT, payload.to_vec()), "down, {} bytes", payload.len());
    down.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bytes_of_a_websocket_pass() {
    let (server, ends) = kit::wire::server("Sec-WebSocket-Protocol: chat\r\nX-Own: 1\r\n");
    let proxy = Proxy::new(&text(&server, ""));
    let client = proxy.client().await;
    let fields = [("sec-websocket-protocol", "chat"), ("sec-websocket-extensions", "permessage-deflate")];
    let mut first = client.open(&fields).await;
    assert_eq!(first.status, 200);
    for (name, value) in [("sec-websocket-protocol", "chat"), ("x-own", "1")] {
        assert_eq!(first.headers[name], value);
    }
    for name in ["sec-websocket-accept", "connection", "upgrade"] {
        assert!(!first.headers.contains_key(name), "{name}");
    }
    let mut of_first = ends.recv_timeout(LONG).unwrap();
    for line in [
        "get /ws http/1.1",
        "host: localhost",
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-protocol: chat",
        "sec-websocket-extensions: permessage-deflate",
        "x-forwarded-proto: https",
    ] {
        assert!(of_first.head.lines().any(|one| one == line), "{line}: {}", of_first.head);
    }
    assert!(of_first.head.contains("\r\nsec-websocket-key: "));
    let mut second = client.open(&[]).await;
    let mut of_second = ends.recv_timeout(LONG).unwrap();
    let long = vec![7; 300_000];
    for payload in [b"hello".to_vec(), long] {
        of_first = pass_both_ways(&mut first, of_first, &payload).await;
        of_second = pass_both_ways(&mut second, of_second, &payload).await;
    }
    // The close frames of one pass, and the other lives on.
    first.send(CLOSE, &closing(1000, "done")).await;
    assert_eq!(of_first.closed(), (1000, "done".to_owned()));
    of_first.close(1000, "done");
    drop(of_first);
    assert_eq!(first.next().await.unwrap().0, CLOSE);
    assert_eq!(first.next().await, None);
    second.send(TEXT, b"still").await;
    assert_eq!(of_second.next(), (TEXT, b"still".to_vec()));
    // A reset of the stream is one for the server, and the connection goes on.
    second.reset();
    of_second.ended();
    let mut third = client.open(&[]).await;
    let of_third = ends.recv_timeout(LONG).unwrap();
    of_third.reset();
    assert!(third.was_reset().await.is_some(), "a broken connection to a server is no orderly end");
    assert_eq!(client.open(&[]).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_nothing_stops_its_server_and_no_other_stream() {
    let (server, ends) = kit::wire::server("");
    let proxy = Proxy::new(&text(&server, ""));
    let client = proxy.client().await;
    let _slow = client.open(&[]).await;
    let mut of_slow = ends.recv_timeout(LONG).unwrap();
    of_slow.stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let part = vec![7; 64 << 10];
    let mut sent = 0;
    while of_slow.stream.write_all(&kit::wire::frame(false, BINARY, &part)).is_ok() {
        sent += part.len();
        assert!(sent < 64 << 20, "the server is read on");
    }
    let counters = proxy.handle.shards()[0].counters();
    assert!(counters.memory_sending < 1 << 20, "{} bytes wait in the loop", counters.memory_sending);
    let mut other = client.open(&[]).await;
    let mut of_other = ends.recv_timeout(LONG).unwrap();
    of_other.send(TEXT, b"hello");
    assert_eq!(other.next().await.unwrap(), (TEXT, b"hello".to_vec()));
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_route_pass_by_its_rules() {
    let (_server, address, _) = site();
    let live = parsed(&kit::messages(&address, "max-size = \"16KiB\", rate = 5, deflate = true"));
    let authority = Authority::new("test").unwrap();
    let certificates = vec![authority.issue(&Leaf::new(&["localhost"])).unwrap()];
    let proxy = Proxy::with(authority, certificates, raw_config(), live.clone());
    let client = proxy.client().await;
    let mut socket =
        client.open(&[("sec-websocket-extensions", "permessage-deflate"), ("sec-websocket-protocol", "chat")]).await;
    assert_eq!((socket.status.as_u16(), &socket.headers["sec-websocket-protocol"]), (200, &"chat".parse().unwrap()));
    assert!(socket.headers["sec-websocket-extensions"].to_str().unwrap().starts_with("permessage-deflate"));
    assert!(!socket.headers.contains_key("sec-websocket-accept"));
    let mut plain = client.open(&[]).await;
    assert!(!plain.headers.contains_key("sec-websocket-extensions"));
    for payload in [&b"hello"[..], &[7; 16_000]] {
        plain.send(BINARY, payload).await;
        assert_eq!(plain.next().await.unwrap(), (BINARY, payload.to_vec()));
    }
    plain.send(BINARY, &[7; 16_385]).await;
    let (first, payload) = plain.next().await.unwrap();
    assert_eq!((first, &payload[..2]), (CLOSE, &1009_u16.to_be_bytes()[..]));
    for _ in 0..6 {
        socket.send(TEXT, b"x").await;
    }
    let mut code = None;
    while let Some((first, payload)) = socket.next().await {
        if first == CLOSE {
            code = payload.first_chunk().copied().map(u16::from_be_bytes);
            break;
        }
    }
    assert_eq!(code, Some(1008));
    let figures = Figures::of(&live.plan(), Instant::now());
    assert_eq!(figures.routes[1].statuses[1], 2, "both were opened");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_tls_gets_requests_and_websockets() {
    let authority = Authority::new("test").unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let tls = Tls { engine: Fused, config: ServerConfig::new([authority.issue(&Leaf::new(&["localhost"])).unwrap()]) };
    let server = Server::new(tls).listen("127.0.0.1:0".parse().unwrap());
    let server = server.start(move |_| Site(counter.clone())).unwrap();
    let port = server.addresses()[0].to_string().rsplit(':').next().unwrap().to_owned();
    let live = parsed(&text(&format!("https://localhost:{port}"), ""));
    let certificates = vec![authority.issue(&Leaf::new(&["localhost"])).unwrap()];
    let proxy = Proxy::with(authority, certificates, raw_config(), live);
    let client = proxy.client().await;
    assert_eq!(client.get("https://localhost/secret").await.body, "GET /secret ");
    let mut socket = client.open(&[]).await;
    socket.send(TEXT, b"hello").await;
    assert_eq!(socket.next().await.unwrap(), (TEXT, b"hello".to_vec()));
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_of_another_certificate_is_misdirected() {
    let (_server, address, count) = site();
    let authority = Authority::new("test").unwrap();
    let folder = std::env::temp_dir().join(format!("taut-proxy-http2-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let names = [&["a.example", "www.a.example"][..], &["b.example"]];
    let certificates: Vec<_> = names.iter().map(|names| authority.issue(&Leaf::new(names)).unwrap()).collect();
    let paths = certificates.iter().enumerate().map(|(number, certificate)| {
        let cert = folder.join(format!("{number}.pem"));
        std::fs::write(&cert, &certificate.chain).unwrap();
        CertificatePaths { key: cert.clone(), cert, clients: None }
    });
    let text = text(&address, "");
    let mut plan = tautline_proxy::config::parse(&folder.join("taut.toml"), &text, None, Instant::now()).unwrap();
    plan.names = CertificateNames::read(&paths.collect::<Vec<_>>(), |path| {
        std::fs::read(path).map_err(|error| error.to_string())
    })
    .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let proxy = Proxy::with(authority, certificates, raw_config(), Live::new(plan));
    let client = Client::of(&proxy.handle, proxy.authority.certificate(), "a.example").await;
    assert_eq!(client.get("https://a.example/").await.status, 200);
    assert_eq!(client.get("https://www.a.example/").await.status, 200);
    assert_eq!(client.get("https://b.example/").await.status, 421);
    // The connection goes on.
    assert_eq!(client.get("https://a.example/").await.status, 200);
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

/// Requests of several hosts share a connection only if their rules about clients are one.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_of_another_rule_is_misdirected() {
    let hosts = Hosts::new("http2-rules");
    let proxy = hosts.start(RULES);
    let (root, own) = (hosts.authority.certificate(), hosts.own());
    for name in [OPEN, STRICT, LAX] {
        let client = Client::showing(&proxy.0, root, name, Some(&own)).await;
        for host in [OPEN, STRICT, LAX] {
            let answer = client.get(&format!("https://{host}/")).await;
            assert_eq!(answer.status, if host == name { 200 } else { 421 }, "{name} {host}");
            assert_eq!(names_ada(&answer.body), host == name && host != OPEN, "{name} {host}");
        }
        // The connection goes on for its own host.
        assert_eq!(client.get(&format!("https://{name}/")).await.status, 200);
    }
    let lax = Client::showing(&proxy.0, root, LAX, None).await;
    assert!(!names_ada(&lax.get("https://lax.example/").await.body));
    // A reload counts for streams of live connections, too.
    let open = Client::of(&proxy.0, root, OPEN).await;
    assert_eq!(open.get("https://open.example/").await.status, 200);
    hosts.reload(&proxy, [RULES[2], RULES[1], ""]);
    assert_eq!(open.get("https://open.example/").await.status, 421);
    assert_eq!(lax.get("https://lax.example/").await.status, 421);
    let open = Client::showing(&proxy.0, root, OPEN, Some(&own)).await;
    assert!(names_ada(&open.get("https://open.example/").await.body));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_fails_ends_a_stream_and_not_its_neighbours() {
    let (short, _) = told("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab");
    let (_server, address, _) = site();
    let text = format!(
        "[[route]]\npath = \"/short\"\nto = \"short\"\n[[route]]\nto = \"app\"\n[[route]]\npath = \"/none\"\nto = \"none\"\n\
         [backend.short]\nservers = [{short:?}]\nbody-time = \"300ms\"\n[backend.app]\nservers = [{address:?}]\n\
         [backend.none]\nservers = [\"http://127.0.0.1:1\"]\n"
    );
    let proxy = Proxy::new(&text);
    let client = proxy.client().await;
    let mut socket = client.open(&[]).await;
    let error = client.ask(Request::get("https://localhost/short"), None).await.err().expect("it was cut off");
    assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
    assert_eq!(client.get("https://localhost/none").await.status, 502);
    assert_eq!(client.get("https://localhost/../x").await.status, 400);
    socket.send(TEXT, b"hello").await;
    assert_eq!(socket.next().await.unwrap(), (TEXT, b"hello".to_vec()));
    // A WebSocket that the server refuses has its answer.
    let refused = Request::connect("https://localhost/none");
    let refused = refused.extension(h2::ext::Protocol::from_static("websocket")).header("sec-websocket-version", "13");
    assert_eq!(client.ask(refused, Some("")).await.unwrap().status, 502);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_has_answers_finish_and_closes_messages_with_1012() {
    let (_server, address, _) = site();
    let proxy = Proxy::new(&kit::messages(&address, ""));
    let client = proxy.client().await;
    let mut socket = client.open(&[]).await;
    socket.send(TEXT, b"hello").await;
    assert_eq!(socket.next().await.unwrap(), (TEXT, b"hello".to_vec()));
    proxy.handle.drain(CloseCode::SERVICE_RESTART, "", Duration::from_secs(20));
    let (first, payload) = socket.next().await.unwrap();
    assert_eq!((first, &payload[..2]), (CLOSE, &1012_u16.to_be_bytes()[..]));
    socket.send(CLOSE, &closing(1012, "")).await;
    assert_eq!(socket.next().await, None);
    let refused = client.ask(Request::get("https://localhost/"), None).await.err().expect("no stream begins any more");
    assert!(refused.is_go_away() || refused.is_io(), "{refused}");
}

/// Each stream counts for the bounds of connections, and for no bound of handshakes.
#[tokio::test(flavor = "multi_thread")]
async fn streams_beyond_the_connections_of_their_host_are_refused() {
    let (_server, address, _) = site();
    let limits = "connections-of-host = 10\nhandshakes-of-host = { per-second = 1, burst = 2 }";
    let live = parsed(&format!("[limits]\n{limits}\n{}", text(&address, "")));
    let mut config = raw_config();
    config.gate = Some(Arc::new(Sources::new(live.clone())));
    let authority = Authority::new("test").unwrap();
    let certificates = vec![authority.issue(&Leaf::new(&["localhost"])).unwrap()];
    let proxy = Proxy::with(authority, certificates, config, live.clone());
    let client = proxy.client().await;
    let (mut sockets, mut refused) = (Vec::new(), 0);
    for _ in 0..20 {
        match client.try_open(&[]).await {
            Ok(socket) => sockets.push(socket),
            Err(error) => {
                assert_eq!(error.reason(), Some(Reason::REFUSED_STREAM));
                refused += 1;
            }
        }
    }
    assert_eq!((sockets.len(), refused), (9, 11), "the connection of HTTP/2 is one of the ten");
    assert_eq!(live.plan().caps[0].refused(), 11);
    assert_eq!(proxy.handle.shards()[0].counters().connections_refused, 11);
    let mut last = sockets.pop().unwrap();
    last.send(TEXT, b"hello").await;
    assert_eq!(last.next().await.unwrap(), (TEXT, b"hello".to_vec()));
    // A place that is free again can be used.
    last.reset();
    let end = Instant::now() + LONG;
    while client.try_open(&[]).await.is_err() {
        assert!(Instant::now() < end);
    }
}

/// Certificates of a reload are offered with HTTP/2, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_reload_of_certificates_keeps_http2() {
    let (_server, address, _) = site();
    let proxy = Proxy::new(&text(&address, ""));
    let old = proxy.client().await;
    let authority = Authority::new("new").unwrap();
    let config = ServerConfig::new([authority.issue(&Leaf::new(&["localhost"])).unwrap()]);
    proxy.handle.reloader().reload(&config).unwrap();
    let new = Client::of(&proxy.handle, authority.certificate(), "localhost").await;
    for client in [old, new] {
        assert_eq!(client.get("https://localhost/x").await.body, "GET /x ");
    }
}
