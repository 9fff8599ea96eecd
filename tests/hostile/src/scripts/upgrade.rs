//! Upgrade requests: slow, huge, ambiguous and wrong ones (RFC 6455, section 4.2; RFC 9112).

use crate::script::{Begin, Expect, Script, Step};
use crate::wire::{TEXT, masked, upgrade};
use std::time::Duration;

pub(super) const GROUP: &str = "upgrade requests";
const KEY: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const REST: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n";

pub(super) fn scripts() -> Vec<Script> {
    let mut all = heads();
    all.extend(fields());
    all.extend(streams());
    all
}

fn request(name: &str, head: impl Into<Vec<u8>>, status: u16) -> Script {
    Script::new(GROUP, name, vec![Step::Send(head.into())], Expect::Status(status)).begin(Begin::Secure)
}

/// Heads that are no HTTP, or that servers read differently.
fn heads() -> Vec<Script> {
    let good = String::from_utf8_lossy(&upgrade("")).into_owned();
    let with = |line: &str| upgrade(line);
    vec![
        request("the request of a browser", good.clone(), 101),
        request("LF instead of CRLF", good.replace("\r\n", "\n"), 400),
        request("LF behind one header", good.replace("localhost\r\n", "localhost\n"), 400),
        request("CR alone behind one header", good.replace("localhost\r\n", "localhost\r"), 400),
        request("NUL in a value", with("X-A: a\0b\r\n"), 400),
        request("NUL in a name", with("X\0A: b\r\n"), 400),
        request("NUL in the target", good.replace("/chat", "/ch\0at"), 400),
        request("a control character in a value", with("X-A: \x01\r\n"), 400),
        request("a folded header", with("X-A: b\r\n c\r\n"), 400),
        request("a folded first header", good.replace("Host", " Host"), 400),
        request("white space before a colon", with("X-A : b\r\n"), 400),
        request("an empty name", with(": b\r\n"), 400),
        request("a header without a colon", with("nonsense\r\n"), 400),
        request("a name with a space", with("X A: b\r\n"), 400),
        request("bytes above 0x7f in a name", with("X\u{e9}: b\r\n"), 400),
        request("the method in lower case", good.replace("GET", "get"), 405),
        request("POST", good.replace("GET", "POST"), 405),
        request("a method of 9,000 letters", good.replace("GET", &"G".repeat(9_000)), 400)
            .or(Expect::Status(414))
            .or(Expect::Status(431))
            .or(Expect::Status(405))
            .or(Expect::Status(501)),
        request("HTTP/1.0", good.replace("HTTP/1.1", "HTTP/1.0"), 505).or(Expect::Status(426)),
        request("HTTP/2.0 in the request line", good.replace("HTTP/1.1", "HTTP/2.0"), 505),
        request("HTTP/1.2", good.replace("HTTP/1.1", "HTTP/1.2"), 505).or(Expect::Status(400)),
        request("HTTP/9", good.replace("HTTP/1.1", "HTTP/9"), 505).or(Expect::Status(400)),
        request("the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        request("no version", good.replace(" HTTP/1.1", ""), 400).or(Expect::Status(505)),
        request("two spaces in the request line", good.replace("GET /", "GET  /"), 400),
        request("a tab in the request line", good.replace("GET /", "GET\t/"), 400),
        request("an empty target", good.replace("/chat", ""), 400).or(Expect::Status(505)),
        request("a relative target", good.replace("/chat", "chat"), 400),
        request("a target in absolute form", good.replace("/chat", "http://localhost/chat"), 101),
        request("a target with a fragment", good.replace("/chat", "/chat#there"), 400).or(Expect::Status(101)),
        request("a target that climbs", good.replace("/chat", "/../../etc/passwd"), 101).or(Expect::Status(400)),
        request("a target of 9,000 bytes", good.replace("/chat", &format!("/{}", "a".repeat(9_000))), 101),
        request("a target of 100,000 bytes", good.replace("/chat", &format!("/{}", "a".repeat(100_000))), 414),
        request("a header of 100,000 bytes", with(&format!("X-A: {}\r\n", "b".repeat(100_000))), 431),
        request("a name of 20,000 bytes", with(&format!("{}: b\r\n", "X".repeat(20_000))), 431),
        request("101 headers", with(&"X-A: b\r\n".repeat(101)), 431),
        request("10,000 headers", with(&"X-A: b\r\n".repeat(10_000)), 431),
        request("10,000 empty headers", with(&"X:\r\n".repeat(10_000)), 431),
        request("CONNECT", "CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n", 400)
            .or(Expect::Status(405))
            .or(Expect::Status(404)),
        request("OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 405)
            .or(Expect::Status(404))
            .or(Expect::Status(400))
            .or(Expect::Status(200)),
        request("TLS inside", b"\x16\x03\x01\x00\xff\x01\x00\x00\xfb\x03\x03\r\n\r\n".to_vec(), 400).or(Expect::Hangup),
        request("a line of SSH", "SSH-2.0-OpenSSH_9.6\r\n\r\n", 400),
        request("random bytes", [&[0x9a, 0xff, 3, 0, 8, 0xc3][..], b"\r\n\r\n"].concat(), 400),
    ]
}

/// Requests whose fields are missing, doubled or contradictory.
fn fields() -> Vec<Script> {
    let head = |host: &str, fields: &str| format!("GET /chat HTTP/1.1\r\n{host}{fields}\r\n");
    let host = "Host: localhost\r\n";
    let key = |key: &str| head(host, &format!("Sec-WebSocket-Key: {key}\r\n{REST}"));
    let smuggled = "GET /admin HTTP/1.1\r\nHost: localhost\r\n\r\n";
    vec![
        request("no Host", head("", &format!("{KEY}{REST}")), 400),
        request("two Hosts", head("Host: a\r\nHost: b\r\n", &format!("{KEY}{REST}")), 400),
        request("two equal Hosts", head("Host: a\r\nHost: a\r\n", &format!("{KEY}{REST}")), 400),
        request("a Host with a path", head("Host: a/b\r\n", &format!("{KEY}{REST}")), 400),
        request("a Host with a user", head("Host: u@a\r\n", &format!("{KEY}{REST}")), 400),
        request("no key", head(host, REST), 400),
        request("two keys", head(host, &format!("{KEY}{KEY}{REST}")), 400),
        request("an empty key", key(""), 400),
        request("a key of 15 bytes", key("AAAAAAAAAAAAAAAAAAAA"), 400),
        request("a key of 17 bytes", key("AAAAAAAAAAAAAAAAAAAAAAA="), 400),
        request("a key that is not base64", key("!!!!!!!!!!!!!!!!!!!!!!=="), 400),
        request("a key with stray bits", key("dGhlIHNhbXBsZSBub25jZR=="), 400).or(Expect::Status(101)),
        request("no version of WebSocket", head(host, &format!("{KEY}{}", REST.replace("13", ""))), 426)
            .or(Expect::Status(400)),
        request("version 8", head(host, &format!("{KEY}{}", REST.replace("13", "8"))), 426),
        request("version 0x0d", head(host, &format!("{KEY}{}", REST.replace("13", "0x0d"))), 426)
            .or(Expect::Status(400)),
        request("version 013", head(host, &format!("{KEY}{}", REST.replace("13", "013"))), 426).or(Expect::Status(400)),
        request("two versions", upgrade("Sec-WebSocket-Version: 8\r\n"), 400).or(Expect::Status(426)),
        request("no Upgrade", head(host, &format!("{KEY}{}", REST.replace("Upgrade: websocket\r\n", ""))), 426)
            .or(Expect::Status(200))
            .or(Expect::Status(404)),
        request("Upgrade to h2c", head(host, &format!("{KEY}{}", REST.replace("websocket", "h2c"))), 426)
            .or(Expect::Status(200))
            .or(Expect::Status(404)),
        request("no Connection", head(host, &format!("{KEY}{}", REST.replace("Connection: Upgrade\r\n", ""))), 426)
            .or(Expect::Status(200))
            .or(Expect::Status(404)),
        request("an Origin of another site", upgrade("Origin: https://evil.example\r\n"), 403),
        request("the Origin null", upgrade("Origin: null\r\n"), 403),
        request("two Origins", upgrade("Origin: http://localhost\r\nOrigin: https://evil.example\r\n"), 400)
            .or(Expect::Status(403)),
        request("Content-Length and a body", upgrade("Content-Length: 5\r\n"), 400),
        request("Content-Length twice", upgrade("Content-Length: 0\r\nContent-Length: 0\r\n"), 400)
            .or(Expect::Status(101)),
        request("two Content-Lengths that differ", upgrade("Content-Length: 0\r\nContent-Length: 5\r\n"), 400),
        request("a Content-Length below 0", upgrade("Content-Length: -1\r\n"), 400),
        request("a Content-Length with a plus", upgrade("Content-Length: +0\r\n"), 400),
        request("a Content-Length above 2^64", upgrade("Content-Length: 99999999999999999999999\r\n"), 400)
            .or(Expect::Status(413)),
        request("a chunked body", upgrade("Transfer-Encoding: chunked\r\n"), 400).or(Expect::Status(501)),
        request(
            "Content-Length and a chunked body",
            upgrade("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"),
            400,
        )
        .or(Expect::Status(501)),
        request("a chunked body with white space", upgrade("Transfer-Encoding: \x0bchunked\r\n"), 400)
            .or(Expect::Status(501)),
        request(
            "a request hidden in a body",
            [&upgrade(&format!("Content-Length: {}\r\n", smuggled.len()))[..], smuggled.as_bytes()].concat(),
            400,
        ),
        request("Expect: 100-continue", upgrade("Expect: 100-continue\r\n"), 417)
            .or(Expect::Status(101))
            .or(Expect::Status(400)),
        request("a subprotocol that nobody knows", upgrade("Sec-WebSocket-Protocol: nonsense\r\n"), 101),
        request("a subprotocol that is no token", upgrade("Sec-WebSocket-Protocol: a b\r\n"), 400)
            .or(Expect::Status(101)),
        request("the same subprotocol twice", upgrade("Sec-WebSocket-Protocol: a, a\r\n"), 400).or(Expect::Status(101)),
        request("5,000 subprotocols", upgrade(&format!("Sec-WebSocket-Protocol: {}\r\n", "a,".repeat(2_500))), 101)
            .or(Expect::Status(431))
            .or(Expect::Status(400)),
    ]
}

/// Requests in pieces, behind each other, and without an end.
fn streams() -> Vec<Script> {
    let slow = Duration::from_millis(200);
    let get = "GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let echo = masked(TEXT, b"first");
    let piece =
        |name: &str, steps: Vec<Step>, expect: Expect| Script::new(GROUP, name, steps, expect).begin(Begin::Secure);
    vec![
        piece("in single bytes", vec![Step::Pieces(upgrade(""), 1)], Expect::Status(101)),
        piece("in pieces of 7 bytes", vec![Step::Pieces(upgrade(""), 7)], Expect::Status(101)),
        piece("with a frame right behind", vec![Step::Send([upgrade(""), echo.clone()].concat())], Expect::Status(101)),
        piece(
            "a frame before the answer is read",
            vec![Step::Send(upgrade("")), Step::Send(echo)],
            Expect::Status(101),
        ),
        piece("two upgrades at once", vec![Step::Send([upgrade(""), upgrade("")].concat())], Expect::Status(101)),
        piece("100 plain requests at once", vec![Step::Send(get.repeat(100).into())], Expect::Status(404))
            .or(Expect::Status(200))
            .or(Expect::Status(426)),
        piece(
            "a head without an end, 20 MB",
            vec![
                Step::Send(b"GET / HTTP/1.1\r\nHost: x\r\n".to_vec()),
                Step::Times(320, vec![Step::Send(format!("X-A: {}\r\n", "b".repeat(1_000)).repeat(64).into())]),
            ],
            Expect::Status(431),
        ),
        piece("half a head", vec![Step::Send(b"GET /chat HT".to_vec())], Expect::Status(408)).slow(),
        piece("one byte every 200 ms", vec![Step::Drip(upgrade(&"X-A: b\r\n".repeat(20)), slow)], Expect::Status(408))
            .slow(),
        piece("silence", Vec::new(), Expect::Hangup).or(Expect::Status(408)).slow(),
    ]
}
