//! Names in a certificate, for people and for servers that are told of them.

use crate::der::{Der, OBJECT, SEQUENCE};
use core::fmt::{self, Write as _};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A name of the subject beside its distinguished name (RFC 5280, section 4.2.1.6).
///
/// Its text is that of OpenSSL: `DNS:app.example`, `IP:192.0.2.7`, `URI:spiffe://a/b`, `email:a@b.example`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AlternativeName<'a> {
    /// The name of a host.
    Dns(&'a str),
    /// An address.
    Ip(IpAddr),
    /// A URI, such as a SPIFFE id.
    Uri(&'a str),
    /// An address for mail.
    Email(&'a str),
}

impl fmt::Display for AlternativeName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) => write!(f, "DNS:{name}"),
            Self::Ip(address) => write!(f, "IP:{address}"),
            Self::Uri(uri) => write!(f, "URI:{uri}"),
            Self::Email(address) => write!(f, "email:{address}"),
        }
    }
}

/// The names in the value of the extension. Those of other kinds are left out, and malformed ones.
pub(crate) fn alternative(value: &[u8]) -> Vec<AlternativeName<'_>> {
    let mut names = Der(Der(value).take(SEQUENCE).unwrap_or_default());
    core::iter::from_fn(|| names.next().map(|(tag, value)| alternative_name(tag, value))).flatten().collect()
}

fn alternative_name(tag: u8, value: &[u8]) -> Option<AlternativeName<'_>> {
    let text = || core::str::from_utf8(value).ok().filter(|text| text.is_ascii());
    match tag {
        0x81 => text().map(AlternativeName::Email),
        0x82 => text().map(AlternativeName::Dns),
        0x86 => text().map(AlternativeName::Uri),
        0x87 => address(value).map(AlternativeName::Ip),
        _ => None,
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(|bytes| Ipv4Addr::from(bytes).into()),
        16 => <[u8; 16]>::try_from(bytes).ok().map(|bytes| Ipv6Addr::from(bytes).into()),
        _ => None,
    }
}

/// A distinguished name in DER as text (RFC 4514): the last part first, as in `CN=Ada,O=Example,C=GB`.
///
/// All but printable ASCII is escaped, so the text is a value of a header.
#[must_use]
pub fn distinguished(name: &[u8]) -> String {
    let mut parts = Vec::new();
    let mut sets = Der(name);
    while let Some((_, set)) = sets.next() {
        let mut set = Der(set);
        let pairs: Vec<String> = core::iter::from_fn(|| set.take(SEQUENCE)).filter_map(pair).collect();
        parts.push(pairs.join("+"));
    }
    parts.reverse();
    parts.join(",")
}

/// The common name in a distinguished name in DER: the last one, if it is text without control characters.
#[must_use]
pub fn common_name(name: &[u8]) -> Option<&str> {
    const COMMON_NAME: [u8; 3] = [0x55, 4, 3];
    let mut found = None;
    let mut sets = Der(name);
    while let Some((_, set)) = sets.next() {
        let mut set = Der(set);
        while let Some(pair) = set.take(SEQUENCE) {
            let mut pair = Der(pair);
            if pair.take(OBJECT).is_some_and(|id| *id == COMMON_NAME) {
                found = pair.next().and_then(|(_, value)| core::str::from_utf8(value).ok());
            }
        }
    }
    found.filter(|name| !name.chars().any(char::is_control))
}

/// One attribute and its value.
fn pair(pair: &[u8]) -> Option<String> {
    let mut pair = Der(pair);
    let id = pair.take(OBJECT)?;
    let (_, value) = pair.next()?;
    Some(format!("{}={}", attribute(id), escaped(value)))
}

/// The short name of an attribute (RFC 4514, section 3), or its numbers.
fn attribute(id: &[u8]) -> String {
    // 0.9.2342.19200300.100.1
    const PILOT: [u8; 9] = [9, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1];
    let short = match id {
        [0x55, 4, 3] => "CN",
        [0x55, 4, 6] => "C",
        [0x55, 4, 7] => "L",
        [0x55, 4, 8] => "ST",
        [0x55, 4, 9] => "STREET",
        [0x55, 4, 10] => "O",
        [0x55, 4, 11] => "OU",
        [pilot @ .., 1] if *pilot == PILOT => "UID",
        [pilot @ .., 25] if *pilot == PILOT => "DC",
        _ => return numbers(id),
    };
    short.to_string()
}

/// The numbers of an object identifier, with dots.
fn numbers(id: &[u8]) -> String {
    let mut text = String::new();
    let mut number = 0_u64;
    for byte in id {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        if text.is_empty() {
            let first = (number / 40).min(2);
            let _ = write!(text, "{first}.{}", number - 40 * first);
        } else {
            let _ = write!(text, ".{number}");
        }
        number = 0;
    }
    text
}

/// The value of an attribute, with the escapes of RFC 4514, section 2.4.
fn escaped(value: &[u8]) -> String {
    let mut text = String::new();
    for (at, &byte) in value.iter().enumerate() {
        let is_edge = at == 0 && matches!(byte, b' ' | b'#') || at + 1 == value.len() && byte == b' ';
        if is_edge || matches!(byte, b'"' | b'+' | b',' | b';' | b'<' | b'>' | b'\\' | b'=') {
            text.push('\\');
            text.push(char::from(byte));
        } else if matches!(byte, 0x20..=0x7e) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "\\{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(tag: u8, value: &[u8]) -> Vec<u8> {
        [&[tag, u8::try_from(value.len()).unwrap()], value].concat()
    }

    fn part(id: &[u8], value: &[u8]) -> Vec<u8> {
        let pair = [element(OBJECT, id), element(0x0c, value)].concat();
        element(0x31, &element(SEQUENCE, &pair))
    }

    #[test]
    fn a_distinguished_name_is_read_from_its_end_and_escaped() {
        let name = [
            part(&[0x55, 4, 6], b"GB"),
            part(&[0x55, 4, 10], b"A, B=C\r\n"),
            part(&[9, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], b"#7 "),
            part(&[0x2a, 0x86, 0x48], b"x"),
            part(&[0x55, 4, 3], "Zo\u{eb}".as_bytes()),
        ]
        .concat();
        assert_eq!(distinguished(&name), r"CN=Zo\C3\AB,1.2.840=x,UID=\#7\ ,O=A\, B\=C\0D\0A,C=GB");
        assert_eq!(common_name(&name), Some("Zo\u{eb}"));
        for cut in 0..name.len() {
            let _ = (distinguished(&name[..cut]), common_name(&name[..cut]));
        }
    }

    #[test]
    fn a_common_name_is_the_last_one_and_has_no_controls() {
        let common = |value: &[u8]| part(&[0x55, 4, 3], value);
        assert_eq!(common_name(&[common(b"outer"), common(b"inner")].concat()), Some("inner"));
        for none in [part(&[0x55, 4, 10], b"O"), common(b"a\0b"), common(&[0xff]), Vec::new()] {
            assert_eq!(common_name(&none), None, "{none:?}");
        }
    }

    #[test]
    fn alternative_names_are_those_of_known_kinds() {
        let names = [
            element(0x82, b"app.example"),
            element(0x87, &[192, 0, 2, 7]),
            element(0x87, &[1, 2, 3]),
            element(0x88, &[1]),
            element(0x86, b"spiffe://a/b"),
            element(0x81, b"a@b.example"),
            element(0x82, &[0xff]),
        ]
        .concat();
        let value = element(SEQUENCE, &names);
        let texts: Vec<String> = alternative(&value).iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["DNS:app.example", "IP:192.0.2.7", "URI:spiffe://a/b", "email:a@b.example"]);
        assert_eq!(alternative(&[]), vec![]);
    }
}
