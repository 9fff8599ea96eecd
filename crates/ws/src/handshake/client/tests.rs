use super::*;
use crate::deflate::DeflateParams;
use crate::handshake::{Policy, accept, parse_uri};

const NONCE: [u8; 16] = *b"the sample nonce";
const ANSWER: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";

fn open(uri: &str, options: &Options) -> Opening {
    Opening::new(&parse_uri(uri).unwrap(), NONCE, options).unwrap()
}

fn sent(uri: &str, options: &Options) -> String {
    let mut out = Buf::new();
    open(uri, options).write(&mut out);
    String::from_utf8(out.filled().to_vec()).unwrap()
}

fn answered(answer: &str, options: &Options) -> Result<Negotiated, HandshakeError> {
    let (established, used) = open("ws://a/", options).read(answer.as_bytes())?.expect("the whole head is there");
    assert_eq!(used, answer.len());
    Ok(established.negotiated)
}

fn options() -> Options {
    Options {
        subprotocols: vec!["v2".into(), "v1".into()],
        deflate: Some(DeflateConfig::with_context_takeover()),
        ..Options::default()
    }
}

#[test]
fn sends_the_request_of_rfc_6455_section_1_2() {
    let mut options = Options {
        subprotocols: vec!["chat".into(), "superchat".into()],
        origin: Some("http://example.com".into()),
        deflate: Some(DeflateConfig::with_context_takeover()),
        ..Options::default()
    };
    options.headers.append("x-tag", HeaderValue::from_static("1"));
    options.headers.append("x-tag", HeaderValue::from_static("2"));
    assert_eq!(
        sent("ws://server.example.com/chat", &options),
        "GET /chat HTTP/1.1\r\nHost: server.example.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nOrigin: http://example.com\r\n\
         Sec-WebSocket-Protocol: chat, superchat\r\n\
         Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\nX-Tag: 1\r\nX-Tag: 2\r\n\r\n"
    );
}

#[test]
fn requests_path_and_query() {
    for (uri, line, host) in [
        ("ws://a", "GET / HTTP/1.1", "Host: a"),
        ("ws://a?x=y", "GET /?x=y HTTP/1.1", "Host: a"),
        ("wss://[::1]:8443/b/c?d&e=%20", "GET /b/c?d&e=%20 HTTP/1.1", "Host: [::1]:8443"),
        ("wss://user:pw@a:443/b?", "GET /b? HTTP/1.1", "Host: a"),
    ] {
        let head = sent(uri, &Options::default());
        let lines: Vec<_> = head.split("\r\n").collect();
        assert_eq!(lines[..2], [line, host], "{uri}");
    }
    assert!(sent("wss://user:pw@a/", &Options::default()).contains("\r\nAuthorization: Basic dXNlcjpwdw==\r\n"));
    assert!(!format!("{:?}", open("wss://user:pw@a/", &Options::default())).contains("dXNlcjpwdw"));
    assert_eq!(open("wss://user:pw@a/", &Options::default()).target().port, 443);
    assert_eq!(open("ws://a/b", &Options::default()).request().uri(), "/b");
}

#[test]
fn rejects_headers_that_the_handshake_sets() {
    for name in [
        "host",
        "upgrade",
        "connection",
        "origin",
        "content-length",
        "transfer-encoding",
        "sec-websocket-key",
        "sec-websocket-version",
        "sec-websocket-protocol",
        "sec-websocket-extensions",
        "sec-websocket-anything",
    ] {
        let mut options = Options::default();
        options.headers.insert(name, HeaderValue::from_static("x"));
        let error = Opening::new(&"ws://a/".parse().unwrap(), NONCE, &options).unwrap_err();
        assert!(matches!(&error, HandshakeError::ReservedHeader(reserved) if reserved == name), "{error}");
        assert_eq!(error.status(), None);
    }
}

#[test]
fn rejects_unusable_options() {
    let refused = |uri: &str, options: &Options| {
        matches!(Opening::new(&uri.parse().unwrap(), NONCE, options), Err(HandshakeError::Options(_)))
    };
    for subprotocols in [&["a b"][..], &[""], &["a\r\nX: y"], &["a", "a"], &["a,b"]] {
        let subprotocols = subprotocols.iter().map(|&name| name.to_owned()).collect();
        assert!(refused("ws://a/", &Options { subprotocols, ..Options::default() }));
    }
    assert!(refused("ws://a/", &Options { origin: Some("x\r\nY: z".into()), ..Options::default() }));
    let mut options = Options::default();
    options.headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer x"));
    assert!(refused("ws://u:p@a/", &options));
    assert!(!refused("ws://a/", &options));
    assert!(matches!(Opening::new(&"/x".parse().unwrap(), NONCE, &options), Err(HandshakeError::Uri(_))));
    assert!(matches!(Opening::new(&"ws://a/\u{e4}".parse().unwrap(), NONCE, &options), Err(HandshakeError::Uri(_))));
}

#[test]
fn accepts_a_valid_answer_in_any_pieces() {
    let answer = format!("{ANSWER}Sec-WebSocket-Protocol: v1\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n");
    let bytes =
        format!("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n{answer}frames\r\n\r\n");
    let end = bytes.len() - 10;
    let mut opening = open("ws://a/", &options());
    for len in 0..end {
        assert!(opening.read(&bytes.as_bytes()[..len]).unwrap().is_none());
    }
    let (established, used) = opening.read(bytes.as_bytes()).unwrap().unwrap();
    assert_eq!(used, end);
    assert_eq!(established.response.status(), 101);
    assert_eq!(established.negotiated.subprotocol.as_deref(), Some("v1"));
    assert!(established.negotiated.deflate.is_some());
}

#[test]
fn accepts_an_answer_without_options() {
    assert_eq!(answered(&format!("{ANSWER}\r\n"), &options()).unwrap(), Negotiated::default());
    let lower = ANSWER
        .to_lowercase()
        .replace("http/", "HTTP/")
        .replace("s3pplmbitxaq9kygzzhzrbk+xoo=", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_eq!(answered(&format!("{lower}\r\n"), &Options::default()).unwrap(), Negotiated::default());
}

#[test]
fn rejects_answers_that_break_a_rule() {
    let ours = options();
    for (from, to) in [
        ("HTTP/1.1", "HTTP/1.0"),
        ("Upgrade: websocket\r\n", ""),
        ("Upgrade: websocket", "Upgrade: h2c"),
        ("Connection: Upgrade\r\n", ""),
        ("Connection: Upgrade", "Connection: keep-alive"),
        ("s3pP", "S3pP"),
        ("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", ""),
        ("Sec-WebSocket-Accept: ", "Sec-WebSocket-Reject: "),
        ("Sec-WebSocket-Accept: ", "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Accept: "),
    ] {
        let answer = format!("{}\r\n", ANSWER.replace(from, to));
        assert_ne!(answer, format!("{ANSWER}\r\n"));
        assert!(matches!(answered(&answer, &ours), Err(HandshakeError::Answer(_))), "{from:?} -> {to:?}");
    }
    for line in [
        "Sec-WebSocket-Protocol: v3",
        "Sec-WebSocket-Protocol: V1",
        "Sec-WebSocket-Protocol: v1, v2",
        "Sec-WebSocket-Protocol: v1\r\nSec-WebSocket-Protocol: v1",
        "Sec-WebSocket-Protocol:",
        "Sec-WebSocket-Extensions: permessage-deflate, permessage-deflate",
        "Sec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Extensions: permessage-deflate",
        "Sec-WebSocket-Extensions: x-webkit-deflate-frame",
        "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=99",
        "Sec-WebSocket-Extensions: permessage-deflate; =",
    ] {
        let answer = format!("{ANSWER}{line}\r\n\r\n");
        assert!(matches!(answered(&answer, &ours), Err(HandshakeError::Answer(_))), "{line}");
    }
    let plain = Options::default();
    for line in ["Sec-WebSocket-Protocol: v1", "Sec-WebSocket-Extensions: permessage-deflate"] {
        assert!(
            matches!(answered(&format!("{ANSWER}{line}\r\n\r\n"), &plain), Err(HandshakeError::Answer(_))),
            "{line}"
        );
    }
}

#[test]
fn an_empty_subprotocol_is_named() {
    for line in ["Sec-WebSocket-Protocol:", "Sec-WebSocket-Protocol: \t "] {
        for options in [options(), Options::default()] {
            let error = answered(&format!("{ANSWER}{line}\r\n\r\n"), &options).unwrap_err().to_string();
            assert!(error.contains("Sec-WebSocket-Protocol is empty"), "{error}");
        }
    }
}

#[test]
fn reports_redirects_and_rejections() {
    for status in [301, 302, 303, 307, 308] {
        let answer = format!("HTTP/1.1 {status} Elsewhere\r\nLocation: wss://b/\r\n\r\n");
        match answered(&answer, &Options::default()).unwrap_err() {
            HandshakeError::Redirected { status: got, location } => {
                assert_eq!((got.as_u16(), location.as_deref()), (status, Some("wss://b/")));
            }
            error => panic!("{error}"),
        }
    }
    let error = answered("HTTP/1.1 302 Found\r\n\r\n", &Options::default()).unwrap_err();
    assert_eq!(error.to_string(), "server redirects (302 Found) without saying where");
    for status in [200, 204, 300, 304, 400, 401, 403, 404, 426, 503, 999] {
        let answer = format!("HTTP/1.1 {status} No\r\nX: y\r\nContent-Length: 2\r\n\r\nno");
        match answered(&answer, &Options::default()).unwrap_err() {
            HandshakeError::Rejected { response } => {
                assert_eq!(
                    (response.status().as_u16(), &response.headers()["x"]),
                    (status, &HeaderValue::from_static("y"))
                );
                assert_eq!(response.body(), if matches!(status, 204 | 304) { &b""[..] } else { b"no" });
            }
            error => panic!("{error}"),
        }
    }
}

#[test]
fn rejects_endless_interim_responses() {
    let answer = "HTTP/1.1 100 Continue\r\n\r\n".repeat(33);
    for step in [1, 25, answer.len()] {
        let mut opening = open("ws://a/", &Options::default());
        let mut ends = (step..=answer.len()).step_by(step);
        let error = ends.find_map(|end| opening.read(&answer.as_bytes()[..end]).err()).unwrap();
        assert!(matches!(error, HandshakeError::Malformed("too many interim responses (1xx)")), "{error}");
    }
    let long = format!("HTTP/1.1 103 Early Hints\r\nLink: {}\r\n\r\n", "x".repeat(9_000)).repeat(2);
    let error = open("ws://a/", &Options::default()).read(long.as_bytes()).unwrap_err();
    assert!(matches!(error, HandshakeError::HeadTooLarge(16_384)), "{error}");
    let error = open("ws://a/", &Options::default()).read(&[b'x'; 20_000]).unwrap_err();
    assert!(matches!(error, HandshakeError::HeadTooLarge(16_384)), "{error}");
}

#[test]
fn client_and_server_agree() {
    let policy = Policy {
        subprotocols: vec!["v1".into()],
        deflate: Some(DeflateConfig { server_max_window_bits: 12, ..DeflateConfig::default() }),
        ..Policy::default()
    };
    let mut opening = open("wss://a.example:8443/x", &options());
    let accepted = accept(opening.request(), &policy).unwrap();
    let mut out = Buf::new();
    accepted.write(&mut out);
    let (established, _) = opening.read(out.filled()).unwrap().unwrap();
    let agreed = DeflateParams {
        server_no_context_takeover: true,
        client_no_context_takeover: true,
        server_max_window_bits: 12,
        client_max_window_bits: 15,
    };
    assert_eq!(accepted.negotiated, Negotiated { subprotocol: Some("v1".into()), deflate: Some(agreed) });
    assert_eq!(established.negotiated, accepted.negotiated);
}
