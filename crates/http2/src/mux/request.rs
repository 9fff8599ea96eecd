//! From the head of a request to HTTP/1.1, as a loop reads it.

use crate::fields::RequestHead;
use http::header::{CONTENT_LENGTH, EXPECT, HOST};
use http::{Method, StatusCode};
use tautline_buf::Buf;

/// The protocol of a WebSocket in extended CONNECT (RFC 8441, section 5).
const WEBSOCKET: &str = "websocket";
/// A key that every WebSocket over HTTP/2 has in HTTP/1.1: the handshake proves nothing there that HTTP/2 does not prove.
const KEY: &[u8] = b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";

/// The way in which the body of a request goes on to the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// None follows, or as many bytes as `content-length` says.
    Counted,
    /// In chunks (RFC 9112, section 7.1).
    Chunked,
    /// A WebSocket: all bytes, and an end.
    Tunnel,
}

/// Writes the head of a request. `end`: no body follows.
///
/// # Errors
/// The status with which the request is refused.
pub(super) fn write(head: &RequestHead, end: bool, out: &mut Buf) -> Result<Body, StatusCode> {
    let request = &head.request;
    let is_websocket = head.protocol.as_deref() == Some(WEBSOCKET);
    if !is_websocket && (head.protocol.is_some() || request.method() == Method::CONNECT) {
        return Err(StatusCode::NOT_IMPLEMENTED);
    }
    let uri = request.uri();
    let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let method = if is_websocket { "GET" } else { request.method().as_str() };
    for part in [method, " ", path, " HTTP/1.1\r\n"] {
        out.put(part.as_bytes());
    }
    let mut field = |name: &[u8], value: &[u8]| {
        for part in [name, b": ", value, b"\r\n"] {
            out.put(part);
        }
    };
    if let Some(authority) = uri.authority() {
        field(b"host", authority.as_str().as_bytes());
    }
    for (name, value) in request.headers() {
        // A loop answers `expect` before a body, and HTTP/2 has windows for that.
        let is_left_out = name == HOST && uri.authority().is_some() || name == EXPECT || is_websocket && is_own(name);
        if !is_left_out {
            field(name.as_str().as_bytes(), value.as_bytes());
        }
    }
    let body = if is_websocket {
        out.put(b"connection: upgrade\r\nupgrade: websocket\r\n");
        out.put(KEY);
        Body::Tunnel
    } else {
        out.put(b"connection: close\r\n");
        if end || request.headers().contains_key(CONTENT_LENGTH) {
            Body::Counted
        } else {
            out.put(b"transfer-encoding: chunked\r\n");
            Body::Chunked
        }
    };
    out.put(b"\r\n");
    Ok(body)
}

/// Fields of a WebSocket's request that have no meaning in HTTP/2.
fn is_own(name: &http::HeaderName) -> bool {
    name == http::header::SEC_WEBSOCKET_KEY || name == CONTENT_LENGTH
}

/// Writes a part of a body, or its end.
pub(super) fn write_body(body: Body, data: &[u8], end: bool, out: &mut Buf) {
    match body {
        Body::Counted | Body::Tunnel => out.put(data),
        Body::Chunked => {
            if !data.is_empty() {
                out.put(format!("{:x}\r\n", data.len()).as_bytes());
                out.put(data);
                out.put(b"\r\n");
            }
            if end {
                out.put(b"0\r\n\r\n");
            }
        }
    }
}
