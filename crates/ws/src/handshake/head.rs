use super::HandshakeError;
use super::fields::at_most_one;
use super::uri::split_host_port;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};

/// Bounds on a request or response head: everything up to and with the empty line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes of a head, line ends included. Default 16 KiB.
    pub max_bytes: usize,
    /// Header lines of a head. Default 100.
    pub max_headers: usize,
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self { max_bytes: 16 * 1024, max_headers: 100 }
    }
}

/// Reads HTTP/1 heads from a growing run of bytes.
///
/// The caller keeps the bytes: each call presents the same ones again with more behind them, and the reader remembers how
/// far it looked, so that a head that trickles in one byte at a time costs one look at each byte. Once a head is whole
/// the reader is as new: the caller drops the `used` bytes and may read the next head from what follows.
///
/// Line ends are CRLF and nothing else; a bare CR or LF, a control character, and a folded header line (`obs-fold`) are
/// refused when they arrive, not when the head is whole.
#[derive(Clone, Debug)]
pub struct HeadReader {
    limits: HeadLimits,
    /// Where the head begins, behind empty lines that RFC 9112, section 2.2 has us skip.
    start: usize,
    /// Bytes looked at so far.
    scanned: usize,
    /// Lines begun so far, with the first.
    lines: usize,
    at: At,
}

/// What the byte before [`HeadReader::scanned`] was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// A line end, or nothing yet.
    LineStart,
    /// Inside a line.
    Line,
    /// A CR that ends a line.
    LineCr,
    /// A CR that follows a line end: the head's last but one byte.
    EmptyCr,
}

impl HeadReader {
    /// A reader at the start of a head.
    #[must_use]
    pub const fn new(limits: HeadLimits) -> Self {
        Self { limits, start: 0, scanned: 0, lines: 0, at: At::LineStart }
    }

    /// The request head at the front of `bytes` and the number of bytes it took; `None` asks for more bytes.
    ///
    /// An HTTP/1.1 request has exactly one `Host`, which names a host, and a target in origin form (`/path?query`), in absolute form
    /// (`http://host/path`), or the form that its method (`OPTIONS`, `CONNECT`) allows (RFC 9112, section 3.2).
    ///
    /// # Errors
    /// The head is malformed or larger than the limits; [`HandshakeError::status`] is the status to answer with.
    pub fn request(&mut self, bytes: &[u8]) -> Result<Option<(Request<()>, usize)>, HandshakeError> {
        let Some(head) = self.scan(bytes).map_err(|error| self.blame_target(error))? else { return Ok(None) };
        let request = parse_request(&bytes[head.start..head.end], head.headers)?;
        Ok(Some((request, head.end)))
    }

    /// The response head at the front of `bytes` and the number of bytes it took; `None` asks for more bytes.
    ///
    /// # Errors
    /// The head is malformed or larger than the limits.
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
                (At::LineStart, b'\r') => self.at = At::EmptyCr,
                (At::Line, b'\r') => self.at = At::LineCr,
                (At::LineCr, b'\n') => self.at = At::LineStart,
                (At::EmptyCr, b'\n') if self.lines == 0 => {
                    self.start = self.scanned;
                    self.at = At::LineStart;
                }
                (At::EmptyCr, b'\n') => {
                    let head = Head { start: self.start, end: self.scanned, headers: self.lines - 1 };
                    *self = Self::new(self.limits);
                    return Ok(Some(head));
                }
                (At::LineCr | At::EmptyCr, _) => return Err(HandshakeError::Malformed("CR without LF")),
                (_, b'\n') => return Err(HandshakeError::Malformed("LF without CR")),
                (_, 0..=0x08 | 0x0b..=0x1f | 0x7f) => return Err(HandshakeError::Malformed("control character")),
                (At::LineStart, b' ' | b'\t') => {
                    return Err(HandshakeError::Malformed("line begins with a space (folded headers are obsolete)"));
                }
                (At::LineStart, _) => self.begin_line()?,
                (At::Line, _) => {}
            }
        }
        if end == self.limits.max_bytes { Err(HandshakeError::HeadTooLarge(end)) } else { Ok(None) }
    }

    fn begin_line(&mut self) -> Result<(), HandshakeError> {
        self.at = At::Line;
        self.lines += 1;
        if self.lines - 1 > self.limits.max_headers {
            return Err(HandshakeError::TooManyHeaders(self.limits.max_headers));
        }
        Ok(())
    }

    /// A request that reaches the limit within its first line has a target that is too long.
    fn blame_target(&self, error: HandshakeError) -> HandshakeError {
        match error {
            HandshakeError::HeadTooLarge(_) if self.lines == 1 && matches!(self.at, At::Line) => {
                HandshakeError::TargetTooLong
            }
            error => error,
        }
    }
}

/// Where a whole head lies, and how many header lines it has.
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
    let headers = collect(parsed.headers)?;
    match at_most_one(&headers, header::HOST) {
        Ok(None) if minor == 0 => {}
        Ok(Some(host)) if is_host(host.as_bytes()) => {}
        Ok(Some(_)) => return Err(HandshakeError::Malformed("Host is no name and no address")),
        _ => return Err(HandshakeError::Malformed("Host must be there exactly once")),
    }
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.version_mut() = version(minor);
    *request.headers_mut() = headers;
    Ok(request)
}

/// A name or an address with or without a port, or nothing where the target has no authority (RFC 9112, section 3.2).
fn is_host(host: &[u8]) -> bool {
    host.is_empty() || str::from_utf8(host).is_ok_and(|host| split_host_port(host).is_ok())
}

fn parse_target(method: &Method, target: &str) -> Result<Uri, HandshakeError> {
    /// The longest that [`Uri`] takes.
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

/// Whether the first line names a version of HTTP, but none that we speak.
fn names_other_version(head: &[u8]) -> bool {
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    line.split(|&byte| byte == b' ')
        .any(|word| word.starts_with(b"HTTP/") && !matches!(word, b"HTTP/1.0" | b"HTTP/1.1"))
}

const fn version(minor: u8) -> Version {
    if minor == 0 { Version::HTTP_10 } else { Version::HTTP_11 }
}

fn collect(lines: &[httparse::Header<'_>]) -> Result<HeaderMap, HandshakeError> {
    const TOO_MANY: fn(header::MaxSizeReached) -> HandshakeError =
        |_| HandshakeError::Malformed("too many header names");
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
