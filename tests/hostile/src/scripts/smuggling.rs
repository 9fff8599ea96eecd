//! Requests that a proxy and its server could read differently (RFC 9112, section 11.2), and claims that only a proxy may make.

use crate::edge::{FORGED, HIDDEN};
use crate::script::{Begin, Expect, Script, Step};
use crate::wire::upgrade;

const GROUP: &str = "requests to a proxy";

pub(crate) fn scripts() -> Vec<Script> {
    let mut all = framings();
    all.extend(chunks());
    all.extend(paths());
    all.extend(claims());
    all.extend(upgrades());
    all
}

fn request(name: &str, bytes: impl Into<Vec<u8>>, status: u16) -> Script {
    Script::new(GROUP, name, vec![Step::Send(bytes.into())], Expect::Status(status)).begin(Begin::Secure)
}

/// A request for the hidden path.
fn hidden() -> String {
    format!("GET {HIDDEN} HTTP/1.1\r\nHost: localhost\r\nX: ")
}

/// Bodies whose length has two readings, with a hidden request at the place where one of them ends.
fn framings() -> Vec<Script> {
    let behind = format!("0\r\n\r\n{}\r\n\r\n", hidden());
    let post = |fields: &str| format!("POST /a HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n{behind}");
    let len = behind.len();
    let both = format!("Content-Length: {len}\r\nTransfer-Encoding: chunked");
    let refused = [
        ("CL.TE", both),
        ("TE.CL", format!("Transfer-Encoding: chunked\r\nContent-Length: {len}")),
        ("TE.TE, the second identity", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity".to_owned()),
        ("TE.TE, the first unknown", "Transfer-Encoding: x\r\nTransfer-Encoding: chunked".to_owned()),
        ("chunked is not the last coding", "Transfer-Encoding: chunked, identity".to_owned()),
        ("xchunked", format!("Content-Length: {len}\r\nTransfer-Encoding: xchunked")),
        ("chunked in quotes", format!("Content-Length: {len}\r\nTransfer-Encoding: \"chunked\"")),
        ("a vertical tab before chunked", format!("Content-Length: {len}\r\nTransfer-Encoding: \x0bchunked")),
        ("a space before the colon", format!("Content-Length: {len}\r\nTransfer-Encoding : chunked")),
        ("a tab before the colon", format!("Content-Length: {len}\r\nTransfer-Encoding\t: chunked")),
        ("a folded coding", format!("Content-Length: {len}\r\nTransfer-Encoding:\r\n chunked")),
        ("a field behind LF alone", format!("Content-Length: {len}\r\nX: y\nTransfer-Encoding: chunked")),
        ("a field behind CR alone", format!("Content-Length: {len}\r\nX: y\rTransfer-Encoding: chunked")),
        ("a field behind NUL", format!("Content-Length: {len}\r\nX: y\0Transfer-Encoding: chunked")),
        ("an empty coding", format!("Content-Length: {len}\r\nTransfer-Encoding:")),
        ("two lengths", format!("Content-Length: 5\r\nContent-Length: {len}")),
        ("two equal lengths", format!("Content-Length: {len}\r\nContent-Length: {len}")),
        ("a list of lengths", format!("Content-Length: 5, {len}")),
        ("a length with a sign", format!("Content-Length: +{len}")),
        ("a length in hexadecimal digits", "Content-Length: 0x5".to_owned()),
        ("a length with a space in it", "Content-Length: 5 5".to_owned()),
        ("a length beyond 64 bits", "Content-Length: 18446744073709551617".to_owned()),
        ("a length below 0", "Content-Length: -1".to_owned()),
        ("an empty length", "Content-Length:".to_owned()),
        ("a name with a space", "Content Length: 5".to_owned()),
    ];
    let mut all: Vec<Script> = refused.into_iter().map(|(name, fields)| request(name, post(&fields), 400)).collect();
    let old = format!("POST /a HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{behind}");
    all.push(request("a chunked body in HTTP/1.0", old, 400));
    all
}

/// Chunks that two parsers end at different places. The server may have got the head, and never a whole request behind it.
fn chunks() -> Vec<Script> {
    let head = "POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    let hidden = hidden();
    let bad = [
        ("a length of a chunk with 0x", format!("0x5\r\nhello\r\n0\r\n\r\n{hidden}\r\n\r\n")),
        ("a length of a chunk with a sign", format!("+5\r\nhello\r\n0\r\n\r\n{hidden}\r\n\r\n")),
        ("a chunk behind LF alone", format!("5\nhello\r\n0\r\n\r\n{hidden}\r\n\r\n")),
        ("an extension with LF", format!("5;\nx\r\nhello\r\n0\r\n\r\n{hidden}\r\n\r\n")),
        ("a chunk longer than said", format!("5\r\nhelloX\r\n0\r\n\r\n{hidden}\r\n\r\n")),
        ("no end of line behind a chunk", format!("5\r\nhello0\r\n\r\n{hidden}\r\n\r\n")),
        ("a length beyond 64 bits", format!("10000000000000005\r\nhello\r\n0\r\n\r\n{hidden}\r\n\r\n")),
        ("a trailer with LF alone", format!("0\r\nX: y\n\r\n{hidden}\r\n\r\n")),
    ];
    bad.into_iter().map(|(name, body)| request(&format!("{name}, chunked"), format!("{head}{body}"), 400)).collect()
}

/// Other spellings of the path that the proxy keeps for itself.
fn paths() -> Vec<Script> {
    let get = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let spelled = |name: &str, target: &str| request(name, get(target), 403).or(Expect::Status(400));
    vec![
        request("the hidden path", get(HIDDEN), 403),
        spelled("in percent digits", "/%68idden"),
        spelled("in percent digits twice", "/%2568idden").or(Expect::Status(404)),
        spelled("behind dots", "/x/../hidden"),
        spelled("behind encoded dots", "/x/%2e%2e/hidden"),
        spelled("behind a dot", "/./hidden"),
        spelled("behind two slashes", "//hidden"),
        spelled("behind an encoded slash", "/x/..%2fhidden"),
        spelled("behind a backslash", "/x\\..\\hidden"),
        spelled("with a parameter", "/hidden;x=y"),
        spelled("behind ..;", "/x/..;/hidden"),
        spelled("with a query", "/hidden?x"),
        spelled("in absolute form", "http://localhost/hidden"),
        spelled("with a NUL", "/hidden%00"),
        spelled("with a space", "/x /hidden"),
        request("another request behind it", format!("{}{}", get("/hidden"), get("/hidden")), 403),
    ]
}

/// Fields by which servers know a client, as the client sends them.
fn claims() -> Vec<Script> {
    let claim = |field: &str| {
        let head = format!("GET /a HTTP/1.1\r\nHost: localhost\r\n{field}: {FORGED}\r\nConnection: close\r\n\r\n");
        request(&format!("a claim in {field}"), head, 404).or(Expect::Status(400)).or(Expect::Status(200))
    };
    let mut all: Vec<Script> = [
        "X-Forwarded-For",
        "X_Forwarded_For",
        "X-Forwarded-Proto",
        "X-Forwarded-Host",
        "X-Forwarded-Port",
        "X-Real-IP",
        "x_real_ip",
        "Forwarded",
        "X-Client-Cert-Subject",
        "X_Client_Cert_Verified",
        "Client-Cert",
        "X-Request-Id",
    ]
    .map(claim)
    .into();
    let named = format!(
        "GET /a HTTP/1.1\r\nHost: localhost\r\nConnection: close, X-Forwarded-For, Host\r\nX-Forwarded-For: {FORGED}\r\n\r\n"
    );
    all.push(request("a claim that Connection names", named, 404).or(Expect::Status(200)));
    let trace = format!("TRACE /a HTTP/1.1\r\nHost: localhost\r\nX-A: {FORGED}\r\n\r\n");
    all.push(request("TRACE", trace, 405));
    all.push(request("CONNECT through the proxy", "CONNECT localhost:1 HTTP/1.1\r\nHost: localhost:1\r\n\r\n", 405));
    all
}

/// Upgrades behind which a proxy could take requests for another protocol.
fn upgrades() -> Vec<Script> {
    let behind = |head: Vec<u8>| [head, format!("{}\r\n\r\n", hidden()).into_bytes()].concat();
    let replaced = |from: &str, to: &str| String::from_utf8_lossy(&upgrade("")).replace(from, to).into_bytes();
    let h2c = "GET /a HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
               HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n";
    vec![
        request("a hidden request behind a refused version", behind(replaced("13", "8")), 426),
        request("a hidden request behind a key that is none", behind(replaced("dGhlIHNhbXBsZSBub25jZQ==", "x")), 400),
        request("a hidden request behind no Upgrade", behind(replaced("Upgrade: websocket\r\n", "")), 426)
            .or(Expect::Status(400)),
        request("a hidden request behind h2c", behind(h2c.into()), 404).or(Expect::Status(426)).or(Expect::Status(200)),
        request("a hidden request behind h2c and a key", behind(replaced("websocket", "h2c")), 426)
            .or(Expect::Status(400)),
    ]
}
