use super::*;
use proptest::prelude::*;

const UPGRADE: &[u8] = b"GET /chat?x=1 HTTP/1.1\r\nHost: server.example.com\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http://example.com\r\n\
    Sec-WebSocket-Protocol: chat, superchat\r\nSec-WebSocket-Version: 13\r\n\r\n";

fn request(bytes: &[u8]) -> Result<Option<(Request<()>, usize)>, HandshakeError> {
    HeadReader::new(HeadLimits::default()).request(bytes)
}

fn status(bytes: &[u8]) -> u16 {
    request(bytes).unwrap_err().status().unwrap().as_u16()
}

#[test]
fn reads_the_request_of_rfc_6455_section_1_2() {
    let (request, used) = request(UPGRADE).unwrap().unwrap();
    assert_eq!(used, UPGRADE.len());
    assert_eq!((request.method(), request.version()), (&Method::GET, Version::HTTP_11));
    assert_eq!((request.uri().path(), request.uri().query()), ("/chat", Some("x=1")));
    assert_eq!(request.headers().len(), 7);
    assert_eq!(request.headers()["sec-websocket-protocol"], "chat, superchat");
}

#[test]
fn reads_a_head_in_any_pieces() {
    let bytes = [UPGRADE, b"\x81\x00frames\r\n\r\n"].concat();
    for first in 0..UPGRADE.len() {
        let mut reader = HeadReader::new(HeadLimits::default());
        assert!(reader.request(&bytes[..first]).unwrap().is_none(), "after {first}");
        assert_eq!(reader.request(&bytes).unwrap().unwrap().1, UPGRADE.len());
    }
    let mut reader = HeadReader::new(HeadLimits::default());
    for end in 0..UPGRADE.len() {
        assert!(reader.request(&bytes[..end]).unwrap().is_none());
    }
    assert_eq!(reader.request(&bytes).unwrap().unwrap().1, UPGRADE.len());
}

#[test]
fn reads_one_head_after_another() {
    let one = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
    let bytes = [&one[..], b"\r\n", one].concat();
    let mut reader = HeadReader::new(HeadLimits::default());
    let (_, used) = reader.request(&bytes).unwrap().unwrap();
    assert_eq!(used, one.len());
    let (_, used) = reader.request(&bytes[used..]).unwrap().unwrap();
    assert_eq!(used, one.len() + 2, "an empty line before a request is skipped");
    let mut reader = HeadReader::new(HeadLimits::default());
    assert_eq!(reader.response(b"HTTP/1.1 204 No Content\r\n\r\nHTTP").unwrap().unwrap().1, 27);
    assert!(reader.response(b"HTTP").unwrap().is_none());
}

#[test]
fn the_host_of_an_absolute_target_replaces_host() {
    let host = |head: &str| {
        let (request, _) = request(head.as_bytes()).unwrap().unwrap();
        request.headers().get_all("host").iter().map(|host| host.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(host("GET http://a.example:81/x HTTP/1.1\r\nHost: evil.example\r\n\r\n"), ["a.example:81"]);
    assert_eq!(host("GET http://[::1]/ HTTP/1.1\r\nHost: \r\n\r\n"), ["[::1]"]);
    assert_eq!(host("GET http://a.example/ HTTP/1.0\r\n\r\n"), ["a.example"]);
    assert_eq!(host("GET /http://b/ HTTP/1.1\r\nHost: a.example\r\n\r\n"), ["a.example"]);
    assert_eq!(host("CONNECT b:1 HTTP/1.1\r\nHost: a.example\r\n\r\n"), ["a.example"]);
    // `Host` has to be there and valid all the same (section 3.2).
    for bad in ["http://a/ HTTP/1.1\r\n\r\n", "http://a/ HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"] {
        assert_eq!(status(format!("GET {bad}").as_bytes()), 400, "{bad}");
    }
    for bad in ["http://user@a/", "http://a:x/", "http://a:0/", "http://a_b:99999/", "http://@/"] {
        assert_eq!(status(format!("GET {bad} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()), 400, "{bad}");
    }
}

#[test]
fn a_status_has_three_digits() {
    let read = |line: &str| {
        let head = format!("{line}\r\n\r\n");
        HeadReader::new(HeadLimits::default()).response(head.as_bytes()).map(|read| read.unwrap().0.status().as_u16())
    };
    for (line, status) in [("HTTP/1.1 200", 200), ("HTTP/1.0 599 x", 599), ("HTTP/1.1 999 ", 999)] {
        assert_eq!(read(line).unwrap(), status, "{line}");
    }
    for bad in ["2zz", "20", "2000", "099", "000", "+20", "-20", "2 0", " 200", "\u{b2}00"] {
        assert!(read(&format!("HTTP/1.1 {bad} OK")).is_err(), "{bad}");
    }
}

#[test]
fn accepts_targets_that_fit_the_method() {
    for (line, fits) in [
        ("GET / HTTP/1.1", true),
        ("GET //x?//y HTTP/1.1", true),
        ("GET http://a/b HTTP/1.1", true),
        ("GET ws://a/b HTTP/1.1", true),
        ("OPTIONS * HTTP/1.1", true),
        ("CONNECT a:443 HTTP/1.1", true),
        ("BREW / HTTP/1.1", true),
        ("GET * HTTP/1.1", false),
        ("GET a:443 HTTP/1.1", false),
        ("GET a HTTP/1.1", false),
        ("GET a/b HTTP/1.1", false),
        ("GET ?x HTTP/1.1", false),
        ("GET /a#b HTTP/1.1", false),
        ("GET http://a/b#c HTTP/1.1", false),
        ("CONNECT / HTTP/1.1", false),
        ("CONNECT http://a/ HTTP/1.1", false),
        ("GET  / HTTP/1.1", false),
        ("GET /  HTTP/1.1", false),
        ("GET / x HTTP/1.1", false),
        ("GET HTTP/1.1", false),
        ("GET /", false),
        ("GET / HTTP/1.1 ", false),
        ("GET / http/1.1", false),
        ("GET\t/ HTTP/1.1", false),
        ("G@T / HTTP/1.1", false),
        ("\u{16}\u{3}\u{1}", false),
    ] {
        let head = format!("{line}\r\nHost: a\r\n\r\n");
        assert_eq!(request(head.as_bytes()).is_ok(), fits, "{line}");
        if !fits {
            assert_eq!(status(head.as_bytes()), 400, "{line}");
        }
    }
    assert_eq!(status(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
    assert_eq!(status(b"GET / HTTP/0.9\r\n\r\n"), 505);
}

#[test]
fn host_must_occur_once_and_be_valid() {
    assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), 400);
    assert_eq!(status(b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"), 400);
    assert_eq!(status(b"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n"), 400);
    for (host, good) in [
        ("a", true),
        ("", true),
        ("a_b-c.example:", true),
        ("127.0.0.1:80", true),
        ("[::1]:80", true),
        ("a b", false),
        ("a/b", false),
        ("user@a", false),
        ("a, b", false),
        ("a:b", false),
        ("http://a", false),
        ("\u{e4}", false),
    ] {
        let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(request(head.as_bytes()).is_ok(), good, "{host:?}");
    }
    assert_eq!(request(b"GET / HTTP/1.0\r\n\r\n").unwrap().unwrap().0.version(), Version::HTTP_10);
}

#[test]
fn rejects_lines_that_other_parsers_read_differently() {
    for wrong in [
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\rX",
        "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\tfolded\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost\r\n\r\n",
        "GET / HTTP/1.1\r\n: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHo\u{e4}st: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\u{7f}\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\u{1b}[2J\r\n\r\n",
        "\0",
        " GET",
        "\n",
        "\rG",
    ] {
        assert_eq!(status(wrong.as_bytes()), 400, "{wrong:?}");
    }
    assert!(request(b"GET / HTTP/1.1\r\nHost: a\r\nX: \t\xe4\xff \r\n\r\n").unwrap().is_some());
}

#[test]
fn rejects_a_fault_as_soon_as_it_arrives() {
    let mut reader = HeadReader::new(HeadLimits::default());
    assert!(reader.request(b"\x16").is_err(), "a TLS ClientHello on a plain port");
    let mut reader = HeadReader::new(HeadLimits::default());
    assert!(reader.request(b"GET / HTTP/1.1\r\nHost: a").unwrap().is_none());
    assert!(reader.request(b"GET / HTTP/1.1\r\nHost: a\n").is_err());
}

#[test]
fn rejects_a_head_of_20_megabytes_at_the_limit() {
    let limits = HeadLimits::default();
    let mut head = b"GET / HTTP/1.1\r\nHost: a\r\nX: ".to_vec();
    head.resize(20_000_000, b'x');
    for step in [1, 7, 1460, 65_536] {
        let mut reader = HeadReader::new(limits);
        let error = (step..).step_by(step).find_map(|end| reader.request(&head[..end.min(head.len())]).err());
        assert!(matches!(error, Some(HandshakeError::HeadTooLarge(16_384))), "{error:?}");
        assert_eq!(reader.scanned, limits.max_bytes, "every byte is read once, none past the limit");
        assert_eq!(error.unwrap().status(), Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
    }
}

#[test]
fn limits_are_exact() {
    let head = b"GET / HTTP/1.1\r\nHost: a\r\nA: b\r\nC: d\r\n\r\n";
    let read = |max_bytes, max_headers| HeadReader::new(HeadLimits { max_bytes, max_headers }).request(head);
    assert!(read(head.len(), 3).unwrap().is_some());
    assert!(matches!(read(head.len() - 1, 3), Err(HandshakeError::HeadTooLarge(_))));
    assert!(matches!(read(head.len(), 2), Err(HandshakeError::TooManyHeaders(2))));
    assert_eq!(read(100, 0).unwrap_err().status().unwrap().as_u16(), 431);
    let endless = [b"GET /".to_vec(), vec![b'a'; 20_000]].concat();
    assert_eq!(status(&endless), 414);
    let wide = HeadLimits { max_bytes: 1 << 20, max_headers: 10 };
    let long = [b"GET /".to_vec(), vec![b'a'; 70_000], b" HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()].concat();
    assert!(matches!(HeadReader::new(wide).request(&long), Err(HandshakeError::TargetTooLong)));
    let many = HeadLimits { max_bytes: 1 << 20, max_headers: 100_000 };
    let mut head = b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec();
    head.extend((0..40_000).flat_map(|n| format!("x{n}:\r\n").into_bytes()));
    head.extend(b"\r\n");
    assert!(matches!(HeadReader::new(many).request(&head), Err(HandshakeError::Malformed(_))), "no panic");
}

#[test]
fn a_host_that_fits_into_no_map_is_an_error() {
    // A map of headers takes 24,576 names. The limits are the caller's.
    let limits = HeadLimits { max_bytes: 1 << 20, max_headers: 30_000 };
    for (names, fits) in [(24_575, true), (24_576, false), (24_577, false)] {
        let lines: String = (0..names).map(|number| format!("x{number}: \r\n")).collect();
        let head = format!("GET http://a.example/ HTTP/1.0\r\n{lines}\r\n");
        let read = HeadReader::new(limits).request(head.as_bytes());
        match read {
            Ok(Some((request, _))) => assert!(fits && request.headers()["host"] == "a.example", "{names}"),
            other => assert!(!fits && matches!(other, Err(HandshakeError::Malformed(_))), "{names}: {other:?}"),
        }
    }
}

#[test]
fn reads_responses() {
    let read = |bytes: &[u8]| HeadReader::new(HeadLimits::default()).response(bytes);
    let (response, used) =
        read(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n\x81").unwrap().unwrap();
    assert_eq!((response.status().as_u16(), used), (101, 56));
    assert_eq!(response.headers()["upgrade"], "websocket");
    assert_eq!(read(b"HTTP/1.0 999 \r\n\r\n").unwrap().unwrap().0.status().as_u16(), 999);
    assert_eq!(read(b"HTTP/1.1 200\r\n\r\n").unwrap().unwrap().0.version(), Version::HTTP_11);
    for wrong in [
        "HTTP/1.1 099 x\r\n\r\n",
        "HTTP/1.1 20 x\r\n\r\n",
        "HTTP/1.1 2000 x\r\n\r\n",
        "HTTP/2 200 x\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
        "HTTP/1.1 200 OK\n\n",
        "GET / HTTP/1.1\r\n\r\n",
        "\r\n\r\nX\r\n\r\n",
    ] {
        assert!(read(wrong.as_bytes()).is_err(), "{wrong:?}");
    }
}

const PIECES: &[&[u8]] = &[
    b"\r\n",
    b"\r\n\r\n",
    b"GET / HTTP/1.1\r\n",
    b"Host: a\r\n",
    b"HTTP/1.1 101 x\r\n",
    b" ",
    b"x:",
    b"\0",
    b"\r",
    b"\n",
    b"\xff",
];

proptest! {
    #[test]
    fn arbitrary_bytes_read_the_same_however_they_are_cut(
        bytes in proptest::collection::vec(proptest::sample::select(PIECES), 0..12),
        response in any::<bool>(),
    ) {
        let bytes = bytes.concat();
        let limits = HeadLimits { max_bytes: 90, max_headers: 3 };
        let read = |reader: &mut HeadReader, bytes: &[u8]| if response {
            reader.response(bytes).map(|read| read.map(|(_, used)| used)).map_err(|error| error.to_string())
        } else {
            reader.request(bytes).map(|read| read.map(|(_, used)| used)).map_err(|error| error.to_string())
        };
        let whole = read(&mut HeadReader::new(limits), &bytes);
        let mut reader = HeadReader::new(limits);
        let cut = (0..=bytes.len()).map(|end| read(&mut reader, &bytes[..end])).find(|read| !matches!(read, Ok(None)));
        prop_assert_eq!(whole, cut.unwrap_or(Ok(None)));
    }
}

#[test]
fn control_characters_are_refused_at_every_place_of_a_line() {
    for byte in 0..=u8::MAX {
        for place in 0..40 {
            let mut value = [b'v'; 40];
            value[place] = byte;
            let head = [b"GET / HTTP/1.1\r\nHost: a\r\nX: ", &value[..], b"\r\n\r\n"].concat();
            let is_control = byte < 0x20 && byte != b'\t' || byte == 0x7f;
            assert_eq!(request(&head).is_err(), is_control, "{byte:#04x} at {place}");
        }
    }
}
