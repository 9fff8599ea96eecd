//! Heads as they leave the proxy.

use super::Framing;
use super::identity::tells_of_certificate;
use super::switching::tokens;
use std::net::IpAddr;
use tautline::Address;
use tautline::http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue,
    ORIGIN, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use tautline::http::{Method, Response, Version};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Removes the fields that are for one connection alone, and those that `Connection` names (RFC 9110, section 7.6.1).
///
/// A client cannot have one removed by whose absence a server would take the request for another one.
pub fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let names = tokens(headers, &CONNECTION).filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok());
    let names: Vec<HeaderName> = names.filter(|name| !is_for_all(name)).collect();
    names.iter().for_each(|name| _ = headers.remove(name));
    for name in [
        CONNECTION,
        KEEP_ALIVE,
        PROXY_CONNECTION,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
    ] {
        headers.remove(name);
    }
}

/// Whether a field is for the server whatever `Connection` says.
fn is_for_all(name: &HeaderName) -> bool {
    matches!(*name, HOST | AUTHORIZATION | COOKIE | ORIGIN | CONTENT_LENGTH) || tells_of_client(name.as_str())
}

/// Whether a field tells a server of its client. One with underscores is the same one to servers that have fields as variables.
fn tells_of_client(name: &str) -> bool {
    if name.contains('_') {
        return tells_of_client(&name.replace('_', "-"));
    }
    let is_address = name == FORWARDED.as_str() || name == "x-real-ip" || name.starts_with("x-forwarded-");
    is_address || tells_of_certificate(name)
}

/// The upgrade that a client asks for: to WebSocket alone, and named by `Connection` (RFC 9110, section 7.8).
///
/// A server that changed to another protocol would take requests of which the proxy sees nothing.
pub fn websocket_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut protocols = headers.get_all(UPGRADE).iter();
    let is_websocket = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"websocket");
    if !protocols.next().is_some_and(is_websocket) || protocols.next().is_some() {
        return None;
    }
    let is_named = tokens(headers, &CONNECTION).any(|name| name.eq_ignore_ascii_case("upgrade"));
    is_named.then(|| HeaderValue::from_static("websocket"))
}

/// The client of a request, as its server is told.
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    /// Its address; `None` over a Unix socket.
    pub address: Option<IpAddr>,
    /// The address of the proxy that told of it, which is trusted.
    pub proxy: Option<&'a Address>,
    /// Whether it came over TLS.
    pub is_secure: bool,
}

/// Replaces what a client may have said of itself. The proxy is the first that can be trusted, or the one before it.
pub fn set_forwarded(headers: &mut HeaderMap, client: Client<'_>) {
    let scheme = if client.is_secure { "https" } else { "http" };
    // A proxy before this one may have had the TLS of the client.
    let told =
        headers.get(X_FORWARDED_PROTO).filter(|told| client.proxy.is_some() && (*told == "http" || *told == "https"));
    let scheme = told.cloned().unwrap_or_else(|| HeaderValue::from_static(scheme));
    let claims: Vec<HeaderName> = headers.keys().filter(|name| tells_of_client(name.as_str())).cloned().collect();
    claims.iter().for_each(|name| _ = headers.remove(name));
    let proxy = client.proxy.and_then(|proxy| if let Address::Tcp(proxy) = proxy { Some(proxy.ip()) } else { None });
    let chain = [client.address, proxy].into_iter().flatten().map(|address| address.to_canonical().to_string());
    let chain = chain.collect::<Vec<_>>().join(", ");
    if let Some(chain) = HeaderValue::try_from(chain).ok().filter(|chain| !chain.is_empty()) {
        headers.insert(X_FORWARDED_FOR, chain);
    }
    headers.insert(X_FORWARDED_PROTO, scheme);
    if let Some(host) = headers.get(HOST).cloned() {
        headers.insert(X_FORWARDED_HOST, host);
    }
}

/// The parts of a request for a server.
#[derive(Debug)]
pub struct RequestHead<'a> {
    /// The method.
    pub method: &'a Method,
    /// The target in origin form.
    pub target: &'a str,
    /// The fields, without those for one connection.
    pub headers: &'a HeaderMap,
    /// The length of the body.
    pub framing: Framing,
    /// The protocol to which the client wants to change.
    pub upgrade: Option<&'a HeaderValue>,
    /// Whether the connection serves no further request.
    pub is_last: bool,
}

impl RequestHead<'_> {
    /// Appends the head, in HTTP/1.1.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.method.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(self.target.as_bytes());
        out.extend_from_slice(b" HTTP/1.1\r\n");
        if !self.headers.contains_key(HOST) {
            // A client of HTTP/1.0 need not name a host, and a server of HTTP/1.1 wants the field.
            out.extend_from_slice(b"Host: \r\n");
        }
        write_fields(self.headers, out);
        match self.framing {
            Framing::Length(len) => write_field(&CONTENT_LENGTH, len.to_string().as_bytes(), out),
            Framing::Chunked => write_field(&TRANSFER_ENCODING, b"chunked", out),
            Framing::Empty if matches!(*self.method, Method::POST | Method::PUT | Method::PATCH) => {
                write_field(&CONTENT_LENGTH, b"0", out);
            }
            Framing::Empty | Framing::UntilEnd => {}
        }
        if let Some(upgrade) = self.upgrade {
            write_field(&CONNECTION, b"Upgrade", out);
            write_field(&UPGRADE, upgrade.as_bytes(), out);
        } else if self.is_last {
            write_field(&CONNECTION, b"close", out);
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends the head of a response that changes the protocol, with the server's fields.
pub fn write_switching(response: &Response<()>, out: &mut Vec<u8>) {
    let mut headers = response.headers().clone();
    let upgrade = headers.get(UPGRADE).cloned();
    remove_hop_by_hop(&mut headers);
    headers.remove(CONTENT_LENGTH);
    out.extend_from_slice(b"HTTP/1.1 101 Switching Protocols\r\n");
    write_fields(&headers, out);
    write_field(&CONNECTION, b"Upgrade", out);
    if let Some(upgrade) = upgrade {
        write_field(&UPGRADE, upgrade.as_bytes(), out);
    }
    out.extend_from_slice(b"\r\n");
}

/// Whether the server may get another request on its connection behind this response (RFC 9112, section 9.3).
#[must_use]
pub fn keeps_alive(response: &Response<()>) -> bool {
    let mut tokens = tokens(response.headers(), &CONNECTION);
    match response.version() {
        Version::HTTP_11 => !tokens.any(|token| token.eq_ignore_ascii_case("close")),
        _ => tokens.any(|token| token.eq_ignore_ascii_case("keep-alive")),
    }
}

/// Removes what a client of HTTP/1.0 cannot mean: it knows no interim responses.
pub fn remove_expectation(headers: &mut HeaderMap) {
    headers.remove(EXPECT);
}

fn write_fields(headers: &HeaderMap, out: &mut Vec<u8>) {
    for (name, value) in headers {
        if !matches!(*name, CONTENT_LENGTH | TRANSFER_ENCODING | CONNECTION | UPGRADE) {
            write_field(name, value.as_bytes(), out);
        }
    }
}

/// Appends a field, its name in the usual capitals: case has no meaning, but some old peers require this one.
fn write_field(name: &HeaderName, value: &[u8], out: &mut Vec<u8>) {
    for (index, word) in name.as_str().split('-').enumerate() {
        if index > 0 {
            out.push(b'-');
        }
        if word == "websocket" {
            out.extend_from_slice(b"WebSocket");
        } else if let [first, rest @ ..] = word.as_bytes() {
            out.push(first.to_ascii_uppercase());
            out.extend_from_slice(rest);
        }
    }
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline::http::Request;

    fn client<'a>(address: &str, proxy: Option<&'a Address>) -> Client<'a> {
        Client { address: Some(address.parse().unwrap()), proxy, is_secure: true }
    }

    fn fields(fields: &[(&str, &str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn no_field_tells_of_a_client_but_those_of_the_proxy() {
        let claims =
            ["x-forwarded-for", "x_forwarded_for", "x-forwarded_for", "x-real-ip", "forwarded", "x-forwarded-proto"];
        for claim in
            claims.into_iter().chain(["x-forwarded-host", "x-forwarded-port", "x_real_ip", "x-forwarded-prefix"]).chain(
                ["x-client-cert-verified", "x_client_cert_subject", "x-client_cert-san", "client-cert", "client_cert"],
            )
        {
            let mut headers = fields(&[(claim, "10.0.0.1"), ("host", "a"), ("x-own_name", "1")]);
            set_forwarded(&mut headers, client("192.0.2.1", None));
            let expected = [
                ("host", "a"),
                ("x-own_name", "1"),
                ("x-forwarded-for", "192.0.2.1"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-host", "a"),
            ];
            assert_eq!(headers, fields(&expected), "{claim}");
        }
    }

    #[test]
    fn a_trusted_proxy_is_named_behind_the_client() {
        let told = [("x-forwarded-for", "10.9.9.9, 192.0.2.1"), ("x-forwarded-proto", "http")];
        let proxy = "10.0.0.1:5".parse().unwrap();
        for (proxy, chain) in [(&proxy, "192.0.2.1, 10.0.0.1"), (&Address::UnixUnnamed, "192.0.2.1")] {
            let mut headers = fields(&told);
            set_forwarded(&mut headers, client("192.0.2.1", Some(proxy)));
            assert_eq!(headers, fields(&[("x-forwarded-for", chain), ("x-forwarded-proto", "http")]));
        }
        let mut headers = fields(&[("x-forwarded-proto", "javascript")]);
        set_forwarded(&mut headers, client("192.0.2.1", Some(&proxy)));
        assert_eq!(headers["x-forwarded-proto"], "https");
    }

    #[test]
    fn connection_removes_no_field_that_servers_decide_by() {
        let kept = ["host", "authorization", "cookie", "origin", "content-length", "x-forwarded-for", "x-real-ip"];
        for name in kept {
            let mut headers = fields(&[("connection", name), (name, "1")]);
            remove_hop_by_hop(&mut headers);
            assert_eq!(headers, fields(&[(name, "1")]));
        }
        let mut headers = fields(&[("connection", "close, X-Own"), ("x-own", "1")]);
        remove_hop_by_hop(&mut headers);
        assert!(headers.is_empty());
    }

    #[test]
    fn fields_of_one_connection_and_claims_of_the_client_are_not_passed_on() {
        let request = Request::post("/a?b")
            .header("host", "example.org")
            .header("connection", "close, X-Secret, host, content-length")
            .header("x-secret", "1")
            .header("keep-alive", "timeout=5")
            .header("te", "trailers")
            .header("content-length", "5")
            .header("x-forwarded-for", "10.0.0.1")
            .header("forwarded", "for=10.0.0.1")
            .header("cookie", "a=b")
            .body(())
            .unwrap();
        let mut headers = request.headers().clone();
        remove_hop_by_hop(&mut headers);
        set_forwarded(&mut headers, client("192.0.2.1", None));
        let mut out = Vec::new();
        let framing = Framing::of_request(&request).unwrap();
        let (method, headers) = (request.method(), &headers);
        RequestHead { method, target: "/a?b", headers, framing, upgrade: None, is_last: false }.write(&mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("POST /a?b HTTP/1.1\r\n") && text.ends_with("\r\n\r\n"), "{text}");
        for field in [
            "Host: example.org",
            "Cookie: a=b",
            "Content-Length: 5",
            "X-Forwarded-For: 192.0.2.1",
            "X-Forwarded-Proto: https",
            "X-Forwarded-Host: example.org",
        ] {
            assert_eq!(text.matches(&format!("\r\n{field}\r\n")).count(), 1, "{field}: {text}");
        }
        assert_eq!(text.matches("\r\n").count(), 8, "{text}");
    }

    #[test]
    fn only_an_upgrade_to_websocket_is_passed_on() {
        for (fields, is_passed_on) in [
            (&[("connection", "Upgrade"), ("upgrade", "websocket")][..], true),
            (&[("connection", "keep-alive, upgrade"), ("upgrade", "WebSocket")], true),
            (&[("connection", "Upgrade"), ("upgrade", "h2c"), ("sec-websocket-key", "x")], false),
            (&[("connection", "Upgrade"), ("upgrade", "h2c, websocket")], false),
            (&[("connection", "Upgrade"), ("upgrade", "websocket"), ("upgrade", "h2c")], false),
            (&[("upgrade", "websocket"), ("sec-websocket-key", "x")], false),
            (&[("connection", "Upgrade"), ("sec-websocket-key", "x")], false),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            assert_eq!(websocket_upgrade(&headers).is_some(), is_passed_on, "{fields:?}");
        }
    }

    #[test]
    fn an_upgrade_keeps_its_fields() {
        let response = Response::builder()
            .status(101)
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-accept", "x")
            .header("sec-websocket-extensions", "permessage-deflate");
        let mut out = Vec::new();
        write_switching(&response.body(()).unwrap(), &mut out);
        let text = String::from_utf8(out).unwrap();
        for field in ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Extensions: permessage-deflate"] {
            assert_eq!(text.matches(&format!("\r\n{field}\r\n")).count(), 1, "{text}");
        }
    }

    #[test]
    fn old_servers_keep_connections_only_if_they_say_so() {
        let of = |version, value: &str| {
            let response = Response::builder().version(version).header("connection", value);
            keeps_alive(&response.body(()).unwrap())
        };
        assert!(of(Version::HTTP_11, "") && !of(Version::HTTP_11, "x, Close"));
        assert!(!of(Version::HTTP_10, "") && of(Version::HTTP_10, "Keep-Alive"));
    }
}
