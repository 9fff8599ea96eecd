use crate::fields::{at_most_one, has_token, list};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::{Method, Request, Response, StatusCode, Version};
use tautline_buf::Buf;

/// The framing of a response, which depends on its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The request's method was HEAD: the response has the length of the body, but not the body.
    pub head_only: bool,
    /// The connection stays open for another request.
    pub keep_alive: bool,
    /// The client speaks HTTP/1.0, which closes the connection unless the response says otherwise.
    pub old: bool,
}

impl Reply {
    /// The framing if the request could not be read: with body, then the connection closes.
    pub const LAST: Self = Self { head_only: false, keep_alive: false, old: false };

    /// The framing of the response to `request`.
    #[must_use]
    pub fn to(request: &Request<()>) -> Self {
        Self {
            head_only: request.method() == Method::HEAD,
            keep_alive: keep_alive(request),
            old: request.version() == Version::HTTP_10,
        }
    }

    /// The framing of the response to `request`, whose body was read to its end.
    #[must_use]
    pub fn after_body(request: &Request<()>) -> Self {
        Self { keep_alive: wants_another(request), ..Self::to(request) }
    }
}

/// The length of a response's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// The body has this many bytes.
    Length(u64),
    /// The body comes in chunks.
    Chunked,
    /// The body ends with the connection, for a client that speaks HTTP/1.0.
    UntilEnd,
}

/// Whether another request may follow this one on its connection (RFC 9112, section 9.3).
///
/// None may if the request has a body, which the caller has not read. [`Reply::after_body`] is for one that it has read.
#[must_use]
pub fn keep_alive(request: &Request<()>) -> bool {
    wants_another(request) && !has_body(request.headers())
}

fn wants_another(request: &Request<()>) -> bool {
    let headers = request.headers();
    let wanted = if request.version() == Version::HTTP_10 {
        has_token(headers, CONNECTION, "keep-alive")
    } else {
        request.version() == Version::HTTP_11
    };
    wanted && !has_token(headers, CONNECTION, "close") && request.method() != Method::CONNECT
}

/// Whether a request with these headers has a body, or may have one.
pub(super) fn has_body(headers: &HeaderMap) -> bool {
    headers.contains_key(TRANSFER_ENCODING)
        || at_most_one(headers, CONTENT_LENGTH).is_err()
        || headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0")
}

/// Appends a response to a plain HTTP request; returns whether the connection stays open for another request.
///
/// `Content-Length` and, if needed, `Connection` are set here and replace those of the response. A `Connection: close`
/// of the response is kept. Statuses without a body (1xx, 204, 304) are written without one.
///
/// `date` is the value of `Date`, which every server with a clock has to send (RFC 9110, section 6.6.1). A `Date` of the
/// response takes its place. `None` is for a server without a clock.
///
/// Nothing in a [`Response`] can end a line, so its content cannot add a header or a second response.
pub fn write_response<B: AsRef<[u8]>>(
    response: &Response<B>,
    reply: Reply,
    date: Option<&HeaderValue>,
    out: &mut Buf,
) -> bool {
    let body = response.body().as_ref();
    let framing = Framing::Length(body.len() as u64);
    let (has_body, keep_alive) = write_response_head(response, framing, reply, date, out);
    if has_body {
        out.put(body);
    }
    keep_alive
}

/// Appends the head of a response as [`write_response`] does. Returns whether its body follows, and whether the connection
/// stays open for another request.
pub fn write_response_head<B>(
    response: &Response<B>,
    framing: Framing,
    reply: Reply,
    date: Option<&HeaderValue>,
    out: &mut Buf,
) -> (bool, bool) {
    let status = response.status();
    let bodiless = status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let has_body = !bodiless && !reply.head_only;
    let ends = has_body && framing == Framing::UntilEnd;
    let keep_alive = reply.keep_alive && !ends && !has_token(response.headers(), CONNECTION, "close");
    write_status_line(status, out);
    if let Some(date) = date.filter(|_| !status.is_informational() && !response.headers().contains_key(DATE)) {
        write_field(&DATE, date.as_bytes(), out);
    }
    for (name, value) in response.headers() {
        if !matches!(*name, CONNECTION | CONTENT_LENGTH | TRANSFER_ENCODING) {
            write_field(name, value.as_bytes(), out);
        }
    }
    match framing {
        Framing::Length(len) if !bodiless => write_field(&CONTENT_LENGTH, len.to_string().as_bytes(), out),
        Framing::Chunked if !bodiless => write_field(&TRANSFER_ENCODING, b"chunked", out),
        _ => {}
    }
    write_connection(response.headers(), keep_alive, reply.old, out);
    out.put(b"\r\n");
    (has_body, keep_alive)
}

/// Appends `Connection`: our `close` or `keep-alive`, behind the response's other tokens, such as `Upgrade` in a 426.
fn write_connection(headers: &HeaderMap, keep_alive: bool, old: bool, out: &mut Buf) {
    let ours: Option<&[u8]> = match (keep_alive, old) {
        (false, _) => Some(b"close"),
        (true, true) => Some(b"keep-alive"),
        (true, false) => None,
    };
    let mut value = Vec::new();
    let theirs = list(headers, CONNECTION)
        .filter(|token| !token.eq_ignore_ascii_case(b"close") && !token.eq_ignore_ascii_case(b"keep-alive"));
    for token in theirs.chain(ours) {
        if !value.is_empty() {
            value.extend_from_slice(b", ");
        }
        value.extend_from_slice(token);
    }
    if !value.is_empty() {
        write_field(&CONNECTION, &value, out);
    }
}

/// Appends an unchanged head: status line, headers, empty line.
pub(super) fn write_head(response: &Response<()>, out: &mut Buf) {
    write_status_line(response.status(), out);
    write_fields(response.headers(), out);
    out.put(b"\r\n");
}

fn write_status_line(status: StatusCode, out: &mut Buf) {
    out.put(b"HTTP/1.1 ");
    out.put(status.as_str().as_bytes());
    out.put(b" ");
    out.put(status.canonical_reason().unwrap_or_default().as_bytes());
    out.put(b"\r\n");
}

/// Appends all header lines.
pub(super) fn write_fields(headers: &HeaderMap, out: &mut Buf) {
    for (name, value) in headers {
        write_field(name, value.as_bytes(), out);
    }
}

/// Appends one header line, its name in the usual capitals: case has no meaning, but some old peers require this one.
fn write_field(name: &HeaderName, value: &[u8], out: &mut Buf) {
    for (index, word) in name.as_str().split('-').enumerate() {
        if index > 0 {
            out.put(b"-");
        }
        if word == "websocket" {
            out.put(b"WebSocket");
        } else if let [first, rest @ ..] = word.as_bytes() {
            out.put(&[first.to_ascii_uppercase()]);
            out.put(rest);
        }
    }
    out.put(b": ");
    out.put(value);
    out.put(b"\r\n");
}

#[cfg(test)]
mod tests;
