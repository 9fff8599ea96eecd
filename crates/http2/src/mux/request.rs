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
        // The stream ends with an answer that opens no WebSocket.
        out.put(b"connection: close, upgrade\r\nupgrade: websocket\r\n");
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

/// Writes a part of a body, or its end. `open` is what this function keeps of the last chunk: the bytes in it, if they and the
/// size before them are still at the end of `out`. A peer that sends byte by byte then makes one chunk, not one of 13 bytes for
/// each of its own.
pub(super) fn write_body(body: Body, data: &[u8], end: bool, open: &mut usize, out: &mut Buf) {
    match body {
        Body::Counted | Body::Tunnel => out.put(data),
        Body::Chunked => {
            if !data.is_empty() {
                write_chunk(data, open, out);
            }
            if end {
                out.put(b"0\r\n\r\n");
                *open = 0;
            }
        }
    }
}

/// Bytes of a size with its CRLF: eight digits, which hold every window.
const SIZE: usize = 10;
const CRLF: &[u8] = b"\r\n";

fn write_chunk(data: &[u8], open: &mut usize, out: &mut Buf) {
    // The reader takes bytes from the front: what is as long as the chunk still has its size.
    let goes_on = *open > 0 && out.len() >= SIZE + *open + CRLF.len();
    let before = if goes_on { *open } else { 0 };
    if goes_on {
        out.truncate(out.len() - CRLF.len());
    } else {
        out.put(&[0; SIZE]);
    }
    out.put(data);
    *open = before + data.len();
    let at = out.len() - *open - SIZE;
    out.filled_mut()[at..at + SIZE].copy_from_slice(format!("{:08x}\r\n", *open).as_bytes());
    out.put(CRLF);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_come_alone_are_one_chunk_until_the_reader_has_taken_some() {
        let (mut out, mut open) = (Buf::new(), 0);
        out.put(b"head of a request\r\n\r\n");
        for byte in b"abc" {
            write_body(Body::Chunked, &[*byte], false, &mut open, &mut out);
        }
        assert_eq!(out.filled(), b"head of a request\r\n\r\n00000003\r\nabc\r\n");
        // All before the chunk is taken: it goes on. A byte of its size is taken: another begins.
        out.take(21);
        write_body(Body::Chunked, b"d", false, &mut open, &mut out);
        assert_eq!(out.filled(), b"00000004\r\nabcd\r\n");
        out.take(1);
        write_body(Body::Chunked, b"ef", false, &mut open, &mut out);
        assert_eq!(out.filled(), b"0000004\r\nabcd\r\n00000002\r\nef\r\n");
        out.clear();
        write_body(Body::Chunked, b"g", false, &mut open, &mut out);
        write_body(Body::Chunked, &[], true, &mut open, &mut out);
        assert_eq!(out.filled(), b"00000001\r\ng\r\n0\r\n\r\n");
    }

    #[test]
    fn a_body_byte_by_byte_takes_no_more_memory_than_its_bytes() {
        let (mut out, mut open) = (Buf::new(), 0);
        for _ in 0..65_535 {
            write_body(Body::Chunked, b"x", false, &mut open, &mut out);
        }
        assert_eq!(out.len(), 65_535 + SIZE + CRLF.len());
    }
}
