//! The opening handshake, and plain HTTP requests.

use crate::common::frame::{TEXT, masked};
use crate::common::peer::UPGRADE;
use crate::common::server::config;
use crate::common::{App, Over, Started, both, logs, serve};
use http::header::{HeaderName, HeaderValue, SET_COOKIE};
use http::{Method, Response, StatusCode};
use std::time::Duration;
use tautline::{DeflateConfig, HeadLimits, Origins, Reply, Upgrade};

/// A small site: a page, an empty response, a path for authorised clients, and WebSockets.
fn site() -> App {
    App::default().on_request(|request| {
        let headers = request.http.headers();
        match (request.http.method(), request.http.uri().path(), request.is_upgrade) {
            (_, "/secret", true) if headers.get("authorization").is_none_or(|value| value != "Bearer let-me-in") => {
                let mut refusal = Response::new(b"who are you?".to_vec());
                *refusal.status_mut() = StatusCode::UNAUTHORIZED;
                refusal.headers_mut().insert("www-authenticate", HeaderValue::from_static("Bearer"));
                Reply::Respond(refusal)
            }
            (_, "/named", true) => {
                let upgrade = Upgrade::new().with_header(SET_COOKIE, HeaderValue::from_static("a=1"));
                let upgrade = upgrade.with_header(SET_COOKIE, HeaderValue::from_static("b=2"));
                upgrade.with_header(HeaderName::from_static("x-shard"), HeaderValue::from_static("0")).into()
            }
            (_, _, true) | (_, "/only-sockets", false) => Reply::upgrade(),
            (&Method::GET | &Method::HEAD, "/page", false) => {
                let query = request.http.uri().query().unwrap_or("");
                Reply::Respond(Response::new(format!("page {query}").into_bytes()))
            }
            (_, "/nothing", false) => Reply::status(StatusCode::NO_CONTENT),
            (&Method::POST, _, false) => Reply::status(StatusCode::METHOD_NOT_ALLOWED),
            _ => Reply::status(StatusCode::NOT_FOUND),
        }
    })
}

/// Sends a request with this first line and these further headers, and returns head and body of the answer.
fn ask(server: &Started, line: &str, headers: &str) -> (String, String) {
    let mut peer = server.secured();
    peer.send(format!("{line}\r\nHost: localhost\r\n{headers}\r\n").as_bytes());
    let (head, body) = if line.starts_with("HEAD") { (peer.head(), Vec::new()) } else { peer.response() };
    (head, String::from_utf8(body).unwrap())
}

/// Sends an upgrade request with the headers `more` and without the header `leave_out`, and returns the answer's head.
fn upgrade(server: &Started, path: &str, leave_out: &str, more: &str) -> String {
    let request = UPGRADE.replace("/chat", path);
    let lines: Vec<_> =
        request.trim_end().lines().filter(|line| leave_out.is_empty() || !line.starts_with(leave_out)).collect();
    let mut peer = server.secured();
    peer.send(format!("{}\r\n{more}\r\n", lines.join("\r\n")).as_bytes());
    peer.response().0
}

#[test]
fn routes_answer_by_method_and_path() {
    both(|over| {
        let server = serve(over, config(), site());
        for (line, status, body) in [
            ("GET /page?x=1 HTTP/1.1", "200 OK", "page x=1"),
            ("GET http://localhost/page HTTP/1.1", "200 OK", "page "),
            ("HEAD /page HTTP/1.1", "200 OK", ""),
            ("GET /nothing HTTP/1.1", "204 No Content", ""),
            ("GET /missing HTTP/1.1", "404 Not Found", "404 Not Found\n"),
            ("POST /page HTTP/1.1", "405 Method Not Allowed", "405 Method Not Allowed\n"),
        ] {
            let (head, got) = ask(&server, line, "");
            assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{line}: {head}");
            assert!(!head.contains("Connection: close"), "{head}");
            assert_eq!(got, body, "{line}");
        }
        let (head, _) = ask(&server, "HEAD /page HTTP/1.1", "");
        assert!(head.contains("Content-Length: 5\r\n"), "{head}");
        server.survives();
    });
}

#[test]
fn connections_are_kept_alive_if_both_ends_want_it() {
    both(|over| {
        let server = serve(over, config(), site());
        let mut peer = server.secured();
        for i in 0..20 {
            peer.send(format!("GET /page?{i} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
            assert_eq!(peer.response().1, format!("page {i}").into_bytes());
        }
        peer.send(b"GET /page HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let (head, _) = peer.response();
        assert!(head.contains("Connection: close\r\n"), "{head}");
        peer.end();
        drop(peer);
        // HTTP/1.0 closes by default. A request with a body closes too, since the server does not read the body.
        for (request, kept) in [
            ("GET /page HTTP/1.0\r\n\r\n", false),
            ("GET /page HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true),
            ("POST /page HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", false),
            ("POST /page HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false),
            ("POST /page HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", true),
        ] {
            let mut peer = server.secured();
            peer.send(request.as_bytes());
            peer.response();
            if kept {
                peer.send(b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n");
                assert_eq!(peer.response().1, b"page ", "{request}");
            } else {
                peer.end();
            }
        }
        server.forgets();
        // A client that only sends plain requests is no failed handshake.
        assert_eq!(server.counters().handshakes_failed, 0);
        server.survives();
    });
}

#[test]
fn an_idle_kept_connection_ends_without_an_answer() {
    both(|over| {
        let mut config = config();
        config.deadlines.handshake = Duration::from_secs(1);
        let server = serve(over, config, site());
        let mut peer = server.secured();
        peer.send(b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n");
        peer.response();
        peer.end();
        drop(peer);
        server.forgets();
        assert_eq!(server.counters().handshakes_failed, 0);
        server.survives();
    });
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    both(|over| {
        let server = serve(over, config(), site());
        let mut peer = server.secured();
        let requests: String = (0..50).map(|i| format!("GET /page?{i} HTTP/1.1\r\nHost: x\r\n\r\n")).collect();
        // An upgrade and its first message follow in the same send.
        peer.send(&[requests.as_bytes(), UPGRADE.as_bytes(), &masked(TEXT, b"and hello")].concat());
        for i in 0..50 {
            assert_eq!(peer.response().1, format!("page {i}").into_bytes());
        }
        assert!(peer.head().starts_with("HTTP/1.1 101 "));
        assert_eq!(peer.frame().text(), "and hello");
        peer.close();
        server.survives();
    });
}

#[test]
fn requests_can_be_cut_anywhere() {
    both(|over| {
        let server = serve(over, config(), site());
        let request = format!("GET /page?1 HTTP/1.1\r\nHost: x\r\n\r\n{UPGRADE}");
        let bytes = [request.as_bytes(), &masked(TEXT, b"hello")].concat();
        for at in (0..bytes.len()).step_by(if over.is_secure() { 7 } else { 1 }) {
            let mut peer = server.secured();
            peer.send(&bytes[..at]);
            // If the first request is whole, its answer shows that the server has read the first half.
            if at >= 36 {
                assert_eq!(peer.response().1, b"page 1");
            }
            peer.send(&bytes[at..]);
            if at < 36 {
                assert_eq!(peer.response().1, b"page 1");
            }
            assert!(peer.head().starts_with("HTTP/1.1 101 "));
            assert_eq!(peer.frame().text(), "hello");
        }
        server.survives();
    });
}

#[test]
fn an_upgrade_and_its_first_frames_can_arrive_together() {
    both(|over| {
        let server = serve(over, config(), App::default().greets("welcome"));
        let mut peer = server.secured();
        // One segment, and with TLS one record.
        peer.send(&[UPGRADE.as_bytes(), &masked(TEXT, b"one"), &masked(TEXT, b"two")].concat());
        assert!(peer.head().starts_with("HTTP/1.1 101 "));
        for text in ["welcome", "one", "two"] {
            assert_eq!(peer.frame().text(), text);
        }
        peer.close();
        server.forgets();
        server.stop();
    });
}

#[test]
fn upgrades_that_break_a_rule_are_refused() {
    both(|over| {
        let server = serve(over, config(), site());
        for (leave_out, more, status) in [
            ("Upgrade", "", "426"),
            ("Connection", "", "426"),
            ("Connection", "Connection: keep-alive\r\n", "426"),
            ("Sec-WebSocket-Version", "", "426"),
            ("Sec-WebSocket-Version", "Sec-WebSocket-Version: 8\r\n", "426"),
            ("Sec-WebSocket-Key", "", "400"),
            ("Sec-WebSocket-Key", "Sec-WebSocket-Key: short\r\n", "400"),
            ("", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "400"),
            ("", "Sec-WebSocket-Protocol: a b\r\n", "400"),
            ("", "Sec-WebSocket-Extensions: ;\r\n", "400"),
            ("", "Content-Length: 3\r\n", "400"),
            ("", "Origin: https://evil.example\r\n", "403"),
        ] {
            let head = upgrade(&server, "/chat", leave_out, more);
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "without {leave_out:?}, with {more:?}: {head}");
            assert!(head.contains("close\r\n"), "{head}");
            assert_eq!(head.contains("Sec-WebSocket-Version: 13\r\n"), status == "426", "{head}");
        }
        let post = UPGRADE.replace("GET", "POST");
        let mut peer = server.secured();
        peer.send(post.as_bytes());
        assert!(peer.head().starts_with("HTTP/1.1 405 "));
        let old = UPGRADE.replace("HTTP/1.1", "HTTP/1.0");
        peer = server.secured();
        let name = peer.name();
        peer.send(old.as_bytes());
        assert!(peer.head().starts_with("HTTP/1.1 505 "));
        drop(peer);
        logs::expect(&[&name, "upgrade refused (505)"]);
        // A plain request to a path that only accepts WebSockets.
        let (head, body) = ask(&server, "GET /only-sockets HTTP/1.1", "");
        assert!(head.starts_with("HTTP/1.1 426 "), "{head}");
        assert!(body.contains("Upgrade: websocket"), "{body}");
        assert_eq!(server.counters().opened, 0);
        server.survives();
    });
}

#[test]
fn other_origins_are_rejected() {
    let origin = |server: &Started, origin: &str| {
        let head = upgrade(server, "/chat", "", &format!("Origin: {origin}\r\n"));
        head.starts_with("HTTP/1.1 101 ")
    };
    let server = serve(Over::Fused, config(), App::default());
    assert!(origin(&server, "https://localhost"));
    assert!(!origin(&server, "https://localhost.evil.example"));
    assert!(!origin(&server, "null"));
    let counters = server.counters();
    assert_eq!((counters.origins_refused, counters.handshakes_failed), (2, 2));
    server.survives();

    let mut config = config();
    config.upgrade.origins = Origins::list(["https://app.example", "https://*.example.org"]).unwrap();
    let server = serve(Over::Fused, config.clone(), App::default());
    assert!(origin(&server, "https://app.example") && origin(&server, "https://eu.example.org"));
    assert!(!origin(&server, "https://evil-example.org"));
    assert!(!origin(&server, "https://localhost"));
    server.survives();

    config.upgrade.origins = Origins::Any;
    let server = serve(Over::Plain, config, App::default());
    assert!(origin(&server, "https://evil.example"));
    server.survives();
}

#[test]
fn the_servers_preference_chooses_the_subprotocol() {
    both(|over| {
        let mut config = config();
        config.upgrade.subprotocols = vec!["v2".into(), "v1".into()];
        let server = serve(over, config.clone(), App::default());
        for (n, (offered, chosen)) in [("v1, v2", Some("v2")), ("v1", Some("v1")), ("v3", None)].into_iter().enumerate()
        {
            let head = upgrade(&server, "/chat", "", &format!("Sec-WebSocket-Protocol: {offered}\r\n"));
            assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
            let line = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Protocol: "));
            assert_eq!(line, chosen, "{head}");
            assert_eq!(server.events.open(n).1.subprotocol.as_deref(), chosen);
        }
        server.survives();
        config.upgrade.require_subprotocol = true;
        let server = serve(over, config, App::default());
        let head = upgrade(&server, "/chat", "", "Sec-WebSocket-Protocol: v3\r\n");
        assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
        let mut target = server.target();
        target.subprotocols = vec!["v1".into()];
        let mut socket = server.socket_to(target);
        let answer = socket.response().unwrap().headers().get("sec-websocket-protocol").cloned();
        assert_eq!(answer.unwrap(), "v1");
        drop(socket);
        server.forgets();
        server.stop();
    });
}

#[test]
fn an_application_refuses_by_a_response_of_its_own() {
    both(|over| {
        let server = serve(over, config(), site());
        let mut peer = server.secured();
        peer.send(UPGRADE.replace("/chat", "/secret").as_bytes());
        let (head, body) = peer.response();
        assert!(head.starts_with("HTTP/1.1 401 Unauthorized\r\n"), "{head}");
        assert!(head.contains("Www-Authenticate: Bearer\r\n"), "{head}");
        assert_eq!(body, b"who are you?");
        // The client can try again on the same connection.
        let lines = UPGRADE.replace("/chat", "/secret");
        peer.send(format!("{}\r\nAuthorization: Bearer let-me-in\r\n\r\n", lines.trim_end()).as_bytes());
        assert!(peer.head().starts_with("HTTP/1.1 101 "));
        peer.echoes("in");
        peer.close();
        server.survives();
    });
}

#[test]
fn an_application_adds_headers_to_the_answer() {
    let server = serve(Over::Fused, config(), site());
    let head = upgrade(&server, "/named", "", "");
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    for line in ["Set-Cookie: a=1\r\n", "Set-Cookie: b=2\r\n", "X-Shard: 0\r\n", "Upgrade: websocket\r\n"] {
        assert!(head.contains(line), "{line} {head}");
    }
    assert!(head.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{head}");
    server.survives();
}

#[test]
fn head_limits_are_configuration() {
    let mut config = config();
    config.limits.head = HeadLimits::new(300, 6);
    let server = serve(Over::Plain, config, site());
    assert!(upgrade(&server, "/chat", "", "").starts_with("HTTP/1.1 101 "));
    let more = "A: b\r\nC: d\r\n";
    assert!(upgrade(&server, "/chat", "", more).starts_with("HTTP/1.1 431 "));
    let long = format!("A: {}\r\n", "b".repeat(300));
    assert!(upgrade(&server, "/chat", "", &long).starts_with("HTTP/1.1 431 "));
    server.survives();
}

#[test]
fn compression_is_negotiated_if_both_ends_want_it() {
    let offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";
    let server = serve(Over::Plain, config(), App::default());
    let head = upgrade(&server, "/chat", "", offer);
    assert!(head.starts_with("HTTP/1.1 101 ") && !head.contains("Extensions"), "{head}");
    server.survives();
    let mut config = config();
    config.upgrade.deflate = Some(DeflateConfig::default());
    let server = serve(Over::Plain, config, App::default());
    let head = upgrade(&server, "/chat", "", offer);
    assert!(head.contains("Sec-WebSocket-Extensions: permessage-deflate"), "{head}");
    assert!(server.events.open(0).1.deflate);
    let head = upgrade(&server, "/chat", "", "");
    assert!(!head.contains("Extensions"), "{head}");
    assert!(!server.events.open(1).1.deflate);
    server.survives();
}

#[test]
fn requests_have_the_negotiated_tls_values() {
    let app = || {
        App::default().on_request(|request| {
            let info = request.tls;
            assert!(!request.peer.to_string().is_empty());
            let text = format!("{info} {:?} {:?}", info.server_name, info.alpn);
            if request.is_upgrade { Reply::upgrade() } else { Reply::Respond(Response::new(text.into_bytes())) }
        })
    };
    let server = serve(Over::Fused, config(), app());
    let (_, body) = ask(&server, "GET / HTTP/1.1", "");
    assert_eq!(body, "TLSv1.3, TLS_AES_128_GCM_SHA256, X25519MLKEM768 Some(\"localhost\") None");
    server.survives();
    let server = serve(Over::Plain, config(), app());
    assert_eq!(ask(&server, "GET / HTTP/1.1", "").1, "no TLS None None");
    server.survives();
}
