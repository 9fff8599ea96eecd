use super::HandshakeError;
use super::host::{ascii_host, split_zone};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use core::net::Ipv6Addr;
use http::{HeaderValue, Uri};
use std::borrow::Cow;

/// The server that a WebSocket URI names (RFC 6455, section 3): `ws://host[:port]/path?query` or `wss://…`.
///
/// `http` and `https` count as `ws` and `wss`, as in browsers. Credentials (`wss://user:password@host/`) become a Basic
/// `Authorization`, which only `wss` hides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Whether to connect over TLS.
    pub secure: bool,
    /// A DNS name, an IPv4 address, or an IPv6 address without brackets.
    pub host: String,
    /// The number of the interface through which an IPv6 address is reached: 2 in `wss://[fe80::1%2]/`.
    ///
    /// It has a meaning on this machine alone, so no peer learns it (RFC 6874, section 1).
    pub zone: Option<u32>,
    /// The port; 80 or 443 if the URI has none.
    pub port: u16,
}

/// Parses a URI that a user wrote.
///
/// Unlike `text.parse::<Uri>()`, it rejects a fragment, which [`Uri`] would drop, and a URI that [`Target::of`]
/// rejects. It takes international host names, which the result has [in ASCII](super::ascii_host).
///
/// # Errors
/// [`HandshakeError::Uri`] if the text is not a usable WebSocket URI.
pub fn parse_uri(text: &str) -> Result<Uri, HandshakeError> {
    if text.contains('#') {
        return Err(HandshakeError::Uri("it has a fragment ('#'); write %23 where you mean the character"));
    }
    if !text.contains("://") {
        return Err(HandshakeError::Uri("it has no scheme; write ws:// or wss:// before it"));
    }
    let text = ascii_host(text).map_err(HandshakeError::Uri)?;
    let uri: Uri = text.parse().map_err(|_| HandshakeError::Uri("it is not a URI; write wss://host:port/path"))?;
    Target::of(&uri)?;
    Ok(uri)
}

impl Target {
    /// Reads the server's address from `uri`.
    ///
    /// # Errors
    /// [`HandshakeError::Uri`] if the scheme is unknown, or if the host or the port is not usable.
    pub fn of(uri: &Uri) -> Result<Self, HandshakeError> {
        let secure = match uri.scheme_str().map(str::to_ascii_lowercase).as_deref() {
            Some("ws" | "http") => false,
            Some("wss" | "https") => true,
            Some(_) => return Err(HandshakeError::Uri("its scheme is neither ws nor wss")),
            None => return Err(HandshakeError::Uri("it has no scheme; write ws:// or wss:// before it")),
        };
        let authority = uri.authority().ok_or(HandshakeError::Uri("it has no host"))?.as_str();
        let host_port = authority.rsplit_once('@').map_or(authority, |(_, rest)| rest);
        let (host_port, zone) = without_zone(host_port).map_err(HandshakeError::Uri)?;
        let (host, port) = split_host_port(&host_port).map_err(HandshakeError::Uri)?;
        let port = port.unwrap_or(if secure { 443 } else { 80 });
        Ok(Self { secure, host: host.to_owned(), zone, port })
    }

    /// The value of the header `Host`: IPv6 addresses in brackets, no default port.
    #[must_use]
    pub fn host_header(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match (self.secure, self.port) {
            (false, 80) | (true, 443) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

/// Takes the zone out of the address in `[address%zone]:port`.
fn without_zone(host_port: &str) -> Result<(Cow<'_, str>, Option<u32>), &'static str> {
    let bracketed = host_port.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let Some((address, port)) = bracketed else { return Ok((host_port.into(), None)) };
    let (ip, zone) = split_zone(address)?;
    Ok((format!("[{ip}]{port}").into(), zone))
}

/// Splits `host[:port]` into the host, without brackets, and the port.
///
/// # Errors
/// A text that says which part is not usable.
pub(super) fn split_host_port(host_port: &str) -> Result<(&str, Option<u16>), &'static str> {
    let (host, port) = match host_port.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("its IPv6 address has no ']'")?;
            host.parse::<Ipv6Addr>().map_err(|_| "the text in brackets is not an IPv6 address")?;
            (host, port)
        }
        None => host_port.split_at(host_port.find(':').unwrap_or(host_port.len())),
    };
    // Only a host from brackets can have a ':' here.
    if host.is_empty() || !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte)) {
        return Err("its host is neither a name nor an address");
    }
    let port = match port.strip_prefix(':') {
        _ if matches!(port, "" | ":") => return Ok((host, None)),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok(),
        _ => None,
    };
    match port {
        Some(port) if port > 0 => Ok((host, Some(port))),
        _ => Err("its port is not 1 to 65535"),
    }
}

/// Makes an `Authorization` of the credentials in the URI (RFC 7617); `None` if there are none.
pub(super) fn basic_auth(uri: &Uri) -> Result<Option<HeaderValue>, HandshakeError> {
    const WRONG: HandshakeError =
        HandshakeError::Uri("its user name or password is malformed; write all but letters and digits as %XX");
    let Some((userinfo, _)) = uri.authority().and_then(|authority| authority.as_str().rsplit_once('@')) else {
        return Ok(None);
    };
    let (user, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
    let (Some(user), Some(password)) = (percent_decode(user), percent_decode(password)) else { return Err(WRONG) };
    if user.contains(&b':') || user.iter().chain(&password).any(u8::is_ascii_control) {
        return Err(WRONG);
    }
    let credentials = STANDARD.encode([&user[..], b":", &password].concat());
    let mut value = HeaderValue::try_from(format!("Basic {credentials}")).map_err(|_| WRONG)?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// Replaces each `%XX` in `text` by its byte (RFC 3986, section 2.1); `None` if a `%` has no two digits behind it.
#[must_use]
pub fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    loop {
        match *rest {
            [] => return Some(bytes),
            [b'%', high, low, ..] => {
                let digit = |byte| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                bytes.push(digit(high)? << 4 | digit(low)?);
                rest = &rest[3..];
            }
            [b'%', ..] => return None,
            [byte, ..] => {
                bytes.push(byte);
                rest = &rest[1..];
            }
        }
    }
}

#[cfg(test)]
mod tests;
