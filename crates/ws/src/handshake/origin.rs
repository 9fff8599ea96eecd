use http::HeaderMap;
use http::header::{HOST, ORIGIN};

/// The web pages that may connect (RFC 6455, section 10.2).
///
/// Browsers send the page's origin with each upgrade. A server can thus reject the upgrade of a foreign page, which
/// would carry the visitor's cookies. Other programs send no `Origin` and pass: the check protects users of browsers,
/// and authenticates nobody.
///
/// ```
/// use http::{HeaderMap, HeaderValue};
/// use tautline_ws::handshake::Origins;
///
/// let origins = Origins::List(vec!["https://app.example".into()]);
/// let mut headers = HeaderMap::new();
/// headers.insert("origin", HeaderValue::from_static("https://evil.example"));
/// assert!(!origins.allow(&headers) && Origins::Any.allow(&headers));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origins {
    /// Pages from the host and port in the upgrade's `Host`.
    ///
    /// The scheme is not compared, since a proxy may have terminated TLS.
    #[default]
    SameHost,
    /// Pages of these origins, such as `https://app.example` or `http://localhost:8080`; a default port may be omitted.
    ///
    /// `null` stands for pages without an origin, such as local files.
    List(Vec<String>),
    /// Any page.
    Any,
}

impl Origins {
    /// Whether a request with these headers may be upgraded.
    #[must_use]
    pub fn allow(&self, headers: &HeaderMap) -> bool {
        let mut origins = headers.get_all(ORIGIN).into_iter();
        let origin = match (self, origins.next(), origins.next()) {
            (Self::Any, ..) | (_, None, _) => return true,
            (_, Some(origin), None) => origin.as_bytes(),
            (_, Some(_), Some(_)) => return false,
        };
        match self {
            Self::Any => true,
            Self::List(list) => list.iter().any(|allowed| same(allowed.as_bytes(), origin)),
            Self::SameHost => headers.get(HOST).is_some_and(|host| same_host(origin, host.as_bytes())),
        }
    }
}

fn same(allowed: &[u8], origin: &[u8]) -> bool {
    let allowed = allowed.strip_suffix(b"/").unwrap_or(allowed);
    match (split(allowed), split(origin)) {
        (Some((scheme, host)), Some((other_scheme, other_host))) => {
            scheme.eq_ignore_ascii_case(other_scheme)
                && without_port(host, scheme).eq_ignore_ascii_case(without_port(other_host, scheme))
        }
        _ => allowed == origin,
    }
}

fn same_host(origin: &[u8], host: &[u8]) -> bool {
    split(origin).is_some_and(|(scheme, page)| {
        !page.is_empty() && without_port(page, scheme).eq_ignore_ascii_case(without_port(host, scheme))
    })
}

/// Splits an origin into scheme and authority.
fn split(origin: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = origin.windows(3).position(|three| three == b"://")?;
    Some((&origin[..at], &origin[at + 3..]))
}

/// Removes the default port of the scheme from an authority.
fn without_port<'a>(authority: &'a [u8], scheme: &[u8]) -> &'a [u8] {
    let port: &[u8] = match scheme.to_ascii_lowercase().as_slice() {
        b"http" | b"ws" => b":80",
        b"https" | b"wss" => b":443",
        _ => return authority,
    };
    authority.strip_suffix(port).unwrap_or(authority)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn allows(origins: &Origins, host: &'static str, origin: &[&'static str]) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static(host));
        for origin in origin {
            headers.append(ORIGIN, HeaderValue::from_static(origin));
        }
        origins.allow(&headers)
    }

    #[test]
    fn same_host_compares_host_and_port() {
        for (host, origin) in [
            ("a.example", "https://a.example"),
            ("a.example", "http://a.example"),
            ("A.example", "https://a.EXAMPLE"),
            ("a.example:443", "https://a.example"),
            ("a.example", "https://a.example:443"),
            ("a.example:8443", "https://a.example:8443"),
            ("[::1]:9000", "http://[::1]:9000"),
        ] {
            assert!(allows(&Origins::SameHost, host, &[origin]), "{host} {origin}");
        }
        for (host, origin) in [
            ("a.example", "https://b.example"),
            ("a.example", "https://a.example.evil"),
            ("a.example", "https://evil-a.example"),
            ("a.example:8443", "https://a.example"),
            ("a.example", "https://a.example:8443"),
            ("a.example:80", "https://a.example"),
            ("a.example", "https://user@a.example"),
            ("a.example", "null"),
            ("a.example", "a.example"),
            ("", "https://"),
            ("a.example", ""),
        ] {
            assert!(!allows(&Origins::SameHost, host, &[origin]), "{host} {origin}");
        }
    }

    #[test]
    fn a_list_compares_scheme_host_and_port() {
        let list = Origins::List(vec!["https://a.example/".into(), "http://b.example:8080".into(), "null".into()]);
        for origin in ["https://a.example", "HTTPS://A.example:443", "http://b.example:8080", "null"] {
            assert!(allows(&list, "x", &[origin]), "{origin}");
        }
        for origin in ["http://a.example", "https://a.example:80", "http://b.example", "file://", "https://x", ""] {
            assert!(!allows(&list, "x", &[origin]), "{origin}");
        }
    }

    #[test]
    fn allows_requests_without_an_origin_and_rejects_two_origins() {
        assert!(allows(&Origins::SameHost, "a", &[]));
        assert!(allows(&Origins::List(vec![]), "a", &[]));
        assert!(!allows(&Origins::SameHost, "a", &["https://a", "https://a"]));
        assert!(allows(&Origins::Any, "a", &["https://b", "https://c"]));
    }
}
