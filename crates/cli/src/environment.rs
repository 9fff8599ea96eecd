//! The proxies that the environment names, as curl and browsers read them.

use crate::failure::Failure;
use crate::local::is_loopback;
use tautline::{Proxy, Target};

/// The proxy for a target: of `https_proxy` for `wss://`, of `http_proxy` for `ws://`, or else of `all_proxy`, unless `no_proxy`
/// names the host. Loopback addresses need none.
///
/// # Errors
/// If a variable has no proxy that this program can use.
pub(crate) fn proxy(target: &Target) -> Result<Option<Proxy>, Failure> {
    find(target, |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty()))
}

fn find(target: &Target, read: impl Fn(&str) -> Option<String>) -> Result<Option<Proxy>, Failure> {
    // Servers of CGI have the header `Proxy` of a request in HTTP_PROXY, so only the small letters count.
    let own: &[&str] = if target.is_secure() { &["https_proxy", "HTTPS_PROXY"] } else { &["http_proxy"] };
    let found = own.iter().chain(&["all_proxy", "ALL_PROXY"]).find_map(|name| Some((name, read(name)?)));
    let Some((name, value)) = found else { return Ok(None) };
    let excepted = ["no_proxy", "NO_PROXY"].iter().find_map(|name| read(name)).unwrap_or_default();
    if is_loopback(target.host()) || is_excepted(target.host(), target.port(), &excepted) {
        return Ok(None);
    }
    let value = value.trim();
    let whole = if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
    let whole = whole.trim_end_matches('/').replacen("socks5h://", "socks5://", 1);
    let proxy = whole.parse().map_err(|error| {
        // A login in it is nobody else's business.
        Failure::usage(format!("the variable {name} of the environment has no proxy: {error}; --no-proxy ignores it"))
    });
    proxy.map(Some)
}

/// Whether a list with commas names the host: itself, a domain above it, `*`, or one of these with the port.
fn is_excepted(host: &str, port: u16, list: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    list.split(',').map(|entry| entry.trim().to_ascii_lowercase()).any(|entry| {
        let with_port = entry.rsplit_once(':').filter(|(name, _)| !name.contains(':') || name.ends_with(']'));
        let entry = match with_port.map(|(name, number)| (name, number.parse())) {
            Some((name, Ok::<u16, _>(number))) if number == port => name,
            Some((_, Ok(_))) => return false,
            _ => &*entry,
        };
        let name = entry.trim_matches(['[', ']']).trim_start_matches("*.").trim_start_matches('.');
        name == "*"
            || !name.is_empty() && (host == name || host.strip_suffix(name).is_some_and(|front| front.ends_with('.')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(url: &str, variables: &[(&str, &str)]) -> Option<String> {
        let read =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let found = find(&Target::new(url).unwrap(), read).map_err(|failure| failure.to_string());
        found.unwrap().map(|proxy| format!("{}:{}", proxy.host, proxy.port))
    }

    #[test]
    fn each_scheme_has_its_variable() {
        let all = [("https_proxy", "http://secure:1"), ("http_proxy", "plain:2"), ("all_proxy", "socks5h://all:3")];
        assert_eq!(found("wss://a.test/", &all), Some("secure:1".to_owned()));
        assert_eq!(found("ws://a.test/", &all), Some("plain:2".to_owned()));
        assert_eq!(found("ws://a.test/", &all[2..]), Some("all:3".to_owned()));
        assert_eq!(found("ws://a.test/", &[("HTTP_PROXY", "cgi:4")]), None);
        assert_eq!(found("wss://a.test/", &[]), None);
        for local in ["wss://localhost/", "wss://127.0.0.1/", "wss://[::1]/"] {
            assert_eq!(found(local, &all), None, "{local}");
        }
        let bad =
            find(&Target::new("wss://a.test/").unwrap(), |name| (name == "https_proxy").then(|| "ftp://x:1".into()));
        assert!(bad.unwrap_err().to_string().contains("https_proxy"));
    }

    #[test]
    fn exceptions_are_hosts_and_domains() {
        for (list, is_excepted) in [
            ("*", true),
            ("other.test, a.test", true),
            (".test", true),
            ("*.test", true),
            ("test", true),
            ("A.TEST", true),
            ("a.test:443", true),
            ("a.test:444", false),
            ("st", false),
            ("b.a.test", false),
            ("", false),
            (",", false),
        ] {
            let variables = [("https_proxy", "proxy:1"), ("no_proxy", list)];
            assert_eq!(found("wss://a.test/", &variables).is_none(), is_excepted, "{list:?}");
        }
        let variables = [("https_proxy", "proxy:1"), ("no_proxy", "fd00::1,[fd00::2]:443")];
        assert_eq!((found("wss://[fd00::1]/", &variables), found("wss://[fd00::2]/", &variables)), (None, None));
    }
}
