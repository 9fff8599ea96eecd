//! Loads over HTTP/2 of a server in this process.

use crate::load::{Echo, Get, Handshakes, Idle, Server};
use crate::{Content, Span};
use std::time::Duration;
use tautline::http::Response;
use tautline::{Address, ClientConfig, Conn, Handler, Message, Outgoing, Reply, Request, Roots, Target};
use tautline::{ServerConfig, ServerHandle, http2};
use tautline_dev_cert::{Authority, Leaf};

/// Echoes messages, and has a page.
struct Site;

impl Handler for Site {
    type State = ();

    fn on_request(&mut self, request: &Request<'_>) -> Reply {
        if request.is_upgrade { Reply::upgrade() } else { Reply::Respond(Response::new(vec![b'p'; 1024])) }
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.send(Outgoing::from(&message));
    }
}

/// A server with these limits, and `streams` on each connection of the load.
fn serve(limits: Option<http2::Limits>, streams: usize) -> (ServerHandle, Server) {
    let authority = Authority::new("test").unwrap();
    let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
    let server = tautline::Server::new(ServerConfig::new([certificate]));
    let server = limits.into_iter().fold(server, tautline::Server::http2);
    let running = server.listen("127.0.0.1:0".parse().unwrap()).start(|_| Site).unwrap();
    let Address::Tcp(address) = &running.addresses()[0] else { panic!("not TCP") };
    let mut server = Server::new(&format!("wss://localhost:{}/", address.port())).unwrap();
    server.tls = ClientConfig::default().with_roots(Roots::Pem(authority.certificate().to_owned().into_bytes()));
    server.pid = Some(std::process::id());
    server.http2 = Some(streams);
    (running, server)
}

const SPAN: Span = Span { warmup: Duration::from_millis(20), duration: Duration::from_millis(500) };

fn echo(server: Server, connections: usize, size: usize) -> Echo {
    Echo { server, connections, size, content: Content::Bytes, pipeline: 2, rate: None, span: SPAN }
}

#[test]
fn echoes_run_on_streams_that_share_connections() {
    let (running, server) = serve(Some(http2::Limits::default()), 5);
    for size in [64, 200_000] {
        let measured = echo(server.clone(), 12, size).run(&mut |_| {}).unwrap();
        assert!(measured.count > 0 && measured.latencies.quantile_us(0.5) > 0.0, "{} echoes", measured.count);
    }
    let counters = running.shards()[0].counters();
    assert_eq!((counters.carriers, counters.carriers_failed, counters.opened), (2 * 3, 0, 2 * 12));
}

#[test]
fn pages_are_loaded_in_streams_of_one_connection() {
    let (running, mut server) = serve(Some(http2::Limits::default()), 32);
    let address = server.target.address.take();
    server.target = Target::raw(&server.target.uri.to_string().replace("wss", "https")).unwrap();
    server.target.address = address;
    let body = vec![b'p'; 1024];
    let measured = Get { server, connections: 32, path: "/", body, span: SPAN }.run().unwrap();
    assert!(measured.count > 32, "{} pages", measured.count);
    assert_eq!(running.shards()[0].counters().carriers, 1);
}

#[test]
fn connections_are_held_opened_and_closed() {
    let (running, server) = serve(Some(http2::Limits::default()), 1);
    let idle = Idle { server: server.clone(), connections: 10, duration: Duration::ZERO, echo: true };
    assert_eq!(idle.run(&mut |_| {}).unwrap().connections, 10);
    let handshakes = Handshakes { server, at_once: 2, resumed: false, may_refuse: false, rate: None, span: SPAN };
    assert!(handshakes.run(&mut |_| {}).unwrap().measured.count > 0);
    assert_eq!(running.shards()[0].counters().carriers_failed, 0);
}

#[test]
fn a_server_without_http2_is_named_as_the_reason() {
    let (_running, server) = serve(None, 1);
    let error = echo(server, 1, 64).run(&mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("did not choose h2 by ALPN"), "{error}");
}

#[test]
fn a_server_without_websockets_on_streams_is_named_as_the_reason() {
    let mut limits = http2::Limits::default();
    limits.websockets = false;
    let (_running, server) = serve(Some(limits), 1);
    let error = echo(server, 1, 64).run(&mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("ENABLE_CONNECT_PROTOCOL"), "{error}");
}

#[test]
fn a_limit_of_streams_is_named_as_the_reason() {
    let mut limits = http2::Limits::default();
    limits.streams = 3;
    let (_running, server) = serve(Some(limits), 5);
    let error = echo(server, 5, 64).run(&mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("takes 3 streams"), "{error}");
}
