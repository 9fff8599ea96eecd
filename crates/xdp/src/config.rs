use crate::Faults;
use std::time::Duration;

/// Where the XDP program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attach {
    /// In the device's driver where it has XDP, else generic, with a warning in the log.
    #[default]
    Auto,
    /// In the device's driver only.
    Native,
    /// In front of the kernel's stack, which works with every device, slowly.
    Generic,
}

/// Whether frames are copied between the device and our memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copies {
    /// Not where the device's driver can do without.
    #[default]
    Auto,
    /// Never: opening fails where the driver cannot.
    Never,
    /// Always.
    Always,
}

/// How a [`Driver`](crate::Driver) works. All but the interface has defaults.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the interface, as `ip link` shows it.
    pub interface: String,
    /// Where the XDP program runs.
    pub attach: Attach,
    /// Whether frames are copied.
    pub copies: Copies,
    /// Frames of memory per receive queue, of 2 KiB each (4 KiB where the MTU exceeds 1774), rounded up to a power of two.
    /// Each of the four rings has a quarter as many entries. Default 8192.
    pub frames: u32,
    /// How long a turn looks for frames before it sleeps; `Duration::MAX` never sleeps, and needs a processor of its own.
    /// Default 0.
    pub spin: Duration,
    /// Most bytes of an IP packet, where a path takes less than the interface: segments of both directions fit that. From 576
    /// (IPv4) or 1280 (IPv6) bytes to the interface's MTU, which is the default. Routers that take less may say so at any time,
    /// which shortens what one connection sends, after a loss; see `docs/drivers.md`.
    pub mtu: Option<u16>,
    /// `SO_BUSY_POLL`: the kernel polls the device within our system calls, instead of in interrupts. Default off.
    pub busy_poll: Option<Duration>,
    /// Most connections at once, those not accepted yet or still closing included; later ones are not answered.
    /// Each takes [`receive_buffer`](Self::receive_buffer) and [`send_buffer`](Self::send_buffer). Default 16,384.
    pub connections: u32,
    /// Most connections whose handshake is not complete; the oldest gives way to a new one. Default 1024.
    pub half_open: u32,
    /// Bytes that wait for one connection's receiver, at most 65,535: a larger one would need window scaling, with
    /// which the stack can deadlock. Default 65,535.
    pub receive_buffer: usize,
    /// Bytes that one connection sends before the peer acknowledges them. Default 64 KiB.
    pub send_buffer: usize,
    /// Room in front of received bytes for carried ones, see [`Received::join`](tautline_io::Received::join). Default
    /// 20 KiB: more than one TLS record.
    pub headroom: usize,
    /// Least time after which what was not acknowledged is sent again, and the time for the first attempt, whose round
    /// trip is not known yet. Times of the stack that follow from it: largest backoff 60 times as much, `TIME-WAIT` 10
    /// times. From 1 ms to 1 s. Default 50 ms, above the 40 ms that a Linux peer may delay acknowledgements.
    pub retransmit: Duration,
    /// How long a peer may leave everything unanswered before the connection fails. Default 30 seconds.
    pub silence: Duration,
    /// How long a closed connection may go on to send what was pending, before it is reset. Default 5 seconds.
    pub linger: Duration,
    /// Reno (RFC 5681). Without, each connection fills the peer's window at once, up to the send buffer: for networks of
    /// your own. Default on.
    pub congestion_control: bool,
    /// Frames come to harm, for tests.
    #[doc(hidden)]
    pub faults: Option<Faults>,
}

impl Config {
    /// The defaults on this interface.
    #[must_use]
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            attach: Attach::default(),
            copies: Copies::default(),
            frames: 8192,
            spin: Duration::ZERO,
            mtu: None,
            busy_poll: None,
            connections: 16_384,
            half_open: 1024,
            receive_buffer: MOST_UNSCALED,
            send_buffer: 64 << 10,
            headroom: 20 << 10,
            retransmit: Duration::from_millis(50),
            silence: Duration::from_secs(30),
            linger: Duration::from_secs(5),
            congestion_control: true,
            faults: None,
        }
    }

    /// Values that work, next to those asked for.
    pub(crate) fn clamp(mut self) -> Self {
        self.frames = self.frames.clamp(64, 1 << 20);
        self.connections = self.connections.clamp(1, 1 << 20);
        self.half_open = self.half_open.clamp(1, self.connections);
        self.receive_buffer = self.receive_buffer.clamp(1, MOST_UNSCALED);
        self.send_buffer = self.send_buffer.clamp(1, 1 << 24);
        self.retransmit = self.retransmit.clamp(Duration::from_millis(1), Duration::from_secs(1));
        self.linger = self.linger.min(FOR_EVER);
        self
    }
}

/// Longer than anybody waits, and an `Instant` reaches.
const FOR_EVER: Duration = Duration::from_hours(24 * 365);

/// The largest window that needs no scaling (RFC 7323 section 2.2).
const MOST_UNSCALED: usize = 65_535;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn connections_may_linger_for_ever() {
        let config = Config { linger: Duration::MAX, ..Config::new("memory") }.clamp();
        assert!(Instant::now().checked_add(config.linger).is_some());
    }
}
