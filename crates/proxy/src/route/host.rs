//! Names of hosts, in the one form that routes are compared with.

use std::fmt;

/// The host of a request: in lower case, without its port and without a dot at its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host(String);

impl Host {
    /// Reads the value of `Host`, or the authority of a request's target. Returns `None` if it is no host.
    #[must_use]
    pub fn new(authority: &str) -> Option<Self> {
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let end = rest.find(']')?;
                let port = &rest[end + 1..];
                rest[..end].parse::<std::net::Ipv6Addr>().ok()?;
                (&authority[..end + 2], if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
            }
            None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
        };
        if port.is_some_and(|port| !port.is_empty() && port.parse::<u16>().is_err() || port.starts_with('+')) {
            return None;
        }
        if host.starts_with('[') {
            return Some(Self(host.to_ascii_lowercase()));
        }
        let host = host.strip_suffix('.').unwrap_or(host);
        is_name(host).then(|| Self(host.to_ascii_lowercase()))
    }

    /// The host.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether this has the form of a name, or of an address of version 4. Names of containers have underscores.
fn is_name(host: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    host.len() <= 253 && host.split('.').all(is_label)
}

/// The hosts of a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// Every host.
    Any,
    /// One host.
    Exact(Host),
    /// All hosts below this one: `*.example.org`.
    Below(Host),
}

impl HostPattern {
    /// Reads a name, `*.` and a name, or `*`.
    ///
    /// # Errors
    /// In words, with the remedy.
    pub fn new(text: &str) -> Result<Self, String> {
        const HOW: &str = "write a name such as app.example, *.app.example for all names below it, or * for any host";
        if text == "*" {
            return Ok(Self::Any);
        }
        let (name, make): (&str, fn(Host) -> Self) = match text.strip_prefix("*.") {
            Some(name) => (name, Self::Below),
            None => (text, Self::Exact),
        };
        let host = Host::new(name).filter(|host| host.as_str().len() == name.len());
        host.map(make).ok_or_else(|| format!("{text:?} is no host: {HOW}, without a port"))
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Exact(host) => host.fmt(f),
            Self::Below(host) => write!(f, "*.{host}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_one_form() {
        let forms = [
            ("App.Example", "app.example"),
            ("app.example.", "app.example"),
            ("app.example:443", "app.example"),
            ("app.example.:8080", "app.example"),
            ("app.example:", "app.example"),
            ("my_container:80", "my_container"),
            ("127.0.0.1:80", "127.0.0.1"),
            ("[::1]:80", "[::1]"),
            ("[FE80::1]", "[fe80::1]"),
        ];
        for (from, to) in forms {
            assert_eq!(Host::new(from).as_ref().map(Host::as_str), Some(to), "{from}");
        }
    }

    #[test]
    fn other_texts_are_no_hosts() {
        let long = "a".repeat(64);
        let bad =
            ["", ".", "..", "a..b", ".a", "a b", "a@b", "a/b", "a%2eb", "a,b", "a:b", "a:70000", "a:+1", "a:80:80"];
        for text in bad.into_iter().chain(["[::1", "[x]", "[::1]x", "::1", "é", "a\tb", &long]) {
            assert_eq!(Host::new(text), None, "{text}");
        }
    }

    #[test]
    fn a_pattern_names_its_forms() {
        assert_eq!(HostPattern::new("*.Example.org").unwrap().to_string(), "*.example.org");
        assert_eq!(HostPattern::new("*"), Ok(HostPattern::Any));
        for bad in ["*x", "a:80", "*.", "", "https://a", "a.*"] {
            assert!(HostPattern::new(bad).unwrap_err().contains("*.app.example"), "{bad}");
        }
    }
}
