use http::HeaderMap;
use http::header::{HOST, ORIGIN};

/// Which web pages may connect (RFC 6455, section 10.2).
///
/// Browsers name the page's origin in each upgrade, so that a server can refuse what a foreign page does with a visitor's
/// cookies. Other programs send no `Origin` and are not held up: the check protects browsers' users, it authenticates
/// nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origins {
    /// Pages that came from the host and port that the upgrade is addressed to, by `Host`. The scheme is not compared,
    /// since a proxy may have taken the TLS off.
    #[default]
    SameHost,
    /// Pages of these origins, as `https://app.example` or `http://localhost:8080`; a default port may be left out.
    /// `null` stands for pages without an origin, as local files.
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

/// Scheme and authority.
fn split(origin: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = origin.windows(3).position(|three| three == b"://")?;
    Some((&origin[..at], &origin[at + 3..]))
}

/// The authority less the port that its scheme implies.
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
    fn a_list_names_whole_origins() {
        let list = Origins::List(vec!["https://a.example/".into(), "http://b.example:8080".into(), "null".into()]);
        for origin in ["https://a.example", "HTTPS://A.example:443", "http://b.example:8080", "null"] {
            assert!(allows(&list, "x", &[origin]), "{origin}");
        }
        for origin in ["http://a.example", "https://a.example:80", "http://b.example", "file://", "https://x", ""] {
            assert!(!allows(&list, "x", &[origin]), "{origin}");
        }
    }

    #[test]
    fn programs_send_none_and_nobody_sends_two() {
        assert!(allows(&Origins::SameHost, "a", &[]));
        assert!(allows(&Origins::List(vec![]), "a", &[]));
        assert!(!allows(&Origins::SameHost, "a", &["https://a", "https://a"]));
        assert!(allows(&Origins::Any, "a", &["https://b", "https://c"]));
    }
}
