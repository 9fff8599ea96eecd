use super::response::{has_body, write_head};
use super::{Negotiated, Origins, key};
use crate::deflate::{self, DeflateConfig};
use crate::extension::Extension;
use crate::fields::{at_most_one, has_token, is_token, list};
use core::fmt;
use http::header::{
    ALLOW, CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS,
    SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{Method, Request, Response, StatusCode, Version};
use tautline_buf::Buf;

/// The upgrades that a server accepts, and the options that it negotiates.
///
/// ```
/// # mod tautline { pub use tautline_ws::handshake::Policy; pub mod layers { pub use tautline_ws as ws; } }
/// use http::Request;
/// use tautline::layers::ws::handshake::{Refusal, accept};
/// use tautline::Policy;
///
/// let mut policy = Policy::default();
/// policy.subprotocols = vec!["v2.feed".into(), "v1.feed".into()];
/// let request = Request::get("/").header("host", "example.com").body(())?;
/// assert_eq!(accept(&request, &policy).unwrap_err().reason, Refusal::Upgrade);
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// The web pages that may connect. Default: those of the same host.
    pub origins: Origins,
    /// Application protocols, the preferred first. Default none.
    pub subprotocols: Vec<String>,
    /// Whether to reject clients that offer none of [`subprotocols`](Self::subprotocols). Default false: they get none.
    pub require_subprotocol: bool,
    /// Compression. Default none.
    pub deflate: Option<DeflateConfig>,
}

/// An accepted upgrade.
#[derive(Debug)]
#[non_exhaustive]
pub struct Accepted {
    /// The 101 response. The caller may add headers, such as a cookie, before writing it.
    pub response: Response<()>,
    /// The negotiated options.
    pub negotiated: Negotiated,
}

impl Accepted {
    /// Appends the response. Frames may follow at once.
    pub fn write(&self, out: &mut Buf) {
        write_head(&self.response, out);
    }
}

/// A rejected upgrade.
#[non_exhaustive]
pub struct Refused {
    /// The response for [`write_response`](super::write_response); its body is a line of text with the reason.
    pub response: Box<Response<String>>,
    /// The reason.
    pub reason: Refusal,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "upgrade refused ({}): {}", self.response.status().as_str(), self.reason)
    }
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for Refused {}

/// The reason why an upgrade is rejected: a fault of the client, or of a proxy in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The method is not GET.
    Method,
    /// The version is HTTP/1.0, which has no upgrade.
    HttpVersion,
    /// `Host` does not occur exactly once, or is empty.
    Host,
    /// The request has a body.
    Body,
    /// `Upgrade` does not name `websocket`.
    Upgrade,
    /// `Connection` does not name `Upgrade`.
    Connection,
    /// `Sec-WebSocket-Version` is not 13.
    Version,
    /// `Sec-WebSocket-Key` does not occur exactly once, or is not 16 bytes in base64.
    Key,
    /// The page's origin is not allowed.
    Origin,
    /// The page's name leads to a loopback address, and no proxy has forwarded the request (DNS rebinding).
    Rebinding,
    /// `Sec-WebSocket-Protocol` is malformed.
    MalformedSubprotocol,
    /// The server requires an application protocol, and the client offers none of the server's.
    Subprotocol,
    /// `Sec-WebSocket-Extensions` is malformed.
    Extensions,
}

impl Refusal {
    /// The status of the response.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::HttpVersion => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::Upgrade | Self::Connection | Self::Version => StatusCode::UPGRADE_REQUIRED,
            Self::Origin | Self::Rebinding => StatusCode::FORBIDDEN,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Method => "a WebSocket is opened with GET",
            Self::HttpVersion => "a WebSocket is opened over HTTP/1.1; a proxy may have lowered the version",
            Self::Host => "Host must occur exactly once and must not be empty",
            Self::Body => "an upgrade request must not have a body",
            Self::Upgrade => "the header 'Upgrade: websocket' is missing; a proxy may have removed it",
            Self::Connection => "the header 'Connection: Upgrade' is missing; a proxy may have removed it",
            Self::Version => "Sec-WebSocket-Version must be 13",
            Self::Key => "Sec-WebSocket-Key must occur exactly once and be 16 bytes in base64",
            Self::Origin => {
                "pages of this origin may not connect; the server can allow it by name (Origins, or taut serve --origin)"
            }
            Self::Rebinding => {
                "this server listens on loopback, and takes pages of localhost only (DNS rebinding); it can allow the \
                 page's origin by name, and a proxy can send X-Forwarded-For"
            }
            Self::MalformedSubprotocol => "Sec-WebSocket-Protocol is malformed",
            Self::Subprotocol => "none of the offered subprotocols is supported",
            Self::Extensions => "Sec-WebSocket-Extensions is malformed",
        })
    }
}

/// Whether a request is an upgrade to WebSocket, for [`accept`], and not for a plain HTTP route.
///
/// A request with a key but without `Upgrade` counts as one, since a proxy may have removed that header.
#[must_use]
pub fn is_upgrade(request: &Request<()>) -> bool {
    let headers = request.headers();
    has_token(headers, UPGRADE, "websocket") || headers.contains_key(SEC_WEBSOCKET_KEY)
}

/// The value of `Sec-WebSocket-Accept` for the key in these fields of a request. `None` unless there is one key.
#[must_use]
pub fn accept_for(headers: &HeaderMap) -> Option<HeaderValue> {
    at_most_one(headers, SEC_WEBSOCKET_KEY).ok()?.and_then(|key| key::accept_value(key.as_bytes()))
}

/// Accepts an upgrade if it is valid and the policy allows it (RFC 6455, section 4.2).
///
/// # Errors
/// The request breaks a rule or the policy rejects it; the error holds the response to send.
pub fn accept(request: &Request<()>, policy: &Policy) -> Result<Accepted, Refused> {
    negotiate(request, policy).map_err(refuse)
}

fn negotiate(request: &Request<()>, policy: &Policy) -> Result<Accepted, Refusal> {
    let headers = request.headers();
    let key = validate(request)?;
    if !policy.origins.allow(request) {
        let is_foreign = policy.origins == Origins::Loopback && Origins::SameHost.allow(request);
        return Err(if is_foreign { Refusal::Rebinding } else { Refusal::Origin });
    }
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answer = response.headers_mut();
    answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    answer.insert(SEC_WEBSOCKET_ACCEPT, key::accept_value(key).ok_or(Refusal::Key)?);
    let negotiated = Negotiated {
        subprotocol: choose_subprotocol(headers, policy, answer)?,
        deflate: choose_deflate(headers, policy, answer)?,
    };
    Ok(Accepted { response, negotiated })
}

/// Checks the rules that do not depend on the policy; returns the key.
fn validate(request: &Request<()>) -> Result<&[u8], Refusal> {
    let headers = request.headers();
    if request.method() != Method::GET {
        return Err(Refusal::Method);
    }
    if request.version() < Version::HTTP_11 {
        return Err(Refusal::HttpVersion);
    }
    if !matches!(at_most_one(headers, HOST), Ok(Some(host)) if !host.is_empty()) {
        return Err(Refusal::Host);
    }
    if has_body(headers) {
        return Err(Refusal::Body);
    }
    if !has_token(headers, UPGRADE, "websocket") {
        return Err(Refusal::Upgrade);
    }
    if !has_token(headers, CONNECTION, "upgrade") {
        return Err(Refusal::Connection);
    }
    if !matches!(at_most_one(headers, SEC_WEBSOCKET_VERSION), Ok(Some(version)) if version == "13") {
        return Err(Refusal::Version);
    }
    match at_most_one(headers, SEC_WEBSOCKET_KEY) {
        Ok(Some(key)) if key::is_valid(key.as_bytes()) => Ok(key.as_bytes()),
        _ => Err(Refusal::Key),
    }
}

fn choose_subprotocol(headers: &HeaderMap, policy: &Policy, answer: &mut HeaderMap) -> Result<Option<String>, Refusal> {
    let offered: Vec<_> = list(headers, SEC_WEBSOCKET_PROTOCOL).collect();
    if !offered.iter().all(|name| is_token(name)) {
        return Err(Refusal::MalformedSubprotocol);
    }
    // The comparison respects case, since the registry has names that differ only in case.
    let known = policy.subprotocols.iter().filter(|name| is_token(name.as_bytes()));
    let chosen = known.into_iter().find(|name| offered.contains(&name.as_bytes()));
    let value = chosen.and_then(|name| HeaderValue::try_from(name).ok());
    match (chosen, value) {
        (Some(name), Some(value)) => {
            answer.insert(SEC_WEBSOCKET_PROTOCOL, value);
            Ok(Some(name.clone()))
        }
        _ if policy.require_subprotocol => Err(Refusal::Subprotocol),
        _ => Ok(None),
    }
}

fn choose_deflate(
    headers: &HeaderMap,
    policy: &Policy,
    answer: &mut HeaderMap,
) -> Result<Option<deflate::DeflateParams>, Refusal> {
    let offers = Extension::from_headers(headers).map_err(|_| Refusal::Extensions)?;
    let Some((params, extension)) = policy.deflate.as_ref().and_then(|config| deflate::answer(&offers, config)) else {
        return Ok(None);
    };
    let value = HeaderValue::try_from(extension.to_string()).map_err(|_| Refusal::Extensions)?;
    answer.insert(SEC_WEBSOCKET_EXTENSIONS, value);
    Ok(Some(params))
}

fn refuse(reason: Refusal) -> Refused {
    let mut response = Response::new(format!("{reason}\n"));
    *response.status_mut() = reason.status();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    match reason.status() {
        StatusCode::METHOD_NOT_ALLOWED => {
            headers.insert(ALLOW, HeaderValue::from_static("GET"));
        }
        StatusCode::UPGRADE_REQUIRED => {
            // RFC 9110, section 15.5.22 and RFC 6455, section 4.4.
            headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
            headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        }
        _ => {}
    }
    Refused { response: Box::new(response), reason }
}

#[cfg(test)]
mod tests;
