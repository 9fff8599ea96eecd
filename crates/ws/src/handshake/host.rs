//! Hosts as users write them: international names, and zones of IPv6 addresses.

use std::borrow::Cow;

/// The text of a URI whose host name is in ASCII, as DNS, TLS and HTTP have it: `wss://bücher.example/` becomes
/// `wss://xn--bcher-kva.example/`.
///
/// # Errors
/// A text that says why the name has no such form.
pub fn ascii_host(uri: &str) -> Result<Cow<'_, str>, &'static str> {
    let Some((scheme, rest)) = uri.split_once("://") else { return Ok(uri.into()) };
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let host_port = authority.rsplit_once('@').map_or(authority, |(_, host_port)| host_port);
    let host = &host_port[..host_port.find(':').unwrap_or(host_port.len())];
    if host.is_ascii() {
        return Ok(uri.into());
    }
    let begin = scheme.len() + 3 + authority.len() - host_port.len();
    Ok(format!("{}{}{}", &uri[..begin], ascii_name(host)?, &uri[begin + host.len()..]).into())
}

/// A host name in ASCII. International names are converted as browsers do (UTS #46, RFC 5891).
///
/// # Errors
/// A text that says why the name has no such form.
#[cfg(feature = "idn")]
pub fn ascii_name(name: &str) -> Result<Cow<'_, str>, &'static str> {
    use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};
    if name.is_ascii() {
        return Ok(name.into());
    }
    let length = DnsLength::VerifyAllowRootDot;
    let ascii = Uts46::new().to_ascii(name.as_bytes(), AsciiDenyList::URL, Hyphens::Allow, length);
    ascii.map_err(|_| "its host is no valid international name; check the characters and the length of each part")
}

/// A host name in ASCII, which this build needs it to be.
///
/// # Errors
/// A text that names the remedy.
#[cfg(not(feature = "idn"))]
pub fn ascii_name(name: &str) -> Result<Cow<'_, str>, &'static str> {
    let what = "its host is an international name, for which this build lacks the feature idn; write it as xn--…";
    if name.is_ascii() { Ok(name.into()) } else { Err(what) }
}

/// Splits an IPv6 address without brackets from the number of its zone, if it has one (RFC 4007, section 11).
///
/// URIs have `fe80::1%252` (RFC 6874), and users write `fe80::1%2`. After `%25` the zone is the rest, unless nothing follows. So
/// zones from 250 on that begin with 25 need the `%25`: `%25250`, since `%250` is no zone and `%2512` is zone 12.
///
/// # Errors
/// A text that names the remedy if the zone is not a number.
pub fn split_zone(address: &str) -> Result<(&str, Option<u32>), &'static str> {
    let Some((ip, zone)) = address.split_once('%') else { return Ok((address, None)) };
    let zone = zone.strip_prefix("25").filter(|rest| !rest.is_empty()).unwrap_or(zone);
    let number = zone.parse().ok().filter(|&number| number > 0 && zone.bytes().all(|byte| byte.is_ascii_digit()));
    number.map(|number| (ip, Some(number))).ok_or(
        "the zone of its IPv6 address is not the number of an interface; write it as in [fe80::1%2], and as in \
             [fe80::1%25250] if the number begins with 25",
    )
}

#[cfg(test)]
mod tests {
    use super::{ascii_host, split_zone};

    #[test]
    #[cfg(feature = "idn")]
    fn international_names_are_converted_where_the_host_is() {
        for (uri, ascii) in [
            ("wss://bücher.example", "wss://xn--bcher-kva.example"),
            ("wss://u:p@BÜCHER.example:8443/ü?ü", "wss://u:p@xn--bcher-kva.example:8443/ü?ü"),
            ("ws://faß.de?x", "ws://xn--fa-hia.de?x"),
            ("ws://例え.テスト/", "ws://xn--r8jz45g.xn--zckzah/"),
            ("ws://bücher。example/", "ws://xn--bcher-kva.example/"),
            ("socks5://me:ü@bücher.example", "socks5://me:ü@xn--bcher-kva.example"),
            ("ws://plain.example/ü", "ws://plain.example/ü"),
            ("ws://A_b.example/", "ws://A_b.example/"),
        ] {
            assert_eq!(ascii_host(uri).as_deref(), Ok(ascii), "{uri}");
        }
        let long = format!("ws://{}.example/", "ü".repeat(64));
        for uri in ["ws://ü b.example/", "ws://a..ü/", "ws://℀.example/", "ws://xn--a.ü/", "ws://ü\u{200e}/", &long]
        {
            assert!(ascii_host(uri).unwrap_err().contains("international name"), "{uri}");
        }
    }

    #[test]
    #[cfg(not(feature = "idn"))]
    fn a_build_without_international_names_says_so() {
        assert!(ascii_host("wss://bücher.example/").unwrap_err().contains("feature idn"));
        assert_eq!(ascii_host("wss://xn--bcher-kva.example/ü").as_deref(), Ok("wss://xn--bcher-kva.example/ü"));
    }

    #[test]
    fn zones_are_numbers() {
        assert_eq!(split_zone("fe80::1"), Ok(("fe80::1", None)));
        for (address, zone) in
            [("fe80::1%2", 2), ("fe80::1%252", 2), ("fe80::1%25", 25), ("fe80::1%2525", 25), ("fe80::1%25250", 250)]
        {
            assert_eq!(split_zone(address), Ok(("fe80::1", Some(zone))), "{address}");
        }
        for address in ["fe80::1%", "fe80::1%0", "fe80::1%250", "fe80::1%25eth0", "fe80::1%+1", "fe80::1%4294967296"] {
            assert!(split_zone(address).unwrap_err().contains("[fe80::1%2]"), "{address}");
        }
    }
}
