use crate::TcpOptions;
use std::net::IpAddr;

/// The end of this machine that a connection is opened from: an address, an interface, or both.
///
/// ```
/// # mod tautline { pub use tautline_io::Source; }
/// use std::net::Ipv4Addr;
/// use tautline::Source;
///
/// let line_a = Source::from(Ipv4Addr::new(10, 0, 1, 7)).on_interface("eth1");
/// assert_eq!(line_a.interface.as_deref(), Some("eth1"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Source {
    /// The address. By default the kernel chooses it.
    pub address: Option<IpAddr>,
    /// The interface's name, such as `eth1` (`SO_BINDTODEVICE`). From Linux 5.7 on every user may choose it, before that
    /// it takes `CAP_NET_RAW`.
    pub interface: Option<String>,
    /// Options of the socket.
    pub tcp: TcpOptions,
}

impl Source {
    /// Opens connections through this interface.
    #[must_use]
    pub fn on_interface(mut self, name: impl Into<String>) -> Self {
        self.interface = Some(name.into());
        self
    }

    /// Sets options of the socket.
    #[must_use]
    pub fn with_tcp(mut self, options: TcpOptions) -> Self {
        self.tcp = options;
        self
    }

    /// This, with the driver's own address if it names none.
    pub(crate) fn or_address(&self, own: Option<IpAddr>) -> Self {
        Self { address: self.address.or(own), ..self.clone() }
    }
}

impl<A: Into<IpAddr>> From<A> for Source {
    fn from(address: A) -> Self {
        Self { address: Some(address.into()), ..Self::default() }
    }
}
