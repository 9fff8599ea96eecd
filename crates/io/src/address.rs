use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The address of a socket or its peer: `127.0.0.1:8443`, `[::1]:8443`, `unix:/run/taut.sock`.
///
/// ```
/// # mod tautline { pub use tautline_io::Address; }
/// use tautline::Address;
///
/// let tcp: Address = "[::1]:8443".parse()?;
/// let unix: Address = "unix:/run/taut.sock".parse()?;
/// assert_eq!((tcp.to_string(), unix.to_string()), ("[::1]:8443".into(), "unix:/run/taut.sock".into()));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A Unix stream socket.
    Unix(PathBuf),
    /// A Unix peer without a name.
    UnixUnnamed,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => addr.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::UnixUnnamed => f.write_str("unix:"),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(addr: SocketAddr) -> Self {
        Self::Tcp(addr)
    }
}

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        if let Some(path) = s.strip_prefix("unix:") {
            if path.is_empty() {
                return Err("unix: needs a path, as in unix:/run/taut.sock".into());
            }
            return Ok(Self::Unix(path.into()));
        }
        s.parse()
            .map(Self::Tcp)
            .map_err(|_| format!("{s:?} is no address; write IP:PORT, [IPv6]:PORT or unix:/path/to/socket"))
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn reads_what_it_prints() {
        for text in ["127.0.0.1:8443", "[::1]:0", "unix:/run/taut.sock", "unix:relative"] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
        assert_eq!(Address::UnixUnnamed.to_string(), "unix:");
    }

    #[test]
    fn says_what_to_write_instead() {
        assert!("unix:".parse::<Address>().unwrap_err().contains("needs a path"));
        for text in ["", "8443", "localhost:8443", "127.0.0.1", "::1:80", "127.0.0.1:65536", "/run/taut.sock"] {
            assert!(text.parse::<Address>().unwrap_err().contains("write IP:PORT"), "{text:?}");
        }
    }
}
