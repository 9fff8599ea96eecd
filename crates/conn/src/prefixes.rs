//! Networks of peers that a configuration names.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use tautline_io::Address;

/// A network of peers: `10.0.0.0/8`, `2001:db8::/32`, one address, or `unix` for all Unix sockets.
///
/// ```
/// # mod tautline { pub use tautline_conn::prefixes::Prefix; }
/// use tautline::Prefix;
///
/// let prefix: Prefix = "10.0.0.0/8".parse()?;
/// assert!(prefix.contains(&"10.1.2.3:443".parse()?) && !prefix.contains(&"11.1.2.3:443".parse()?));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// An IPv4 address in canonical form, or an IPv6 address, and the leading bits that count.
    Ip(IpAddr, u8),
    Unix,
}

impl Prefix {
    /// All peers of Unix sockets.
    pub const UNIX: Self = Self(Kind::Unix);

    /// Whether a peer belongs to it. An IPv4 peer of an IPv6 socket (`::ffff:10.0.0.1`) is an IPv4 peer.
    #[must_use]
    pub fn contains(&self, peer: &Address) -> bool {
        match (self.0, peer) {
            (Kind::Unix, Address::Unix(_) | Address::UnixUnnamed) => true,
            (Kind::Ip(network, len), Address::Tcp(peer)) => masked(peer.ip().to_canonical(), len) == Some(network),
            _ => false,
        }
    }
}

/// The address with its first `len` bits. `None` if it has fewer.
fn masked(address: IpAddr, len: u8) -> Option<IpAddr> {
    Some(match address {
        IpAddr::V4(address) => {
            let rest = 32_u32.checked_sub(u32::from(len))?;
            IpAddr::V4((address.to_bits() & u32::MAX.checked_shl(rest).unwrap_or(0)).into())
        }
        IpAddr::V6(address) => {
            let rest = 128_u32.checked_sub(u32::from(len))?;
            IpAddr::V6((address.to_bits() & u128::MAX.checked_shl(rest).unwrap_or(0)).into())
        }
    })
}

impl FromStr for Prefix {
    /// A text that says what to write.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "unix" {
            return Ok(Self::UNIX);
        }
        let wrong = || {
            format!("{text:?} is no network; write an address, ADDRESS/BITS as in 10.0.0.0/8, or unix for Unix sockets")
        };
        let (address, len) = text.split_once('/').map_or((text, None), |(address, len)| (address, Some(len)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let len = match len {
            None => most,
            Some(len) if len.bytes().all(|byte| byte.is_ascii_digit()) => len.parse().map_err(|_| wrong())?,
            Some(_) => return Err(wrong()),
        };
        let network = masked(address, len).ok_or_else(wrong)?;
        if network != address {
            return Err(format!("{text:?} has bits behind its first {len}; write {network}/{len}"));
        }
        Ok(match address.to_canonical() {
            // A mapped address is that of IPv4, if its prefix counts at all.
            IpAddr::V4(mapped) if most == 128 && len >= 96 => Self(Kind::Ip(mapped.into(), len - 96)),
            IpAddr::V4(_) if most == 128 => Self(Kind::Ip(network, len)),
            canonical => Self(Kind::Ip(canonical, len)),
        })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Kind::Unix => f.write_str("unix"),
            Kind::Ip(network, len) => write!(f, "{network}/{len}"),
        }
    }
}

/// Networks of peers, such as those of the proxies before a server.
///
/// ```
/// # mod tautline { pub use tautline_conn::prefixes::Prefixes; }
/// use tautline::Prefixes;
///
/// let proxies = Prefixes::list(&["10.0.0.0/8", "unix"])?;
/// assert!(proxies.contain(&"unix:/run/proxy.sock".parse()?));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefixes(Vec<Prefix>);

impl Prefixes {
    /// The networks with these names.
    ///
    /// # Errors
    /// One of them is no network; the text says what to write.
    pub fn list<T: AsRef<str>>(names: &[T]) -> Result<Self, String> {
        names.iter().map(|name| name.as_ref().parse()).collect::<Result<_, _>>().map(Self)
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a peer belongs to one of them.
    #[must_use]
    pub fn contain(&self, peer: &Address) -> bool {
        self.0.iter().any(|prefix| prefix.contains(peer))
    }
}

impl FromIterator<Prefix> for Prefixes {
    fn from_iter<I: IntoIterator<Item = Prefix>>(prefixes: I) -> Self {
        Self(prefixes.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::{Prefix, Prefixes};
    use tautline_io::Address;

    fn contains(prefix: &str, peer: &str) -> bool {
        let peer: Address = peer.parse().unwrap();
        prefix.parse::<Prefix>().unwrap().contains(&peer)
    }

    #[test]
    fn a_network_contains_its_addresses_alone() {
        for (prefix, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1:1", "11.0.0.1:1"),
            ("10.0.0.0/8", "[::ffff:10.0.0.1]:1", "[::ffff:11.0.0.1]:1"),
            ("192.0.2.7", "192.0.2.7:1", "192.0.2.6:1"),
            ("0.0.0.0/0", "192.0.2.7:1", "[2001:db8::1]:1"),
            ("2001:db8::/32", "[2001:db8:1::1]:1", "[2001:db9::1]:1"),
            ("::1", "[::1]:1", "127.0.0.1:1"),
            ("::/0", "[2001:db8::1]:1", "192.0.2.7:1"),
            ("::ffff:10.0.0.0/104", "10.1.1.1:1", "11.1.1.1:1"),
            ("unix", "unix:/run/x.sock", "127.0.0.1:1"),
            ("10.0.0.128/25", "10.0.0.129:1", "10.0.0.127:1"),
        ] {
            assert!(contains(prefix, inside), "{prefix} {inside}");
            assert!(!contains(prefix, outside), "{prefix} {outside}");
        }
        assert!(Prefix::UNIX.contains(&Address::UnixUnnamed));
        assert!(!"0.0.0.0/0".parse::<Prefix>().unwrap().contains(&Address::UnixUnnamed));
    }

    #[test]
    fn other_texts_are_errors_that_say_what_to_write() {
        for (text, word) in [
            ("", "ADDRESS/BITS"),
            ("localhost", "ADDRESS/BITS"),
            ("10.0.0.0/33", "ADDRESS/BITS"),
            ("10.0.0.0/+8", "ADDRESS/BITS"),
            ("10.0.0.0/", "ADDRESS/BITS"),
            ("10.0.0.0:443", "ADDRESS/BITS"),
            ("2001:db8::/129", "ADDRESS/BITS"),
            ("10.0.0.1/8", "write 10.0.0.0/8"),
            ("unix:/run/x.sock", "unix for"),
        ] {
            assert!(text.parse::<Prefix>().unwrap_err().contains(word), "{text}");
        }
        assert!(Prefixes::list(&["10.0.0.0/8", "x"]).is_err());
        assert_eq!("10.0.0.0/8".parse::<Prefix>().unwrap().to_string(), "10.0.0.0/8");
        assert!(Prefixes::default().is_empty() && !Prefixes::default().contain(&Address::UnixUnnamed));
    }
}
