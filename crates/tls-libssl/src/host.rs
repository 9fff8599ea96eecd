use core::net::IpAddr;
use std::ffi::CString;
use tautline_tls::Error;

/// The host that a client connects to.
pub(crate) enum Host {
    /// A DNS name without a trailing dot.
    Name(CString),
    Address(IpAddr),
}

impl Host {
    /// Parses the host of a URL, which has IPv6 addresses in brackets.
    pub(crate) fn parse(host: &str) -> Result<Self, Error> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Ok(address) = bare.parse() {
            return Ok(Self::Address(address));
        }
        let name = host.strip_suffix('.').unwrap_or(host);
        let is_name =
            name.len() <= 253 && name.split('.').all(is_label) && !name.ends_with(|end: char| end.is_ascii_digit());
        match CString::new(name) {
            Ok(name) if is_name => Ok(Self::Name(name)),
            _ => Err(Error::Config(format!("{host:?} is neither a DNS name nor an IP address"))),
        }
    }
}

/// Whether this is a label (RFC 1123, section 2.1), with the underscore that some names have.
fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::Host;

    #[test]
    fn parses_names_and_addresses_and_rejects_the_rest() {
        for name in ["localhost", "a.b-c.example.", "xn--bcher-kva.example", "_x.example", "3com.com"] {
            assert!(
                matches!(Host::parse(name), Ok(Host::Name(found)) if found.to_str() == Ok(name.trim_end_matches('.')))
            );
        }
        for address in ["127.0.0.1", "::1", "[::1]"] {
            assert!(matches!(Host::parse(address), Ok(Host::Address(_))), "{address}");
        }
        let long = "a".repeat(64);
        for bad in ["", ".", "a..b", "local host", "a:443", "-a", "a-.b", "1.2.3.4.5", "a\0b", "bücher.example", &long]
        {
            assert!(Host::parse(bad).is_err(), "{bad:?}");
        }
    }
}
