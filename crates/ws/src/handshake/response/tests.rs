use super::*;
use crate::handshake::{HeadLimits, HeadReader};
use http::HeaderValue;
use proptest::prelude::*;

fn request(head: &str) -> Request<()> {
    HeadReader::new(HeadLimits::default()).request(head.as_bytes()).unwrap().unwrap().0
}

fn written(response: &Response<&str>, reply: Reply) -> (String, bool) {
    let mut out = Buf::new();
    let open = write_response(response, reply, None, &mut out);
    (String::from_utf8(out.filled().to_vec()).unwrap(), open)
}

const STAY: Reply = Reply { head_only: false, keep_alive: true, old: false };

#[test]
fn writes_a_response_with_its_body() {
    let response = Response::builder().header("content-type", "text/plain").body("ok\n").unwrap();
    let (text, open) = written(&response, STAY);
    assert_eq!(text, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nok\n");
    assert!(open);
    let (text, open) = written(&response, Reply { keep_alive: false, ..STAY });
    assert!(text.ends_with("Content-Length: 3\r\nConnection: close\r\n\r\nok\n") && !open);
    let (text, open) = written(&response, Reply { old: true, ..STAY });
    assert!(text.ends_with("Content-Length: 3\r\nConnection: keep-alive\r\n\r\nok\n") && open);
    let (text, open) = written(&response, Reply { head_only: true, ..STAY });
    assert!(text.ends_with("Content-Length: 3\r\n\r\n") && open);
}

#[test]
fn some_statuses_have_no_body() {
    for status in [204, 304] {
        let (text, _) = written(&Response::builder().status(status).body("x").unwrap(), STAY);
        assert!(text.ends_with("\r\n\r\n") && !text.contains("Content-Length"), "{text}");
    }
    let (text, _) = written(&Response::builder().status(999).body("").unwrap(), STAY);
    assert_eq!(text, "HTTP/1.1 999 \r\nContent-Length: 0\r\n\r\n");
}

#[test]
fn the_date_is_written_once_and_not_in_interim_responses() {
    let date = HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT");
    let write = |response: &Response<&str>| {
        let mut out = Buf::new();
        write_response(response, STAY, Some(&date), &mut out);
        String::from_utf8(out.filled().to_vec()).unwrap()
    };
    for status in [200, 204, 304, 404, 426, 500, 599] {
        let text = write(&Response::builder().status(status).body("").unwrap());
        assert_eq!(text.matches("\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n").count(), 1, "{text}");
    }
    assert!(!write(&Response::builder().status(103).body("").unwrap()).contains("Date"));
    let own = write(&Response::builder().header("date", "Thu, 01 Jan 1970 00:00:00 GMT").body("").unwrap());
    assert!(own.matches("Date: ").count() == 1 && own.contains("\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n"), "{own}");
}

#[test]
fn framing_headers_of_the_response_are_replaced() {
    let response = Response::builder()
        .header("content-length", "1000")
        .header("transfer-encoding", "chunked")
        .header("connection", "keep-alive, Upgrade, close")
        .header("upgrade", "websocket")
        .body("x")
        .unwrap();
    let (text, open) = written(&response, STAY);
    assert_eq!(
        text,
        "HTTP/1.1 200 OK\r\nUpgrade: websocket\r\nContent-Length: 1\r\nConnection: Upgrade, close\r\n\r\nx"
    );
    assert!(!open);
}

#[test]
fn keep_alive_follows_version_connection_and_body() {
    for (head, expected) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", true),
        ("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", true),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n", false),
        ("GET / HTTP/1.0\r\n\r\n", false),
        ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n", false),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", true),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 9\r\n\r\n", false),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", false),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", false),
    ] {
        let request = request(head);
        assert_eq!(keep_alive(&request), expected, "{head}");
        let reply = Reply::to(&request);
        assert_eq!((reply.keep_alive, reply.head_only), (expected, head.starts_with("HEAD")));
        assert_eq!(reply.old, head.contains("HTTP/1.0"));
    }
    let (text, open) = written(&Response::new("x"), Reply::LAST);
    assert!(text.contains("Connection: close") && !open);
}

proptest! {
    #[test]
    fn nothing_in_a_response_can_end_a_line(
        fields in proptest::collection::vec((
            proptest::collection::vec(any::<u8>(), 1..12),
            proptest::collection::vec(any::<u8>(), 0..24),
        ), 0..8),
        status in 200..1000_u16,
    ) {
        let mut response = Response::new("body");
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        let mut names = Vec::new();
        for (name, value) in &fields {
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
                names.push(name.clone());
                response.headers_mut().append(name, value);
            }
        }
        let mut out = Buf::new();
        write_response(&response, STAY, None, &mut out);
        let (read, used) = HeadReader::new(HeadLimits::default()).response(out.filled()).unwrap().unwrap();
        let body = if matches!(status, 204 | 304) { &b""[..] } else { b"body" };
        prop_assert_eq!(&out.filled()[used..], body);
        for name in read.headers().keys() {
            prop_assert!(names.contains(name) || name == CONTENT_LENGTH, "{}", name);
        }
    }
}
