//! `--origin`: the web pages that may connect, also to a server that only this machine reaches.

use tautline::{Address, Origins};

/// Understands the value of `--origin`.
pub(super) fn origin(text: &str) -> Result<String, String> {
    let text = if text == "any" { "*" } else { text };
    Origins::list([text]).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// The pages that may connect to a server at these addresses, if its user named `origins`.
///
/// Without any name a server on loopback takes pages of this machine, and those that a proxy forwards. The rule that others
/// have, that `Host` fits `Origin`, stops no page whose name leads to 127.0.0.1 (DNS rebinding).
pub(super) fn origins(origins: &[String], is_local: bool) -> Result<Origins, String> {
    match (origins.is_empty(), is_local) {
        (true, true) => Ok(Origins::Loopback),
        (true, false) => Ok(Origins::SameHost),
        (false, _) => Origins::list(origins).map_err(|error| error.to_string()),
    }
}

/// Whether browsers reach these addresses on this machine only. They cannot use Unix sockets.
pub(super) fn are_local<'a>(addresses: impl IntoIterator<Item = &'a Address>) -> bool {
    let mut tcp = addresses.into_iter().filter(|address| !matches!(address, Address::Unix(_) | Address::UnixUnnamed));
    let is_loopback = |address: &Address| matches!(address, Address::Tcp(at) if at.ip().to_canonical().is_loopback());
    tcp.next().is_some_and(is_loopback) && tcp.all(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_counts_as_local() {
        let local = |texts: &[&str]| are_local(&texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>());
        assert!(local(&["127.0.0.1:1"]) && local(&["[::1]:1", "127.0.0.2:1", "unix:/run/x"]));
        for others in [&[][..], &["unix:/run/x"], &["0.0.0.0:1"], &["127.0.0.1:1", "10.0.0.1:1"], &["[::]:1"]] {
            assert!(!local(others), "{others:?}");
        }
    }

    #[test]
    fn an_origin_names_its_right_form() {
        assert_eq!(origin("any"), Ok("*".to_owned()));
        assert_eq!(origin("https://*.example.org"), Ok("https://*.example.org".to_owned()));
        assert!(origin("app.example").unwrap_err().contains("write https://app.example"));
        assert_eq!(origins(&["*".to_owned()], true), Ok(Origins::Any));
        assert_eq!((origins(&[], true), origins(&[], false)), (Ok(Origins::Loopback), Ok(Origins::SameHost)));
    }
}
