//! Limits of requests and connections by source, between real sockets.

use crate::kit;
use crate::kit::{Client, length, of_text};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use tautline::{Config, Prefixes, ServerHandle};
use tautline_proxy::sources::Sources;

#[test]
fn requests_beyond_the_rate_of_their_source_get_429_and_the_connection_goes_on() {
    const COUNT: usize = 40;
    let proxy = of_text(
        "[limits]\nrequests = { per-second = 1, burst = 2 }\n[[route]]\nanswer = { status = 200, body = \"well\" }\n",
    );
    let mut client = Client::of(&proxy);
    // All of them come in one read.
    client.ask(&"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(COUNT));
    let mut refused = 0;
    for number in 0..COUNT {
        let head = client.head();
        let _ = client.exact(length(&head).unwrap());
        if head.starts_with("http/1.1 429 ") {
            assert!(head.contains("retry-after: 1\r\n"), "{head}");
            refused += 1;
        } else {
            assert!(head.starts_with("http/1.1 200 "), "{head}");
        }
        assert!(number > 1 || refused == 0, "{number}: {head}");
    }
    assert!(refused > COUNT / 2, "{refused} of {COUNT}");
}

/// A proxy that answers by itself, with these limits.
fn gated(limits: &str, change: impl FnOnce(&mut Config)) -> ServerHandle {
    let live = kit::parsed(&format!("[limits]\n{limits}\n[[route]]\nanswer = {{ status = 200, body = \"well\" }}\n"));
    let mut config = kit::raw_config();
    config.gate = Some(Arc::new(Sources::new(live.clone())));
    change(&mut config);
    kit::start_with(config, live)
}

/// A connection that begins with these bytes, if a request on it is answered.
fn answered(proxy: &ServerHandle, begin: &str) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(proxy.addresses()[0].to_string()).unwrap();
    stream.set_read_timeout(Some(kit::LONG)).unwrap();
    // The proxy may have reset it already.
    let _ = write!(stream, "{begin}GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut start = [0; 12];
    let is_answered = stream.read_exact(&mut start).is_ok();
    assert!(!is_answered || start == *b"HTTP/1.1 200", "{start:?}");
    is_answered.then_some(stream)
}

#[test]
fn connections_beyond_those_of_their_host_are_reset_until_one_ends() {
    let proxy = gated("connections-of-host = 2", |_| {});
    let (one, two) = (answered(&proxy, ""), answered(&proxy, ""));
    assert!(one.is_some() && two.is_some() && answered(&proxy, "").is_none());
    drop(one);
    let end = std::time::Instant::now() + kit::LONG;
    let again = loop {
        let again = answered(&proxy, "");
        if again.is_some() || std::time::Instant::now() > end {
            break again;
        }
    };
    assert!(again.is_some() && answered(&proxy, "").is_none());
    assert!(proxy.shards()[0].counters().connections_refused > 1);
}

#[test]
fn the_client_of_a_header_counts_and_not_its_proxy() {
    let from = |config: &mut Config| config.front.proxy_protocol_from = Prefixes::list(&["127.0.0.1"]).unwrap();
    let proxy = gated("connections-of-host = 1\nconnections-of-network = 2", from);
    let client = |address: &str| answered(&proxy, &format!("PROXY TCP4 {address} 198.51.100.1 4711 443\r\n"));
    let one = client("192.0.2.7");
    assert!(one.is_some() && client("192.0.2.7").is_none());
    let two = client("192.0.2.8");
    assert!(two.is_some() && client("192.0.2.9").is_none(), "the network is full");
    assert!(client("203.0.113.1").is_some());
}

#[test]
fn a_host_that_connects_too_often_is_reset() {
    let proxy = gated("handshakes-of-host = { per-second = 1, burst = 3 }", |_| {});
    let count = (0..20).filter(|_| answered(&proxy, "").is_some()).count();
    assert!((3..20).contains(&count), "{count}");
}
