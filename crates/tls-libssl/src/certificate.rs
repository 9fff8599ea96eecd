//! Names and validity of certificates.

use core::fmt::Write as _;
use core::net::IpAddr;

/// A name that a certificate is valid for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// A DNS name in lower case, perhaps with `*.` at the front.
    Dns(String),
    Ip(IpAddr),
}

impl Name {
    /// Parses the shim's lines: `D` and a DNS name, or `I` and an address in hexadecimal.
    pub(crate) fn parse_all(text: &[u8]) -> Vec<Self> {
        text.split(|&byte| byte == b'\n').filter_map(Self::parse).collect()
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let text = core::str::from_utf8(line.get(1..)?).ok()?;
        if line.starts_with(b"D") {
            return Some(Self::Dns(text.to_ascii_lowercase()));
        }
        match text.len() {
            8 => Some(Self::Ip(IpAddr::from(u32::from_str_radix(text, 16).ok()?.to_be_bytes()))),
            32 => Some(Self::Ip(IpAddr::from(u128::from_str_radix(text, 16).ok()?.to_be_bytes()))),
            _ => None,
        }
    }
}

impl core::fmt::Display for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Dns(name) => f.write_str(name),
            Self::Ip(address) => write!(f, "{address}"),
        }
    }
}

/// The time for which a certificate is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) state: State,
    /// Formatted as `2026-11-22 00:33 UTC`.
    pub(crate) from: String,
    pub(crate) until: String,
}

/// Whether a certificate is valid now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Valid,
    NotYet,
    Expired,
}

impl Validity {
    pub(crate) fn new(state: i32, from: &str, until: &str) -> Self {
        let state = match state {
            1 => State::NotYet,
            2 => State::Expired,
            _ => State::Valid,
        };
        Self { state, from: date(from), until: date(until) }
    }
}

/// Formats an ASN.1 time: `2` or `4`, the digits of the year, then `YYMMDDHHMMSSZ` (RFC 5280, section 4.1.2.5).
fn date(time: &str) -> String {
    let century = |year: &str| if year < "50" { "20" } else { "19" };
    let (year, rest) = match time.split_at_checked(1) {
        Some(("2", time)) if time.len() >= 10 && time.is_ascii() => {
            (format!("{}{}", century(&time[..2]), &time[..2]), &time[2..])
        }
        Some(("4", time)) if time.len() >= 12 && time.is_ascii() => (time[..4].to_owned(), &time[4..]),
        _ => return "an unknown day".to_owned(),
    };
    let mut text = year;
    let _ = write!(text, "-{}-{} {}:{} UTC", &rest[..2], &rest[2..4], &rest[4..6], &rest[6..8]);
    text
}

#[cfg(test)]
mod tests {
    use super::{Name, date};

    #[test]
    fn parses_names() {
        let names =
            Name::parse_all(b"DLocalHost\nD*.example.com\nI7f000001\nI00000000000000000000000000000001\nIff\nX\n");
        let text: Vec<_> = names.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["localhost", "*.example.com", "127.0.0.1", "::1"]);
    }

    #[test]
    fn formats_both_kinds_of_times() {
        assert_eq!(date("2261122003359Z"), "2026-11-22 00:33 UTC");
        assert_eq!(date("2991231235959Z"), "1999-12-31 23:59 UTC");
        assert_eq!(date("420501231235959Z"), "2050-12-31 23:59 UTC");
        for bad in ["", "2", "4205012", "x261122003359Z", "2é"] {
            assert_eq!(date(bad), "an unknown day", "{bad:?}");
        }
    }
}
