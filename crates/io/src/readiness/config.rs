use crate::{KernelTls, Spin};
use std::net::IpAddr;
use std::time::Duration;

/// Descriptors that fit a set of the usual size for select(2): 0 to 1023.
pub const FD_SETSIZE: usize = 1024;

/// How a [`Driver`](super::Driver) works. The defaults suit servers and clients of any size.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Most bytes of one connection that are received at once. Default 256 KiB.
    pub receive_buffer: usize,
    /// Room in front of received bytes for carried ones, see [`Received::join`](crate::Received::join). Default 20
    /// KiB: more than one TLS record (RFC 8446 section 5.2: 16,640 bytes behind a header of 5).
    pub headroom: usize,
    /// Most events that one turn takes from the kernel. Default 1024.
    pub events_per_turn: usize,
    /// Most connections that one turn accepts from one listening socket. Default 8: accepting one takes some 10 µs, and
    /// connections that are there wait for that.
    pub accepts_per_turn: usize,
    /// How long a closed connection may go on sending its pending bytes before it is reset. Default 5 seconds.
    pub linger: Duration,
    /// How the driver spins instead of sleeping. By default it sleeps.
    pub spin: Option<Spin>,
    /// Address of this machine that TCP connections are opened from. By default the kernel chooses it.
    ///
    /// A source has about 28,000 ports for each destination (`net.ipv4.ip_local_port_range`).
    pub source: Option<IpAddr>,
    /// TLS records that are left to the kernel. Default none.
    pub kernel_tls: KernelTls,
    /// The select driver takes descriptors below this number; others take any. Default 1024, `FD_SETSIZE`; Linux takes
    /// more.
    pub descriptors: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            receive_buffer: 256 * 1024,
            headroom: 20 * 1024,
            events_per_turn: 1024,
            accepts_per_turn: 8,
            linger: Duration::from_secs(5),
            spin: None,
            source: None,
            kernel_tls: KernelTls::Off,
            descriptors: FD_SETSIZE,
        }
    }
}
