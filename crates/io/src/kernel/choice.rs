use std::fmt;
use std::str::FromStr;

/// Which records of established TLS 1.3 connections the kernel seals and opens (Documentation/networking/tls.rst).
/// Other versions, sockets other than TCP, and ciphers that this kernel does not have stay in user space.
///
/// A peer may change its keys at any time (RFC 8446, section 4.6.3), and Linux can replace keys from 6.14 on. With an
/// older kernel such a change ends a connection if the kernel opens its received records. If the kernel seals its sent
/// records, the connection ends when the peer asks for a change of our keys. It is closed with 1012 when its key has
/// protected 2^23 records.
///
/// ```
/// # mod tautline { pub use tautline_io::{DriverConfig, KernelTls}; }
/// use tautline::{DriverConfig, KernelTls};
///
/// let driver = DriverConfig::default().with_kernel_tls("tx".parse()?)?;
/// assert_eq!(driver.kernel_tls(), KernelTls::Transmit);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KernelTls {
    /// No records.
    #[default]
    Off,
    /// Sent records, and received records too if the kernel can replace keys.
    Auto,
    /// Sent records.
    Transmit,
    /// Received records.
    Receive,
    /// All records.
    Both,
}

impl KernelTls {
    /// All names.
    pub const ALL: [Self; 5] = [Self::Off, Self::Auto, Self::Transmit, Self::Receive, Self::Both];

    /// The name that [`FromStr`] reads.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Auto => "auto",
            Self::Transmit => "tx",
            Self::Receive => "rx",
            Self::Both => "both",
        }
    }
}

impl fmt::Display for KernelTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for KernelTls {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|halves| halves.name() == name);
        found.ok_or_else(|| format!("write {}, not {name:?}", Self::ALL.map(Self::name).join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::KernelTls;

    #[test]
    fn reads_what_it_prints() {
        for halves in KernelTls::ALL {
            assert_eq!(halves.to_string().parse(), Ok(halves));
        }
        assert!("all".parse::<KernelTls>().unwrap_err().contains("off, auto, tx, rx, both"));
    }
}
