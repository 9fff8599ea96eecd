use super::fields::{at_most_one, has_token};
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, TRANSFER_ENCODING};
use http::{Method, Request, Response, StatusCode, Version};
use tautline_window::Buf;

/// How a response is framed, by the request that it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The request's method was HEAD: the body's length is told, the body is not sent.
    pub head_only: bool,
    /// The connection stays open for another request.
    pub keep_alive: bool,
    /// The client speaks HTTP/1.0, which closes unless told otherwise.
    pub old: bool,
}

impl Reply {
    /// For requests that could not be read: with body, and closing.
    pub const LAST: Self = Self { head_only: false, keep_alive: false, old: false };

    /// For this request.
    #[must_use]
    pub fn to(request: &Request<()>) -> Self {
        Self {
            head_only: request.method() == Method::HEAD,
            keep_alive: keep_alive(request),
            old: request.version() == Version::HTTP_10,
        }
    }
}

/// Whether the connection can be used for another request after this one (RFC 9112, section 9.3).
///
/// Not where the request has a body, which nothing here reads: what follows it could not be told from it.
#[must_use]
pub fn keep_alive(request: &Request<()>) -> bool {
    let headers = request.headers();
    let wanted = if request.version() == Version::HTTP_10 {
        has_token(headers, CONNECTION, "keep-alive")
    } else {
        request.version() == Version::HTTP_11
    };
    wanted && !has_token(headers, CONNECTION, "close") && !has_body(headers) && request.method() != Method::CONNECT
}

/// Whether a request with these headers has a body, or may have one.
pub(super) fn has_body(headers: &HeaderMap) -> bool {
    headers.contains_key(TRANSFER_ENCODING)
        || at_most_one(headers, CONTENT_LENGTH).is_err()
        || headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0")
}

/// Appends a response to a plain HTTP request. Returns whether the connection stays open for another request.
///
/// `Content-Length` and, where needed, `Connection` are set here, whatever the response has; a `Connection: close` of its
/// own counts. Statuses that have no body (1xx, 204, 304) are written without. Nothing in a [`Response`] can end a line,
/// so none can add a header or a response that was not meant.
pub fn write_response<B: AsRef<[u8]>>(response: &Response<B>, reply: Reply, out: &mut Buf) -> bool {
    let body = response.body().as_ref();
    let status = response.status();
    let bodiless = status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let keep_alive = reply.keep_alive && !has_token(response.headers(), CONNECTION, "close");
    write_status_line(status, out);
    for (name, value) in response.headers() {
        if !matches!(*name, CONNECTION | CONTENT_LENGTH | TRANSFER_ENCODING) {
            write_field(name, value.as_bytes(), out);
        }
    }
    if !bodiless {
        write_field(&CONTENT_LENGTH, body.len().to_string().as_bytes(), out);
    }
    write_connection(response.headers(), keep_alive, reply.old, out);
    out.put(b"\r\n");
    if !bodiless && !reply.head_only {
        out.put(body);
    }
    keep_alive
}

/// What the response says of the connection, less what we decide: as `Upgrade` in a 426.
fn write_connection(headers: &HeaderMap, keep_alive: bool, old: bool, out: &mut Buf) {
    let ours: Option<&[u8]> = match (keep_alive, old) {
        (false, _) => Some(b"close"),
        (true, true) => Some(b"keep-alive"),
        (true, false) => None,
    };
    let mut value = Vec::new();
    let theirs = super::fields::list(headers, CONNECTION)
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

/// Appends a head as it is: status line, headers, empty line.
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

/// Appends one header line, its name with capitals: names have no case, but old peers know only the usual one.
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
