//! The keys of the file, as serde reads them.

use crate::balance::Balance;
use crate::forward::ProxyProtocol;
use crate::plan::Certified;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use toml::Spanned;

/// The type of a [`Time`] in errors of the parser.
pub(super) const A_TIME: &str = "a time";

/// The type of a [`Size`] in errors of the parser.
pub(super) const A_SIZE: &str = "a size";

pub(super) type Text = Spanned<String>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    #[serde(default)]
    pub(super) listen: Vec<Text>,
    #[serde(default)]
    pub(super) certificates: Vec<Spanned<Certificate>>,
    pub(super) acme: Option<Spanned<Acme>>,
    #[serde(default)]
    pub(super) client: Client,
    #[serde(default)]
    pub(super) limits: Limits,
    pub(super) client_ca: Option<Spanned<PathBuf>>,
    pub(super) client_certificate: Option<Spanned<Certified>>,
    #[serde(default)]
    pub(super) plain: Option<Spanned<bool>>,
    pub(super) http2: Option<Spanned<bool>>,
    #[serde(default)]
    pub(super) pages: BTreeMap<Text, Spanned<PathBuf>>,
    pub(super) request_id: Option<bool>,
    pub(super) traceparent: Option<bool>,
    #[serde(default)]
    pub(super) route: Vec<Spanned<Route>>,
    #[serde(default)]
    pub(super) backend: BTreeMap<Text, Spanned<Backend>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Acme {
    pub(super) names: Spanned<Vec<String>>,
    pub(super) directory: Option<String>,
    #[serde(default)]
    pub(super) contacts: Vec<String>,
    pub(super) folder: Option<PathBuf>,
    pub(super) ca: Option<PathBuf>,
    pub(super) eab: Option<PathBuf>,
    pub(super) profile: Option<String>,
    #[serde(default)]
    pub(super) must_staple: bool,
    pub(super) http: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Client {
    pub(super) head_time: Option<Time>,
    pub(super) idle_time: Option<Time>,
    pub(super) send_time: Option<Time>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Limits {
    pub(super) connections: Option<Spanned<usize>>,
    pub(super) handshakes: Option<Spanned<usize>>,
    pub(super) requests: Option<Rate>,
    pub(super) requests_of_network: Option<Rate>,
    pub(super) connections_of_host: Option<Spanned<u32>>,
    pub(super) connections_of_network: Option<Spanned<u32>>,
    pub(super) handshakes_of_host: Option<Rate>,
    pub(super) handshakes_of_network: Option<Rate>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Rate {
    pub(super) per_second: Spanned<u32>,
    pub(super) burst: Option<Spanned<u32>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Certificate {
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
    pub(super) client_ca: Option<Spanned<PathBuf>>,
    pub(super) client_certificate: Option<Spanned<Certified>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Route {
    pub(super) name: Option<String>,
    pub(super) hosts: Option<Spanned<Vec<Text>>>,
    pub(super) path: Option<Text>,
    #[serde(default)]
    pub(super) exact: bool,
    pub(super) to: Option<Text>,
    pub(super) redirect: Option<Spanned<Redirect>>,
    pub(super) answer: Option<Spanned<Answer>>,
    pub(super) files: Option<Spanned<PathBuf>>,
    pub(super) rewrite: Option<Text>,
    pub(super) host: Option<Text>,
    #[serde(default)]
    pub(super) request: Edits,
    #[serde(default)]
    pub(super) response: Edits,
    pub(super) origins: Option<Spanned<Vec<String>>>,
    pub(super) messages: Option<Spanned<Messages>>,
    pub(super) client_certificate: Option<Spanned<Certified>>,
    pub(super) allow: Option<Spanned<Vec<Text>>>,
    #[serde(default)]
    pub(super) deny: Vec<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Messages {
    pub(super) max_size: Option<Size>,
    pub(super) rate: Option<Spanned<u32>>,
    pub(super) rate_by_address: Option<Spanned<u32>>,
    pub(super) rate_in_all: Option<Spanned<u32>>,
    #[serde(default)]
    pub(super) deflate: bool,
    #[serde(default)]
    pub(super) slow: Slow,
    pub(super) queue: Option<Spanned<Size>>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Slow {
    #[default]
    Pause,
    Disconnect,
    DropNewest,
    DropOldest,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Edits {
    #[serde(default)]
    pub(super) remove: Vec<Text>,
    #[serde(default)]
    pub(super) set: BTreeMap<Text, Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Redirect {
    pub(super) to: String,
    pub(super) status: Option<u16>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Option<String>,
    pub(super) file: Option<PathBuf>,
    pub(super) content_type: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Backend {
    pub(super) servers: Vec<Text>,
    #[serde(default)]
    pub(super) drain: Vec<Text>,
    #[serde(default)]
    pub(super) balance: Balance,
    pub(super) hash: Option<Text>,
    pub(super) sticky_cookie: Option<Text>,
    pub(super) max_connections: Option<Spanned<usize>>,
    pub(super) wait_queue: Option<Spanned<usize>>,
    pub(super) wait_time: Option<Spanned<Time>>,
    pub(super) resolve_every: Option<Spanned<Time>>,
    pub(super) failures: Option<u32>,
    pub(super) failure_time: Option<Time>,
    pub(super) connect_time: Option<Time>,
    pub(super) head_time: Option<Time>,
    pub(super) body_time: Option<Time>,
    pub(super) idle_time: Option<Spanned<Time>>,
    pub(super) tunnel_time: Option<Time>,
    pub(super) proxy_protocol: Option<ProxyProtocol>,
    pub(super) check: Option<Check>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Check {
    pub(super) path: Option<Text>,
    pub(super) every: Option<Time>,
    pub(super) timeout: Option<Time>,
    pub(super) fall: Option<Spanned<u32>>,
    pub(super) rise: Option<Spanned<u32>>,
}

/// A time with its unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time(pub(super) Duration);

impl TryFrom<String> for Time {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let how = || format!("{text:?} is no time: write a number with its unit, as 500ms, 30s, 2m or 1h; at most 24h");
        let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
        let millis = scaled(&text, &units).filter(|millis| (1..=86_400_000).contains(millis)).ok_or_else(how)?;
        Ok(Self(Duration::from_millis(millis)))
    }
}

/// A number of bytes with its unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size(pub(super) usize);

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let how =
            || format!("{text:?} is no size: write a number with its unit, as 500B, 64KiB or 1MiB; at most 1024MiB");
        let bytes = scaled(&text, &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20)]);
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        bytes.filter(|bytes| (1..=1 << 30).contains(bytes)).map(Self).ok_or_else(how)
    }
}

/// A number of digits alone with one of these units behind it, in the unit whose scale is 1.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic())?);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    let number = number.parse::<u64>().ok().filter(|_| number.bytes().all(|byte| byte.is_ascii_digit()));
    number?.checked_mul(*scale)
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(WithUnit { expected: A_TIME, read: Self::try_from })
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(WithUnit { expected: A_SIZE, read: Self::try_from })
    }
}

/// Reads a text with a unit. A value of another type leads to an error that says what was `expected`.
struct WithUnit<T> {
    expected: &'static str,
    read: fn(String) -> Result<T, String>,
}

impl<T> Visitor<'_> for WithUnit<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.read)(text.to_owned()).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_a_unit() {
        let size = |text: &str| Size::try_from(text.to_owned()).map(|Size(size)| size);
        assert_eq!((size("1B"), size("64KiB"), size("1024MiB")), (Ok(1), Ok(65_536), Ok(1 << 30)));
        for bad in
            ["", "5", "0B", "-1B", "+1B", "1.5MiB", "1025MiB", "KiB", "5 B", "1kib", "1GB", "99999999999999999999B"]
        {
            assert!(size(bad).unwrap_err().contains("64KiB"), "{bad}");
        }
    }

    #[test]
    fn a_time_has_a_unit() {
        let time = |text: &str| Time::try_from(text.to_owned()).map(|Time(time)| time.as_millis());
        assert_eq!(
            (time("500ms"), time("30s"), time("2m"), time("24h")),
            (Ok(500), Ok(30_000), Ok(120_000), Ok(86_400_000))
        );
        for bad in ["", "5", "0s", "-1s", "+1s", "1.5s", "25h", "s", "5 s", "99999999999999999999h"] {
            assert!(time(bad).unwrap_err().contains("30s"), "{bad}");
        }
    }
}
