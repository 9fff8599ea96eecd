use super::*;
use crate::deflate::DeflateParams;
use crate::handshake::{HeadLimits, HeadReader};

/// The request of RFC 6455, section 1.2, with changed header lines: replaced, added, or removed by an empty value.
fn request(first: &str, changes: &[(&str, &str)]) -> Request<()> {
    let mut lines = vec![
        ("Host", "server.example.com"),
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Version", "13"),
    ];
    lines.retain(|(name, _)| !changes.iter().any(|(changed, _)| changed == name));
    lines.extend(changes.iter().filter(|(_, value)| !value.is_empty()));
    let lines: String = lines.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("{first}\r\n{lines}\r\n");
    HeadReader::new(HeadLimits::default()).request(head.as_bytes()).unwrap().unwrap().0
}

fn get(changes: &[(&str, &str)]) -> Request<()> {
    request("GET /chat HTTP/1.1", changes)
}

fn reason(request: &Request<()>) -> Option<Refusal> {
    accept(request, &Policy::default()).err().map(|refused| refused.reason)
}

#[test]
fn answers_as_in_rfc_6455_section_1_2() {
    let request = get(&[("Origin", "http://example.com"), ("Sec-WebSocket-Protocol", "chat, superchat")]);
    assert!(is_upgrade(&request));
    let policy = Policy {
        origins: Origins::list(["http://example.com"]).unwrap(),
        subprotocols: vec!["chat".into()],
        ..Policy::default()
    };
    let accepted = accept(&request, &policy).unwrap();
    assert_eq!(accepted.negotiated, Negotiated { subprotocol: Some("chat".into()), deflate: None });
    let mut out = Buf::new();
    accepted.write(&mut out);
    assert_eq!(
        str::from_utf8(out.filled()).unwrap(),
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: chat\r\n\r\n"
    );
}

#[test]
fn headers_may_be_added_to_the_answer() {
    let mut accepted = accept(&get(&[]), &Policy::default()).unwrap();
    accepted.response.headers_mut().append("set-cookie", HeaderValue::from_static("a=b"));
    let mut out = Buf::new();
    accepted.write(&mut out);
    assert!(out.filled().ends_with(b"\r\nSet-Cookie: a=b\r\n\r\n"));
}

#[test]
fn accepts_every_way_to_write_a_valid_request() {
    for changes in [
        &[("Upgrade", "WebSocket")][..],
        &[("Upgrade", "h2c, websocket")],
        &[("Connection", "keep-alive, upgrade")],
        &[("Connection", "keep-alive"), ("Connection", "UPGRADE")],
        &[("Content-Length", "0")],
        &[("Host", "a:1")],
        &[("Origin", "http://server.example.com")],
    ] {
        assert_eq!(reason(&get(changes)), None, "{changes:?}");
    }
    assert_eq!(reason(&request("GET http://server.example.com/chat HTTP/1.1", &[])), None);
}

#[test]
fn rejects_requests_that_break_a_rule() {
    for (changes, expected, status) in [
        (&[("Upgrade", "")][..], Refusal::Upgrade, 426),
        (&[("Upgrade", "h2c")], Refusal::Upgrade, 426),
        (&[("Upgrade", "websockets")], Refusal::Upgrade, 426),
        (&[("Connection", "")], Refusal::Connection, 426),
        (&[("Connection", "close")], Refusal::Connection, 426),
        (&[("Sec-WebSocket-Version", "")], Refusal::Version, 426),
        (&[("Sec-WebSocket-Version", "8")], Refusal::Version, 426),
        (&[("Sec-WebSocket-Version", "013")], Refusal::Version, 426),
        (&[("Sec-WebSocket-Version", "13, 8")], Refusal::Version, 426),
        (&[("Sec-WebSocket-Version", "13"), ("Sec-WebSocket-Version", "13")], Refusal::Version, 426),
        (&[("Sec-WebSocket-Key", "")], Refusal::Key, 400),
        (&[("Sec-WebSocket-Key", "c2hvcnQ=")], Refusal::Key, 400),
        (
            &[("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="), ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")],
            Refusal::Key,
            400,
        ),
        (&[("Content-Length", "5")], Refusal::Body, 400),
        (&[("Content-Length", "0"), ("Content-Length", "0")], Refusal::Body, 400),
        (&[("Transfer-Encoding", "chunked")], Refusal::Body, 400),
        (&[("Origin", "https://evil.example")], Refusal::Origin, 403),
        (&[("Sec-WebSocket-Protocol", "a b")], Refusal::MalformedSubprotocol, 400),
        (&[("Sec-WebSocket-Extensions", "a; =")], Refusal::Extensions, 400),
    ] {
        let refused = accept(&get(changes), &Policy::default()).unwrap_err();
        assert_eq!(refused.reason, expected, "{changes:?}");
        assert_eq!(refused.response.status().as_u16(), status);
        assert_eq!(refused.response.body(), &format!("{expected}\n"));
    }
    let remedy = Refusal::Origin.to_string();
    assert!(remedy.contains("Origins") && remedy.contains("--origin"), "{remedy}");
    let mut no_host = get(&[]);
    no_host.headers_mut().remove(HOST);
    assert_eq!(reason(&no_host), Some(Refusal::Host));
    no_host.headers_mut().insert(HOST, HeaderValue::from_static(""));
    assert_eq!(reason(&no_host), Some(Refusal::Host));
    assert_eq!(reason(&request("GET / HTTP/1.0", &[])), Some(Refusal::HttpVersion));
}

#[test]
fn rejections_name_the_supported_version_and_method() {
    let version = accept(&get(&[("Sec-WebSocket-Version", "99")]), &Policy::default()).unwrap_err();
    assert_eq!(version.response.headers()[SEC_WEBSOCKET_VERSION], "13");
    assert_eq!(version.response.headers()[UPGRADE], "websocket");
    assert_eq!(version.response.headers()[CONNECTION], "Upgrade");
    let method = accept(&request("POST / HTTP/1.1", &[]), &Policy::default()).unwrap_err();
    assert_eq!((method.reason, method.response.status().as_u16()), (Refusal::Method, 405));
    assert_eq!(method.response.headers()[ALLOW], "GET");
    assert_eq!(version.to_string(), "upgrade refused (426): Sec-WebSocket-Version must be 13");
}

#[test]
fn plain_requests_are_not_upgrades() {
    assert!(!is_upgrade(&get(&[("Upgrade", ""), ("Sec-WebSocket-Key", "")])));
    assert!(!is_upgrade(&get(&[("Upgrade", "h2c"), ("Sec-WebSocket-Key", "")])));
    assert!(is_upgrade(&get(&[("Upgrade", "")])), "a proxy took the Upgrade header away");
    assert!(is_upgrade(&get(&[("Sec-WebSocket-Key", "")])));
}

#[test]
fn the_server_prefers_among_subprotocols() {
    let policy = |require| Policy {
        subprotocols: vec!["v2".into(), "v1".into(), "no token".into()],
        require_subprotocol: require,
        ..Policy::default()
    };
    let chosen = |offers: &[&str], require| {
        let changes: Vec<_> = offers.iter().map(|offer| ("Sec-WebSocket-Protocol", *offer)).collect();
        accept(&get(&changes), &policy(require))
            .map(|accepted| {
                let header = accepted.response.headers().get(SEC_WEBSOCKET_PROTOCOL);
                assert_eq!(header.map(|value| value.to_str().unwrap()), accepted.negotiated.subprotocol.as_deref());
                accepted.negotiated.subprotocol
            })
            .map_err(|refused| refused.reason)
    };
    assert_eq!(chosen(&["v1, v2"], true), Ok(Some("v2".into())));
    assert_eq!(chosen(&["v0", "v1"], true), Ok(Some("v1".into())));
    assert_eq!(chosen(&["V1"], false), Ok(None));
    assert_eq!(chosen(&[], false), Ok(None));
    assert_eq!(chosen(&["V1"], true), Err(Refusal::Subprotocol));
    assert_eq!(chosen(&[], true), Err(Refusal::Subprotocol));
}

#[test]
fn compression_is_negotiated_if_both_sides_want_it() {
    let offer =
        get(&[("Sec-WebSocket-Extensions", "x-webkit-deflate-frame, permessage-deflate; client_max_window_bits")]);
    assert_eq!(accept(&offer, &Policy::default()).unwrap().negotiated.deflate, None);
    let policy = Policy { deflate: Some(DeflateConfig::with_context_takeover()), ..Policy::default() };
    let accepted = accept(&offer, &policy).unwrap();
    assert_eq!(accepted.response.headers()[SEC_WEBSOCKET_EXTENSIONS], "permessage-deflate");
    let agreed = DeflateParams {
        server_no_context_takeover: false,
        client_no_context_takeover: false,
        server_max_window_bits: 15,
        client_max_window_bits: 15,
    };
    assert_eq!(accepted.negotiated.deflate, Some(agreed));
    let none = accept(&get(&[]), &policy).unwrap();
    assert_eq!((none.negotiated.deflate, none.response.headers().get(SEC_WEBSOCKET_EXTENSIONS)), (None, None));
}
