//! The client of a request, as the proxies before a server name it: `X-Forwarded-For`, or `Forwarded` (RFC 7239).
//!
//! Each proxy appends the address of its own peer. So the list is read from the right, for as long as the address that
//! appended an entry is trusted. The first address that is not trusted is the client. Whatever stands to the left of it, the
//! client may have written itself. An entry without an address (`unknown`, `_hidden`, or no entry at all) ends the walk at the
//! proxy that wrote it.
//!
//! Lines are split from the right, too: a quote that a client has opened swallows nothing of what a proxy has appended.

use crate::prefixes::Prefixes;
use http::header::{FORWARDED, HeaderMap, HeaderName};
use std::net::{IpAddr, SocketAddr};
use tautline_io::Address;

/// The header in which the proxies before a server name the client.
///
/// There is one, since a proxy that writes one of them passes the other on as the client sent it.
///
/// ```
/// # mod tautline { pub use tautline_conn::forwarded::ForwardedHeader; }
/// use tautline::ForwardedHeader;
///
/// assert_eq!("forwarded".parse(), Ok(ForwardedHeader::Forwarded));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`, a list of addresses.
    #[default]
    XForwardedFor,
    /// `Forwarded` of RFC 7239.
    Forwarded,
}

impl ForwardedHeader {
    const fn name(self) -> HeaderName {
        match self {
            Self::XForwardedFor => HeaderName::from_static("x-forwarded-for"),
            Self::Forwarded => FORWARDED,
        }
    }

    /// The client of a request with these headers, which came from `peer`. `None` if it is `peer` itself.
    ///
    /// An address without a port gets port 0.
    ///
    /// ```
    /// # mod tautline { pub use tautline_conn::{forwarded::ForwardedHeader, prefixes::Prefixes}; }
    /// use http::HeaderMap;
    /// use tautline::{ForwardedHeader, Prefixes};
    ///
    /// let trusted = Prefixes::list(&["10.0.0.0/8"])?;
    /// let mut headers = HeaderMap::new();
    /// headers.insert("x-forwarded-for", "198.51.100.9, 192.0.2.7, 10.0.0.2".parse().unwrap());
    /// let client = ForwardedHeader::XForwardedFor.client(&headers, &"10.0.0.1:80".parse()?, &trusted);
    /// assert_eq!(client, Some("192.0.2.7:0".parse()?));
    /// # Ok::<(), String>(())
    /// ```
    #[must_use]
    pub fn client(self, headers: &HeaderMap, peer: &Address, trusted: &Prefixes) -> Option<Address> {
        if !trusted.contain(peer) {
            return None;
        }
        let mut client = None;
        for line in headers.get_all(self.name()).iter().rev() {
            let mut line = line.as_bytes();
            while let Some(element) = last_element(&mut line) {
                if element.is_empty() {
                    continue;
                }
                let node = match self {
                    Self::XForwardedFor => node(element),
                    Self::Forwarded => forwarded_for(element).and_then(|value| node(&value)),
                };
                let Some(address) = node else { return client };
                let address = Address::Tcp(address);
                let is_proxy = trusted.contain(&address);
                client = Some(address);
                if !is_proxy {
                    return client;
                }
            }
        }
        client
    }
}

impl std::str::FromStr for ForwardedHeader {
    /// A text that says what to write.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            _ if text.eq_ignore_ascii_case("x-forwarded-for") => Ok(Self::XForwardedFor),
            _ if text.eq_ignore_ascii_case("forwarded") => Ok(Self::Forwarded),
            _ => Err(format!("{text:?} is neither x-forwarded-for nor forwarded")),
        }
    }
}

/// Takes the last element of a list off, without white space around it. `None` if nothing is left.
fn last_element<'a>(line: &mut &'a [u8]) -> Option<&'a [u8]> {
    if line.is_empty() {
        return None;
    }
    let mut quoted = false;
    for at in (0..line.len()).rev() {
        match line[at] {
            b'"' if quoted => {
                let escapes = line[..at].iter().rev().take_while(|&&byte| byte == b'\\').count();
                quoted = escapes % 2 == 1;
            }
            b'"' => quoted = true,
            b',' if !quoted => {
                let element = &line[at + 1..];
                *line = &line[..at];
                return Some(element.trim_ascii());
            }
            _ => {}
        }
    }
    Some(std::mem::take(line).trim_ascii())
}

/// The value of the one parameter `for` (RFC 7239, section 4). `None` if the element is malformed or has none.
fn forwarded_for(element: &[u8]) -> Option<Vec<u8>> {
    let (mut rest, mut found) = (element, None);
    loop {
        rest = rest.trim_ascii_start();
        let equals = rest.iter().position(|&byte| byte == b'=')?;
        let (name, value) = (&rest[..equals], &rest[equals + 1..]);
        let (value, used) = value_of(value)?;
        if name.eq_ignore_ascii_case(b"for") && found.replace(value).is_some() {
            return None;
        }
        rest = rest[equals + 1 + used..].trim_ascii_start();
        match rest.split_first() {
            None => return found,
            Some((b';', after)) => rest = after,
            Some(_) => return None,
        }
    }
}

/// A token or a quoted string at the front of `bytes` (RFC 9110, section 5.6), and its length there.
fn value_of(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    if bytes.first() != Some(&b'"') {
        let len = bytes.iter().position(|&byte| byte == b';' || byte.is_ascii_whitespace()).unwrap_or(bytes.len());
        return (len > 0 && !bytes[..len].contains(&b'"')).then(|| (bytes[..len].to_vec(), len));
    }
    let mut value = Vec::new();
    let mut inside = bytes.iter().enumerate().skip(1);
    while let Some((at, &byte)) = inside.next() {
        match byte {
            b'"' => return Some((value, at + 1)),
            b'\\' => value.push(*inside.next()?.1),
            _ => value.push(byte),
        }
    }
    None
}

/// The address of a node: an IPv4 address, an IPv6 address with or without brackets, and a port behind either.
///
/// `None` for `unknown`, for an obfuscated name (`_x`), and for whatever else is no address.
fn node(text: &[u8]) -> Option<SocketAddr> {
    let text = str::from_utf8(text).ok()?;
    let (address, port): (IpAddr, _) = if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        (IpAddr::V6(address.parse().ok()?), if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
    } else if let Ok(address) = text.parse() {
        (address, None)
    } else {
        let (address, port) = text.split_once(':')?;
        (IpAddr::V4(address.parse().ok()?), Some(port))
    };
    // A port may be obfuscated (RFC 7239, section 6.3), and then it is not known.
    let port = match port {
        None => 0,
        Some(hidden) if hidden.starts_with('_') => 0,
        Some(port) if port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit()) => port.parse().ok()?,
        Some(_) => return None,
    };
    Some(SocketAddr::new(address, port))
}

#[cfg(test)]
mod tests;
