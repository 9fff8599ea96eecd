use core::fmt;
use http::{HeaderName, Response, StatusCode};

/// A failure of an opening handshake; each variant names the party at fault.
#[non_exhaustive]
pub enum HandshakeError {
    /// The calling code gave a URI that is not usable; the text names the fault and the remedy.
    Uri(&'static str),
    /// The calling code gave options that are not usable; the text names the option.
    Options(&'static str),
    /// The calling code gave a header that only the handshake may set.
    ReservedHeader(HeaderName),
    /// The peer sent a head that is not HTTP/1.1; the text names the part at fault.
    Malformed(&'static str),
    /// The peer's head is longer than this many bytes ([`HeadLimits::max_bytes`](super::HeadLimits::max_bytes)).
    HeadTooLarge(usize),
    /// The peer's head has more than this many header lines
    /// ([`HeadLimits::max_headers`](super::HeadLimits::max_headers)).
    TooManyHeaders(usize),
    /// The client's request target is too long.
    TargetTooLong,
    /// The client's request has a body of more than this many bytes.
    BodyTooLarge(usize),
    /// The client's request has a transfer coding other than `chunked`.
    Coding,
    /// The peer speaks a version of HTTP other than 1.0 and 1.1.
    HttpVersion,
    /// The server redirects the client. The caller decides whether to follow.
    Redirected {
        /// 301, 302, 303, 307 or 308.
        status: StatusCode,
        /// The `Location` header as sent; it may be relative to the requested URI.
        location: Option<String>,
    },
    /// The server answered, but did not switch to WebSocket.
    Rejected {
        /// The server's answer, with the first 16 KiB of its body.
        response: Box<Response<Vec<u8>>>,
    },
    /// The server switched protocols, but its answer breaks RFC 6455, section 4.1; the text names the rule.
    Answer(&'static str),
}

impl HandshakeError {
    /// The status that a server answers before it closes; `None` for errors that a server does not meet.
    #[must_use]
    pub const fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Malformed(_) => Some(StatusCode::BAD_REQUEST),
            Self::HeadTooLarge(_) | Self::TooManyHeaders(_) => Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
            Self::TargetTooLong => Some(StatusCode::URI_TOO_LONG),
            Self::BodyTooLarge(_) => Some(StatusCode::PAYLOAD_TOO_LARGE),
            Self::Coding => Some(StatusCode::NOT_IMPLEMENTED),
            Self::HttpVersion => Some(StatusCode::HTTP_VERSION_NOT_SUPPORTED),
            _ => None,
        }
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uri(what) => write!(f, "unusable WebSocket URI: {what}"),
            Self::Options(what) => write!(f, "unusable handshake options: {what}"),
            Self::ReservedHeader(name) => {
                write!(f, "the handshake sets the header {name}: remove it from the options")
            }
            Self::Malformed(what) => write!(f, "peer sent a malformed HTTP: {what}"),
            Self::HeadTooLarge(limit) => write!(f, "peer's HTTP head is longer than {limit} bytes"),
            Self::TooManyHeaders(limit) => write!(f, "peer's HTTP head has more than {limit} header lines"),
            Self::TargetTooLong => f.write_str("client's request target is too long"),
            Self::BodyTooLarge(limit) => write!(f, "client's request has a body of more than {limit} bytes"),
            Self::Coding => f.write_str("client's request has a transfer coding other than chunked"),
            Self::HttpVersion => f.write_str("peer speaks neither HTTP/1.1 nor HTTP/1.0"),
            Self::Redirected { status, location: Some(location) } => {
                write!(f, "server redirects to {location:?} ({status})")
            }
            Self::Redirected { status, location: None } => {
                write!(f, "server redirects ({status}) without saying where")
            }
            Self::Rejected { response } => write!(f, "server refused the upgrade: {}", response.status()),
            Self::Answer(what) => write!(f, "server's upgrade answer is invalid: {what}"),
        }
    }
}

impl fmt::Debug for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for HandshakeError {}
