use super::uri::split_host_port;
use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::str::FromStr;
use http::header::{FORWARDED, HOST, HeaderMap, HeaderName, ORIGIN, VIA};
use http::{Request, Uri};

/// Headers by which proxies say that they forward a request.
const BY_PROXIES: [HeaderName; 6] = [
    FORWARDED,
    VIA,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-real-ip"),
];

/// The web pages that may connect (RFC 6455, section 10.2).
///
/// Browsers send the page's origin with each upgrade. A server can thus reject the upgrade of a foreign page, which
/// would carry the visitor's cookies. Other programs send no `Origin` and pass: the check protects users of browsers,
/// and authenticates nobody.
///
/// ```
/// # mod tautline { pub use tautline_ws::handshake::Origins; }
/// use http::Request;
/// use tautline::Origins;
///
/// let origins = Origins::list(["https://app.example", "https://*.example.org"])?;
/// let of = |origin| Request::get("/").header("origin", origin).body(());
/// assert!(origins.allow(&of("https://eu.example.org")?));
/// assert!(!origins.allow(&of("https://evil.example")?) && Origins::Any.allow(&of("https://evil.example")?));
///
/// let error = Origins::list(["app.example"]).unwrap_err();
/// assert!(error.to_string().contains("write https://app.example"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origins {
    /// Pages from the host and port that the upgrade names: in an absolute target, or else in `Host`.
    ///
    /// The scheme is not compared, since a proxy may have terminated TLS.
    #[default]
    SameHost,
    /// As [`SameHost`](Self::SameHost), for servers that only this machine reaches: the host has to be `localhost` or a
    /// loopback address.
    ///
    /// A foreign page can have its own name resolve to 127.0.0.1 (DNS rebinding). Its `Host` then fits its `Origin`. A
    /// request that a proxy has forwarded may have any host: `Forwarded`, `Via`, `X-Forwarded-…` and `X-Real-IP` tell,
    /// which no page can set for an upgrade.
    Loopback,
    /// Pages of these origins.
    List(Vec<Origin>),
    /// Any page.
    Any,
}

/// An origin of web pages (RFC 6454), or a pattern for many: parsed by [`FromStr`].
///
/// | form | pages |
/// |---|---|
/// | `https://app.example`, `http://localhost:8080` | of this scheme, host and port; a default port may be omitted |
/// | `https://*.example.org` | of all names below `example.org`, but not of that name itself |
/// | `null` | without an origin, such as local files |
///
/// `*` stands for one or more whole labels: `https://*.example.org` matches `a.example.org` and `a.b.example.org`, and
/// not `evil-example.org`. Case has no meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(Form);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    Null,
    /// Scheme and host in lower case, and the port, with that of the scheme filled in.
    Exact(String, String, Option<u16>),
    /// As `Exact`; the host stands behind any labels.
    Below(String, String, Option<u16>),
}

/// The reason why a text is no [`Origin`], and the text to write instead.
#[derive(Clone, PartialEq, Eq)]
pub struct OriginError(String);

impl fmt::Display for OriginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for OriginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for OriginError {}

impl Origins {
    /// Pages of these origins; any page if one of them is `*`.
    ///
    /// # Errors
    /// A text is no [`Origin`].
    pub fn list<T: AsRef<str>>(origins: impl IntoIterator<Item = T>) -> Result<Self, OriginError> {
        let (mut list, mut any) = (Vec::new(), false);
        for origin in origins {
            match origin.as_ref() {
                "*" => any = true,
                origin => list.push(origin.parse()?),
            }
        }
        Ok(if any { Self::Any } else { Self::List(list) })
    }

    /// Whether a request may be upgraded.
    #[must_use]
    pub fn allow<B>(&self, request: &Request<B>) -> bool {
        let mut origins = request.headers().get_all(ORIGIN).into_iter();
        let origin = match (self, origins.next(), origins.next()) {
            (Self::Any, ..) | (_, None, _) => return true,
            (_, Some(origin), None) => origin.as_bytes(),
            (_, Some(_), Some(_)) => return false,
        };
        let page = Page::of(origin);
        match self {
            Self::Any => true,
            Self::List(list) => list.iter().any(|allowed| allowed.matches(page.as_ref(), origin)),
            Self::SameHost => page.is_some_and(|page| page.is_of(authority(request))),
            Self::Loopback => page.is_some_and(|page| {
                page.is_of(authority(request)) && (is_local(page.host) || is_forwarded(request.headers()))
            }),
        }
    }
}

impl Origins {
    /// Whether pages may be served under this host, as `Host` names it: whether their upgrades could be allowed then.
    ///
    /// For servers on loopback, whose pages a foreign one reads if its name leads there (DNS rebinding).
    #[must_use]
    pub fn allow_host(&self, authority: &str) -> bool {
        let Ok((host, _)) = split_host_port(authority) else { return false };
        match self {
            Self::Any | Self::SameHost => true,
            Self::Loopback => is_local(host),
            Self::List(list) => list.iter().any(|origin| match &origin.0 {
                Form::Null => false,
                Form::Exact(_, named, _) => same_host(named, host),
                Form::Below(_, named, _) => is_below(host, named),
            }),
        }
    }
}

impl Origin {
    fn matches(&self, page: Option<&Page<'_>>, origin: &[u8]) -> bool {
        match (&self.0, page) {
            (Form::Null, _) => origin == b"null",
            (Form::Exact(scheme, host, port), Some(page)) => page.has(scheme, *port) && same_host(host, page.host),
            (Form::Below(scheme, host, port), Some(page)) => page.has(scheme, *port) && is_below(page.host, host),
            (_, None) => false,
        }
    }
}

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        let wrong = |why: &str| OriginError(format!("{text:?} is no origin: {why}"));
        if text == "null" {
            return Ok(Self(Form::Null));
        }
        if text.contains([',', ';']) || text.contains(char::is_whitespace) {
            return Err(wrong("it looks like a list; give each origin on its own"));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(match text {
                "*" => wrong("it means any page, and is no pattern of one"),
                _ => wrong(&format!("it has no scheme; write https://{}", host_part(text))),
            });
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if !is_scheme(scheme) {
            return Err(wrong("its scheme is none; write it as https://app.example"));
        }
        let scheme = scheme.to_ascii_lowercase();
        if matches!(&*scheme, "ws" | "wss") {
            let page = scheme.replacen("ws", "http", 1);
            return Err(wrong(&format!("pages have a scheme of HTTP; write {page}://{}", host_part(rest))));
        }
        if rest.contains(['/', '?', '#']) {
            return Err(wrong(&format!("an origin ends with its host and port; write {scheme}://{}", host_part(rest))));
        }
        if !rest.is_ascii() {
            return Err(wrong("browsers send names in ASCII; write the form that begins with xn--"));
        }
        let (below, named) = rest.strip_prefix("*.").map_or((false, rest), |named| (true, named));
        if named.contains('*') {
            return Err(wrong("a wildcard stands for whole labels before a name; write it as https://*.example.org"));
        }
        let (host, port) = split_host_port(named).map_err(&wrong)?;
        if below && (host.contains(':') || host.parse::<IpAddr>().is_ok() || host.starts_with('.')) {
            return Err(wrong("a wildcard stands before a name, not before an address"));
        }
        let port = port.or_else(|| default_port(&scheme));
        let host = host.to_ascii_lowercase();
        Ok(Self(if below { Form::Below(scheme, host, port) } else { Form::Exact(scheme, host, port) }))
    }
}

/// The origin that a browser sent: `scheme://host[:port]`.
struct Page<'a> {
    scheme: &'a str,
    host: &'a str,
    port: Option<u16>,
}

impl<'a> Page<'a> {
    fn of(origin: &'a [u8]) -> Option<Self> {
        let (scheme, rest) = str::from_utf8(origin).ok()?.split_once("://")?;
        let (host, port) = split_host_port(rest).ok()?;
        Some(Self { scheme, host, port: port.or_else(|| default_port(scheme)) })
    }

    fn has(&self, scheme: &str, port: Option<u16>) -> bool {
        self.scheme.eq_ignore_ascii_case(scheme) && self.port == port
    }

    /// Whether the page comes from `authority`. A port that is missing there is the default one of the page's scheme.
    fn is_of(&self, authority: Option<&str>) -> bool {
        authority.and_then(|authority| split_host_port(authority).ok()).is_some_and(|(host, port)| {
            same_host(host, self.host) && port.or_else(|| default_port(self.scheme)) == self.port
        })
    }
}

/// The host and port that a request names: of an absolute target, or else of `Host` (RFC 9112, section 3.2.2).
#[must_use]
pub fn authority<B>(request: &Request<B>) -> Option<&str> {
    let target = request.uri().authority().filter(|_| request.uri().scheme().is_some());
    match target {
        Some(authority) => Some(authority.as_str()),
        None => request.headers().get(HOST)?.to_str().ok(),
    }
}

/// Whether `authority` names this machine: by `localhost`, a name below it, or a loopback address.
///
/// A web page can have its own name resolve to 127.0.0.1 (DNS rebinding), but its requests then carry that name.
#[must_use]
pub fn is_loopback(authority: &str) -> bool {
    split_host_port(authority).is_ok_and(|(host, _)| is_local(host))
}

fn is_local(host: &str) -> bool {
    // Browsers resolve these names by themselves (RFC 6761, section 6.3).
    host.eq_ignore_ascii_case("localhost")
        || is_below(host, "localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

fn is_forwarded(headers: &HeaderMap) -> bool {
    BY_PROXIES.iter().any(|name| headers.contains_key(name))
}

/// Whether two hosts are the same, if their forms differ too.
fn same_host(host: &str, other: &str) -> bool {
    host.eq_ignore_ascii_case(other)
        || host.parse::<Ipv6Addr>().is_ok_and(|ip| other.parse::<Ipv6Addr>().is_ok_and(|other| ip == other))
}

/// Whether `name` has one label or more before `.host`.
fn is_below(name: &str, host: &str) -> bool {
    let Some((labels, end)) = name.len().checked_sub(host.len()).and_then(|at| name.split_at_checked(at)) else {
        return false;
    };
    let labels = labels.strip_suffix('.').unwrap_or_default();
    end.eq_ignore_ascii_case(host) && labels.split('.').all(|label| !label.is_empty())
}

const fn default_port(scheme: &str) -> Option<u16> {
    if scheme.eq_ignore_ascii_case("http") {
        Some(80)
    } else if scheme.eq_ignore_ascii_case("https") {
        Some(443)
    } else {
        None
    }
}

fn is_scheme(scheme: &str) -> bool {
    // The parser of URIs refuses long ones and knows no others.
    scheme.starts_with(|first: char| first.is_ascii_alphabetic()) && scheme.parse::<http::uri::Scheme>().is_ok()
}

/// The host and port in a text that has more, for the form to write instead.
fn host_part(text: &str) -> &str {
    let text = text.split(['/', '?', '#']).next().unwrap_or_default();
    if text.is_empty() || text.parse::<Uri>().is_err() { "app.example" } else { text }
}

#[cfg(test)]
mod tests;
