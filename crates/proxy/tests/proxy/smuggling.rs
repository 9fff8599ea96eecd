//! Messages on whose ends two parties could disagree, between real sockets.

use crate::kit;
use crate::kit::{Client, body_of, head, length, of_text, proxy, reader, scripted};
use std::io::{Read as _, Write as _};
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;

/// Fields with which a request has several lengths, or several readings.
const FIELDS: &[&str] = &[
    "Content-Length: 5\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nContent-Length: 5",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: chunked;a=b",
    "Transfer-Encoding: \"chunked\"",
    "Transfer-Encoding: \x0bchunked",
    "Transfer-Encoding:",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding\t: chunked",
    " Transfer-Encoding: chunked",
    "X: y\r\n Transfer-Encoding: chunked",
    "X: y\r\n\tz",
    "X: y\nTransfer-Encoding: chunked",
    "X: y\rTransfer-Encoding: chunked",
    "X: y\0Transfer-Encoding: chunked",
    "Content-Length: 5\r\nContent-Length: 5",
    "Content-Length: 5\r\nContent-Length: 6",
    "Content-Length: 5, 5",
    "Content-Length: +5",
    "Content-Length: -5",
    "Content-Length: 0x5",
    "Content-Length: 5 5",
    "Content-Length: 5.",
    "Content-Length:",
    "Content-Length: 18446744073709551616",
    "Content-Length : 5",
    "Content Length: 5",
    "Content-Length\r\n: 5",
    ": 5",
    "X",
    "Host: b",
];

/// First lines that are none, or whose target has several readings.
const LINES: &[&str] = &[
    "GET /a b HTTP/1.1",
    "GET  / HTTP/1.1",
    "GET /\tx HTTP/1.1",
    "GET / HTTP/1.1 x",
    "GET /a#b HTTP/1.1",
    "GET a HTTP/1.1",
    "GET * HTTP/1.1",
    "GET /%2f.. HTTP/1.1",
    "GET /a%2fb HTTP/1.1",
    "GET /a%00 HTTP/1.1",
    "GET /a\\b HTTP/1.1",
    "GET /../x HTTP/1.1",
    "GET /..;/x HTTP/1.1",
    "GET /\u{e4} HTTP/1.1",
    "GET http:///x HTTP/1.1",
    "GET http://u@b/x HTTP/1.1",
    "GET a:80 HTTP/1.1",
    "GE(T / HTTP/1.1",
    "GET / HTTP/1.1\x0b",
    "GET / http/1.1",
];

/// Answers each request with its head, its lines parted by `|`, and its body.
fn mirror(mut stream: std::net::TcpStream) {
    let mut reader = reader(&stream);
    while let Some(head) = head(&mut reader) {
        let body = format!("{}{}", head.replace("\r\n", "|"), body_of(&head, &mut reader));
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    }
}

#[test]
fn requests_that_could_be_read_in_two_ways_reach_no_server() {
    let (server, count) = scripted(mirror);
    let proxy = proxy(&[server]);
    let host = "Host: a\r\n";
    let body = "\r\n5\r\nhello\r\n0\r\n\r\n";
    let mut bad: Vec<(String, u16)> = Vec::new();
    for fields in FIELDS {
        bad.push((format!("POST / HTTP/1.1\r\n{host}{fields}\r\n{body}"), 400));
    }
    for line in LINES {
        bad.push((format!("{line}\r\n{host}Connection: close\r\n\r\n"), 400));
    }
    for (request, status) in [
        ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        ("TRACE / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 405),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    ] {
        bad.push((request.to_owned(), status));
    }
    for (request, status) in bad {
        let mut client = Client::of(&proxy);
        client.ask(&request);
        let head = client.head();
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{request:?}: {head}");
        assert!(head.contains("connection: close\r\n"), "{request:?}: {head}");
        // The bytes behind it are not taken for a request.
        let rest = client.rest();
        assert!(!rest.contains("HTTP/1.1"), "{request:?}: {rest}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 0, "no server saw one");
}

#[test]
fn malformed_chunks_end_a_request_that_has_begun() {
    for chunks in [
        "5\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5;\nx\r\nhello\r\n0\r\n\r\n",
        "5;x\0\r\nhello\r\n0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "\r\n5\r\nhello\r\n0\r\n\r\n",
        "0\r\nX: y\nZ: z\r\n\r\n",
        "0\r\nGET /next HTTP/1.1\r\0\r\n\r\n",
    ] {
        let (told, tell) = channel();
        let (server, _) = scripted(move |mut stream| {
            let mut all = Vec::new();
            let _ = stream.set_read_timeout(Some(kit::LONG));
            let _ = stream.read_to_end(&mut all);
            let _ = told.send(String::from_utf8_lossy(&all).into_owned());
        });
        let proxy = proxy(&[server]);
        let mut client = Client::of(&proxy);
        client.ask(&format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"));
        let head = client.head();
        assert!(head.starts_with("http/1.1 400 ") && head.contains("connection: close"), "{chunks:?}: {head}");
        let seen = tell.recv_timeout(kit::LONG).unwrap();
        assert!(!seen.contains("0\r\n\r\n"), "the server does not take it for whole: {seen:?}");
    }
}

#[test]
fn a_server_gets_one_form_of_each_request() {
    let (server, _) = scripted(mirror);
    let proxy = proxy(&[server]);
    let mut client = Client::of(&proxy);
    for (request, has, has_not) in [
        ("GET http://b.example:81/x?y HTTP/1.1\r\nHost: a\r\n\r\n", "get /x?y http/1.1|", "host: a"),
        ("GET http://b.example:81/x HTTP/1.1\r\nHost: a\r\n\r\n", "|host: b.example:81|", "host: a"),
        ("GET /a/./%62//c HTTP/1.1\r\nHost: a\r\n\r\n", "get /a/b/c http/1.1|", "%62"),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n\r\n2;a=\"b\"\r\nhi\r\n0\r\nHost: b\r\n\r\n",
            "|transfer-encoding: chunked|",
            "host: b",
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 02\r\nConnection: content-length, host\r\n\r\nhi",
            "|content-length: 2|",
            "content-length: 02",
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: authorization, x-forwarded-for\r\nAuthorization: b\r\n\r\n",
            "|authorization: b|",
            "connection",
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6\r\nX_Forwarded_For: 6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\n\r\n",
            "|x-forwarded-for: 127.0.0.1|",
            "6.6.6.6",
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, HTTP2-Settings, Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n",
            "|host: a|",
            "h2c",
        ),
    ] {
        client.ask(request);
        let head = client.head();
        let said = client.exact(length(&head).unwrap());
        assert!(said.contains(has) && !said.contains(has_not), "{request:?}: {said}");
    }
}

#[test]
fn responses_that_could_be_read_in_two_ways_are_not_passed_on() {
    for fields in [
        "Content-Length: 2\r\nTransfer-Encoding: chunked",
        "Content-Length: 2\r\nContent-Length: 2",
        "Content-Length: 2\r\nContent-Length: 3",
        "Content-Length: 2, 2",
        "Content-Length: +2",
        "Content-Length: 2x",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding : chunked",
        "Content-Length : 2",
        "X: y\nContent-Length: 2",
        "X: y\r\n Content-Length: 2",
        "X: y\0",
        "X\0: y",
        "X",
    ] {
        let (server, count) = scripted(move |mut stream| {
            let mut reader = reader(&stream);
            while head(&mut reader).is_some() {
                write!(stream, "HTTP/1.1 200 OK\r\n{fields}\r\n\r\nhi").unwrap();
            }
        });
        let proxy = proxy(&[server]);
        let mut client = Client::of(&proxy);
        for number in 1..3 {
            client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let head = client.head();
            assert!(head.starts_with("http/1.1 502 "), "{fields:?}: {head}");
            let _ = client.exact(length(&head).unwrap());
            assert_eq!(count.load(Ordering::SeqCst), number, "its connection is not used again");
        }
    }
    for (version, line) in [("HTTP/1.0", "Transfer-Encoding: chunked"), ("HTTP/2.0", "X: y"), ("HTTP/1.1 2000", "X: y")]
    {
        let (server, _) = scripted(move |mut stream| {
            let _ = head(&mut reader(&stream));
            write!(stream, "{version} 200 OK\r\n{line}\r\n\r\n0\r\n\r\n").unwrap();
        });
        let proxy = proxy(&[server]);
        let mut client = Client::of(&proxy);
        client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(client.head().starts_with("http/1.1 502 "), "{version} {line}");
    }
}

#[test]
fn a_body_of_a_request_that_is_not_passed_on_is_no_request() {
    let text = "[[route]]\npath = \"/old\"\nredirect = { to = \"https://b/*\" }\n";
    let proxy = of_text(text);
    for fields in ["Content-Length: 37", "Transfer-Encoding: chunked", "Transfer-Encoding: x", "Content-Length: 0, 37"]
    {
        let mut client = Client::of(&proxy);
        let request =
            format!("POST /old HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\nGET /old/second HTTP/1.1\r\nHost: a\r\n\r\n");
        client.ask(&request);
        assert!(client.head().starts_with("http/1.1 308 "), "{fields}");
        assert!(!client.rest().contains("HTTP/1.1"), "{fields}");
    }
}
