//! The access log of streams.

use super::client::{Client, Plain};
use super::common::eventually;
use super::{serve, serve_within};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tautline::{AccessLog, Config, Roots, http2};

/// The lines of an access log: method, path, status, and the cause of a WebSocket's end.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    /// Has a server write them.
    fn of(config: &mut Config) -> Self {
        let lines = Self::default();
        let kept = lines.clone();
        config.access_log = Some(AccessLog::new(move |access| {
            let method = access.method.map_or("-", |method| method.as_str());
            let status = access.status.map_or(0, |status| status.as_u16());
            let cause = access.closed.map_or("", |closed| closed.cause.name());
            let line = format!("{method} {} {status} {cause}", access.path.unwrap_or("-"));
            kept.0.lock().unwrap().push(line.trim_end().to_owned());
        }));
        lines
    }

    fn count(&self, line: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|kept| *kept == line).count()
    }

    fn expect(&self, line: &str, count: usize) {
        eventually(&format!("{count} times {line:?} among {self:?}"), || self.count(line) >= count);
        assert_eq!(self.count(line), count, "{self:?}");
    }
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.lock().unwrap().fmt(f)
    }
}

/// The client reads nothing of what one stream has for it. The others have nothing for it.
#[test]
fn websockets_whose_connection_misses_a_deadline_end_for_that() {
    let mut config = Config::default();
    config.deadlines.send = Duration::from_secs(1);
    let lines = Lines::of(&mut config);
    let (handle, authority) = serve(config);
    let mut limits = http2::Limits::default();
    (limits.stream_window, limits.connection_window) = (64 << 20, 64 << 20);
    let roots = Roots::Pem(authority.certificate().into());
    let mut client = Client::within(&handle.addresses()[0], roots, limits);
    for _ in 0..2 {
        let socket = client.websocket("/chat");
        assert_eq!(client.opened(socket), 200);
    }
    client.get("/huge");
    lines.expect("GET /chat 101 timeout", 2);
    assert_eq!(handle.shards()[0].outcomes().causes().find(|(cause, _)| *cause == "io"), Some(("io", 0)));
}

#[test]
fn websockets_whose_connection_breaks_a_rule_end_for_that() {
    let mut config = Config::default();
    let lines = Lines::of(&mut config);
    let (handle, authority) = serve(config);
    let mut client = Client::new(&handle.addresses()[0], &authority);
    let socket = client.websocket("/chat");
    assert_eq!(client.opened(socket), 200);
    // An increment by which a window overflows.
    client.go_away_for(&[0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff]);
    lines.expect("GET /chat 101 http2", 1);
}

#[test]
fn websockets_of_a_client_that_hangs_up_end_as_with_http1() {
    let mut config = Config::default();
    let lines = Lines::of(&mut config);
    let (handle, authority) = serve(config);
    let address = &handle.addresses()[0];
    let (plain, mut client) = (Plain::new(address, &authority), Client::new(address, &authority));
    let socket = client.websocket("/chat");
    assert_eq!(client.opened(socket), 200);
    plain.hang_up();
    client.hang_up();
    lines.expect("GET /chat 101 truncated", 2);
}

#[test]
fn websockets_that_do_not_close_within_a_drain_end_for_that() {
    let mut config = Config::default();
    let lines = Lines::of(&mut config);
    let (handle, authority) = serve(config);
    let address = &handle.addresses()[0];
    let (plain, mut client) = (Plain::new(address, &authority), Client::new(address, &authority));
    let socket = client.websocket("/chat");
    assert_eq!(client.opened(socket), 200);
    handle.drain(tautline::CloseCode::SERVICE_RESTART, "", Duration::from_millis(300));
    lines.expect("GET /chat 101 stopped", 2);
    drop(plain);
}

/// Also those that HTTP/2 itself refuses, before they are connections to the handler.
#[test]
fn refused_requests_are_entries() {
    let mut config = Config::default();
    let lines = Lines::of(&mut config);
    let (handle, authority) = serve(config.clone());
    let mut client = Client::new(&handle.addresses()[0], &authority);
    let foreign = client.connect("/tunnel?secret", "connect-udp");
    assert_eq!(client.opened(foreign), 501);
    lines.expect("CONNECT /tunnel 501", 1);
    // The handler answers with a page.
    let page = client.websocket("/elsewhere");
    assert_eq!(client.opened(page), 501);
    lines.expect("GET /elsewhere 501", 1);
    let mut limits = http2::Limits::default();
    limits.field_count = 3;
    let (handle, authority) = serve_within(config, limits);
    let mut client = Client::new(&handle.addresses()[0], &authority);
    let large = client.get("/");
    assert_eq!(client.opened(large), 431);
    lines.expect("- - 431", 1);
}
