use crate::faulty::Faults;
use std::time::Duration;
use tautline_buf::Buf;

/// The place where the XDP program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attach {
    /// In the device's driver if that supports XDP, else in generic mode, with a warning in the log.
    #[default]
    Auto,
    /// In the device's driver only.
    Native,
    /// In generic mode, in front of the kernel's stack. It works with every device, but is slower.
    Generic,
}

/// Whether frames are copied between the device and our memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Copies {
    /// Frames are copied only if the device's driver lacks zero copy.
    #[default]
    Auto,
    /// Frames are never copied. Opening fails if the device's driver lacks zero copy.
    Never,
    /// Frames are always copied.
    Always,
}

/// The configuration of a [`Driver`](crate::Driver). All but the interface has defaults.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Name of the interface, as in `ip link`.
    pub interface: String,
    /// The place where the XDP program runs.
    pub attach: Attach,
    /// Whether frames are copied.
    pub copies: Copies,
    /// Number of frames per receive queue, rounded up to a power of two. Default 8192.
    ///
    /// A frame takes 2 KiB, or 4 KiB if the MTU exceeds 1774. Each of the four rings has a quarter as many entries.
    pub frames: u32,
    /// Time for which a turn looks for frames before it sleeps. `Duration::MAX` never sleeps, and needs a processor of its
    /// own. Default 0.
    pub spin: Duration,
    /// Most bytes of an IP packet in both directions, for paths that allow less than the interface.
    ///
    /// From 576 (IPv4) or 1280 (IPv6) bytes to the interface's MTU, which is the default. A router may report a smaller
    /// MTU at any time. The affected connection then sends shorter packets, after a loss; see `docs/drivers.md`.
    pub mtu: Option<u16>,
    /// `SO_BUSY_POLL`: the kernel polls the device in our system calls instead of waiting for interrupts. Default off.
    pub busy_poll: Option<Duration>,
    /// Most connections at once, including those that are not accepted yet and those that are closing. Default 16,384.
    ///
    /// Further connections are not answered. Each connection takes [`receive_buffer`](Self::receive_buffer) and
    /// [`send_buffer`](Self::send_buffer).
    pub connections: u32,
    /// Most connections with an incomplete handshake. A new one evicts the oldest. Default 1024.
    pub half_open: u32,
    /// Most received bytes that wait for one connection's receiver, at most 65,535, which is the default.
    ///
    /// A larger buffer would need window scaling, with which the stack can deadlock.
    pub receive_buffer: usize,
    /// Most bytes that one connection sends before the peer acknowledges them. Default 64 KiB.
    pub send_buffer: usize,
    /// Room in front of received bytes for carried ones, see [`Received::join`](tautline_io::Received::join). Default
    /// 20 KiB, which is more than one TLS record.
    pub headroom: usize,
    /// Shortest time until unacknowledged bytes are sent again, and the time for the first try, when no round trip is known.
    ///
    /// Two times of the stack follow from it: the largest backoff is 60 times as long, and `TIME-WAIT` 10 times. From 1 ms to
    /// 1 s. Default 50 ms: a Linux peer may delay acknowledgements by 40 ms.
    pub retransmit: Duration,
    /// Time for which a peer may leave bytes or a handshake unanswered before the connection fails. Default 30 seconds.
    pub silence: Duration,
    /// Time for which a closed connection may send pending bytes before it is reset. Default 5 seconds.
    pub linger: Duration,
    /// Whether connections use Reno (RFC 5681). Default on.
    ///
    /// Without it each connection fills the peer's window at once, up to the send buffer. That suits only your own networks.
    pub congestion_control: bool,
    /// Loses and reorders frames, for tests.
    #[doc(hidden)]
    pub faults: Option<Faults>,
}

impl Config {
    /// The default configuration for this interface.
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
            receive_buffer: MAX_UNSCALED_WINDOW,
            send_buffer: 64 << 10,
            headroom: 20 << 10,
            retransmit: Duration::from_millis(50),
            silence: Duration::from_secs(30),
            linger: Duration::from_secs(5),
            congestion_control: true,
            faults: None,
        }
    }

    /// Replaces values that are out of range by the nearest that are in range.
    pub(crate) fn clamp(mut self) -> Self {
        self.frames = self.frames.clamp(64, 1 << 20);
        // Received bytes then begin where a buffer of `buf` does.
        self.headroom = self.headroom.checked_next_multiple_of(Buf::ALIGN).unwrap_or(self.headroom);
        self.connections = self.connections.clamp(1, 1 << 20);
        self.half_open = self.half_open.clamp(1, self.connections);
        self.receive_buffer = self.receive_buffer.clamp(1, MAX_UNSCALED_WINDOW);
        self.send_buffer = self.send_buffer.clamp(1, 1 << 24);
        self.retransmit = self.retransmit.clamp(Duration::from_millis(1), Duration::from_secs(1));
        self.linger = self.linger.min(FOR_EVER);
        self
    }
}

/// A time that nobody waits for, but short enough for an `Instant`.
const FOR_EVER: Duration = Duration::from_hours(24 * 365);

/// The largest window that needs no scaling (RFC 7323 section 2.2).
const MAX_UNSCALED_WINDOW: usize = 65_535;

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
