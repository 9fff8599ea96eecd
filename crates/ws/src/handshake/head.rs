use super::HandshakeError;
use super::uri::split_host_port;
use crate::fields::at_most_one;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};

/// Limits on the head of a request or response, which ends with the empty line.
///
/// ```
/// # mod tautline { pub use tautline_ws::handshake::HeadLimits; pub mod layers { pub use tautline_ws as ws; } }
/// use tautline::layers::ws::handshake::{HandshakeError, HeadReader};
/// use tautline::HeadLimits;
///
/// let mut reader = HeadReader::new(HeadLimits::new(1024, 20));
/// let error = reader.request(&[b'x'; 1024]).unwrap_err();
/// assert!(matches!(error, HandshakeError::TargetTooLong));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeadLimits {
    /// Most bytes of a head, line ends included. Default 16 KiB.
    pub max_bytes: usize,
    /// Most header lines of a head. Default 100.
    pub max_headers: usize,
}

impl HeadLimits {
    /// Heads of at most so many bytes and header lines.
    #[must_use]
    pub const fn new(max_bytes: usize, max_headers: usize) -> Self {
        Self { max_bytes, max_headers }
    }
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self::new(16 * 1024, 100)
    }
}

/// Reads HTTP/1 heads from a growing run of bytes.
///
/// The caller keeps the bytes: each call presents the same ones again, with more behind them. The reader remembers how
/// far it has read, so it reads each byte once even if they arrive one at a time. After a whole head the reader is as
/// new. The caller drops the used bytes and may read the next head from those behind them.
///
/// Lines must end with CRLF. A bare CR or LF, a control character and a folded header line (`obs-fold`) are rejected
/// when they arrive, not when the head is whole.
#[derive(Clone, Debug)]
pub struct HeadReader {
    limits: HeadLimits,
    /// Start of the head, behind the empty lines that RFC 9112, section 2.2 says to skip.
    start: usize,
    /// Number of bytes read so far.
    scanned: usize,
    /// Number of lines begun so far, the first included.
    lines: usize,
    at: Position,
}

/// The position in a line, by the byte before [`HeadReader::scanned`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// Behind a line end, or before the first byte.
    LineStart,
    /// Inside a line.
    Line,
    /// Behind a CR that ends a line.
    LineCr,
    /// Behind a CR that follows a line end: one byte before the end of the head.
    EmptyCr,
}

impl HeadReader {
    /// Makes a reader at the start of a head.
    #[must_use]
    pub const fn new(limits: HeadLimits) -> Self {
        Self { limits, start: 0, scanned: 0, lines: 0, at: Position::LineStart }
    }

    /// Reads the request head at the front of `bytes`, and returns how many bytes it used; `None` if it is incomplete.
    ///
    /// An HTTP/1.1 request must have exactly one `Host`, which names a host. Its target must be in origin form
    /// (`/path?query`), in absolute form (`http://host/path`), or in a form for its method, `OPTIONS` or `CONNECT` (RFC
    /// 9112, section 3.2). The host of an absolute form replaces the value of `Host`.
    ///
    /// # Errors
    /// The head is malformed or exceeds the limits; [`HandshakeError::status`] is the status to answer.
    pub fn request(&mut self, bytes: &[u8]) -> Result<Option<(Request<()>, usize)>, HandshakeError> {
        let Some(head) = self.scan(bytes).map_err(|error| self.blame_target(error))? else { return Ok(None) };
        let request = parse_request(&bytes[head.start..head.end], head.headers)?;
        Ok(Some((request, head.end)))
    }

    /// Reads the response head at the front of `bytes`, and returns how many bytes it used; `None` if it is incomplete.
    ///
    /// # Errors
    /// The head is malformed or exceeds the limits.
    pub fn response(&mut self, bytes: &[u8]) -> Result<Option<(Response<()>, usize)>, HandshakeError> {
        let Some(head) = self.scan(bytes)? else { return Ok(None) };
        let response = parse_response(&bytes[head.start..head.end], head.headers)?;
        Ok(Some((response, head.end)))
    }

    fn scan(&mut self, bytes: &[u8]) -> Result<Option<Head>, HandshakeError> {
        let end = bytes.len().min(self.limits.max_bytes);
        while let Some(&byte) = bytes[..end].get(self.scanned) {
            self.scanned += 1;
            match (self.at, byte) {
                (Position::LineStart, b'\r') => self.at = Position::EmptyCr,
                (Position::Line, b'\r') => self.at = Position::LineCr,
                (Position::LineCr, b'\n') => self.at = Position::LineStart,
                (Position::EmptyCr, b'\n') if self.lines == 0 => {
                    self.start = self.scanned;
                    self.at = Position::LineStart;
                }
                (Position::EmptyCr, b'\n') => {
                    let head = Head { start: self.start, end: self.scanned, headers: self.lines - 1 };
                    *self = Self::new(self.limits);
                    return Ok(Some(head));
                }
                (Position::LineCr | Position::EmptyCr, _) => return Err(HandshakeError::Malformed("CR without LF")),
                (_, b'\n') => return Err(HandshakeError::Malformed("LF without CR")),
                (_, 0..=0x08 | 0x0b..=0x1f | 0x7f) => return Err(HandshakeError::Malformed("control character")),
                (Position::LineStart, b' ' | b'\t') => {
                    return Err(HandshakeError::Malformed("line begins with a space (folded headers are obsolete)"));
                }
                (Position::LineStart, _) => self.begin_line()?,
                (Position::Line, _) => self.scanned += ordinary(&bytes[self.scanned..end]),
            }
        }
        if end == self.limits.max_bytes { Err(HandshakeError::HeadTooLarge(end)) } else { Ok(None) }
    }

    fn begin_line(&mut self) -> Result<(), HandshakeError> {
        self.at = Position::Line;
        self.lines += 1;
        if self.lines - 1 > self.limits.max_headers {
            return Err(HandshakeError::TooManyHeaders(self.limits.max_headers));
        }
        Ok(())
    }

    /// Turns the error of a request that reaches the limit in its first line: its target is too long.
    fn blame_target(&self, error: HandshakeError) -> HandshakeError {
        match error {
            HandshakeError::HeadTooLarge(_) if self.lines == 1 && matches!(self.at, Position::Line) => {
                HandshakeError::TargetTooLong
            }
            error => error,
        }
    }
}

/// The number of bytes at the front, in steps of eight, among which is no control character.
fn ordinary(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES << 7;
    let (eights, _) = bytes.as_chunks::<8>();
    let has_control = |eight: &[u8; 8]| {
        // The usual tests of all bytes of a word for one below a number, and for zero.
        let word = u64::from_le_bytes(*eight);
        let (below, del) = (word.wrapping_sub(ONES * 0x20) & !word, word ^ (ONES * 0x7f));
        (below | (del.wrapping_sub(ONES) & !del)) & HIGH != 0
    };
    8 * eights.iter().position(has_control).unwrap_or(eights.len())
}

/// The range of a whole head, and its number of header lines.
struct Head {
    start: usize,
    end: usize,
    headers: usize,
}

fn parse_request(head: &[u8], lines: usize) -> Result<Request<()>, HandshakeError> {
    let mut lines = vec![httparse::EMPTY_HEADER; lines];
    let mut parsed = httparse::Request::new(&mut lines);
    whole(parsed.parse(head), head)?;
    let (Some(method), Some(target), Some(minor)) = (parsed.method, parsed.path, parsed.version) else {
        return Err(HandshakeError::Malformed("request line"));
    };
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| HandshakeError::Malformed("method"))?;
    let uri = parse_target(&method, target)?;
    let mut headers = collect(parsed.headers)?;
    match at_most_one(&headers, header::HOST) {
        Ok(None) if minor == 0 => {}
        Ok(Some(host)) if is_host(host.as_bytes()) => {}
        Ok(Some(_)) => return Err(HandshakeError::Malformed("Host is neither a name nor an address")),
        _ => return Err(HandshakeError::Malformed("Host must occur exactly once")),
    }
    if uri.scheme().is_some() {
        override_host(&uri, &mut headers)?;
    }
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.version_mut() = version(minor);
    *request.headers_mut() = headers;
    Ok(request)
}

/// Replaces `Host` by the host of an absolute form, so that nothing reads the other one.
//= https://www.rfc-editor.org/rfc/rfc9112#section-3.2.2
//# When an origin server receives a request with an absolute-form of request-target, the origin server MUST ignore
//# the received Host header field (if any) and instead use the host information of the request-target.
fn override_host(uri: &Uri, headers: &mut HeaderMap) -> Result<(), HandshakeError> {
    const WRONG: HandshakeError = HandshakeError::Malformed("request target's host is neither a name nor an address");
    let authority = uri.authority().map(http::uri::Authority::as_str).ok_or(WRONG)?;
    // User names in targets only serve to deceive (RFC 9110, section 4.2.4), and are no part of a valid host.
    if authority.is_empty() || !is_host(authority.as_bytes()) {
        return Err(WRONG);
    }
    let host = HeaderValue::from_str(authority).map_err(|_| WRONG)?;
    headers.try_insert(header::HOST, host).map_err(TOO_MANY)?;
    Ok(())
}

/// Whether `host` is a valid `Host`: a name or an address, with or without a port (RFC 9112, section 3.2).
///
/// It may be empty, for a target without an authority.
fn is_host(host: &[u8]) -> bool {
    host.is_empty() || str::from_utf8(host).is_ok_and(|host| split_host_port(host).is_ok())
}

fn parse_target(method: &Method, target: &str) -> Result<Uri, HandshakeError> {
    /// The longest target that [`Uri`] parses, in bytes.
    const LONGEST: usize = u16::MAX as usize - 1;
    if target.len() > LONGEST {
        return Err(HandshakeError::TargetTooLong);
    }
    if target.contains('#') {
        return Err(HandshakeError::Malformed("request target has a fragment"));
    }
    let uri: Uri = target.parse().map_err(|_| HandshakeError::Malformed("request target"))?;
    let fits = match (target.as_bytes(), uri.scheme(), uri.authority()) {
        (b"*", ..) => method == Method::OPTIONS,
        ([b'/', ..], ..) | (_, Some(_), Some(_)) => method != Method::CONNECT,
        (_, None, Some(_)) => method == Method::CONNECT,
        _ => false,
    };
    if fits { Ok(uri) } else { Err(HandshakeError::Malformed("request target does not fit the method")) }
}

fn parse_response(head: &[u8], lines: usize) -> Result<Response<()>, HandshakeError> {
    let mut lines = vec![httparse::EMPTY_HEADER; lines];
    let mut parsed = httparse::Response::new(&mut lines);
    whole(parsed.parse(head), head)?;
    let (Some(code), Some(minor)) = (parsed.code, parsed.version) else {
        return Err(HandshakeError::Malformed("status line"));
    };
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(code).map_err(|_| HandshakeError::Malformed("status code"))?;
    *response.version_mut() = version(minor);
    *response.headers_mut() = collect(parsed.headers)?;
    Ok(response)
}

fn whole(parsed: httparse::Result<usize>, head: &[u8]) -> Result<(), HandshakeError> {
    use httparse::{Error, Status};
    match parsed {
        Ok(Status::Complete(_)) => Ok(()),
        Ok(Status::Partial) => Err(HandshakeError::Malformed("first line")),
        Err(Error::Version) if names_other_version(head) => Err(HandshakeError::HttpVersion),
        Err(Error::HeaderName) => Err(HandshakeError::Malformed("header name")),
        Err(Error::HeaderValue) => Err(HandshakeError::Malformed("header value")),
        Err(Error::Status) => Err(HandshakeError::Malformed("status code")),
        Err(_) => Err(HandshakeError::Malformed("first line")),
    }
}

/// Whether the first line names a version of HTTP other than 1.0 and 1.1.
fn names_other_version(head: &[u8]) -> bool {
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    line.split(|&byte| byte == b' ')
        .any(|word| word.starts_with(b"HTTP/") && !matches!(word, b"HTTP/1.0" | b"HTTP/1.1"))
}

const fn version(minor: u8) -> Version {
    if minor == 0 { Version::HTTP_10 } else { Version::HTTP_11 }
}

/// More names than a map of headers takes, whatever the limit is.
const TOO_MANY: fn(header::MaxSizeReached) -> HandshakeError = |_| HandshakeError::Malformed("too many header names");

fn collect(lines: &[httparse::Header<'_>]) -> Result<HeaderMap, HandshakeError> {
    let mut headers = HeaderMap::try_with_capacity(lines.len()).map_err(TOO_MANY)?;
    for line in lines {
        let name = HeaderName::from_bytes(line.name.as_bytes());
        let name = name.map_err(|_| HandshakeError::Malformed("header name"))?;
        let value = HeaderValue::from_bytes(line.value).map_err(|_| HandshakeError::Malformed("header value"))?;
        headers.try_append(name, value).map_err(TOO_MANY)?;
    }
    Ok(headers)
}

#[cfg(test)]
mod tests;
