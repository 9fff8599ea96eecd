use crate::frame::{Ethernet, Pair, Segment};
use crate::stack::Tcp;
use rustix::fd::OwnedFd;
use smoltcp::socket::tcp::State;
use std::net::IpAddr;
use std::time::Instant;
use tautline_buf::Buf;
use tautline_io::Token;

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The peer's handshake is not complete. The number is the listener's.
    HalfOpen(u32),
    /// The handshake is complete, but the connection is not accepted yet. The number is the listener's.
    Waiting(u32),
    /// The next hop's hardware address is not known yet.
    Resolving {
        next_hop: IpAddr,
        tries: u32,
    },
    /// Our first segment is not answered yet.
    Connecting,
    Open,
    /// The connection failed. The failure was reported to the sink, or will be.
    Failed,
    /// The user closed it. Pending bytes and the FIN must still be sent.
    Orphan,
}

/// One connection.
#[expect(clippy::struct_excessive_bools, reason = "independent properties of one connection")]
pub(crate) struct Conn {
    pub(crate) tcp: Tcp,
    pub(crate) pair: Pair,
    /// The Ethernet header of its frames.
    pub(crate) header: Ethernet,
    pub(crate) phase: Phase,
    /// The user's token, from accept or connect until close.
    pub(crate) token: Option<Token>,
    /// Whether the sink paused receiving.
    pub(crate) paused: bool,
    /// Whether the peer's FIN was reported to the sink.
    pub(crate) finished: bool,
    /// Whether our FIN must be sent after `pending`.
    pub(crate) finishing: bool,
    /// Whether a reset of the peer was passed to the stack.
    pub(crate) reset: bool,
    /// Whether a probe asked for an acknowledgement that makes the stack retransmit.
    pub(crate) stuck: bool,
    /// Number of probes that were sent.
    pub(crate) probes: u8,
    /// Whether it is in the driver's `queue`.
    pub(crate) queued: bool,
    /// Whether it is in the driver's list of connections that have something to send.
    pub(crate) dirty: bool,
    /// Bytes that found no room in the send buffer.
    pub(crate) pending: Buf,
    /// Whether the peer's FIN arrived, and all bytes before it.
    ended: bool,
    /// Bytes saved from the stack before it dropped them. They precede the stack's.
    saved: Buf,
    /// The peer's initial sequence number, if it is known.
    first: Option<u32>,
    /// The last acknowledgement of the peer: the sequence number of the first byte in the stack's send buffer.
    acknowledged: Option<u32>,
    /// Number of bytes that were taken from the stack.
    taken: u32,
    /// The time of the connection's earliest entry in the driver's `timers`.
    pub(crate) timer: Option<Instant>,
    /// Arrival time of the last bytes that wait for the receiver, if frames are stamped.
    pub(crate) arrival: Option<u64>,
    /// Time at which the connection is aborted.
    pub(crate) deadline: Option<Instant>,
    /// A bound kernel socket that reserves the local port of an outgoing connection.
    pub(crate) port: Option<OwnedFd>,
}

impl Conn {
    pub(crate) const fn new(tcp: Tcp, pair: Pair, header: Ethernet, phase: Phase) -> Self {
        Self {
            tcp,
            pair,
            header,
            phase,
            token: None,
            paused: false,
            finished: false,
            finishing: false,
            reset: false,
            stuck: false,
            probes: 0,
            queued: false,
            dirty: false,
            pending: Buf::new(),
            ended: false,
            saved: Buf::new(),
            first: None,
            acknowledged: None,
            taken: 0,
            timer: None,
            arrival: None,
            deadline: None,
            port: None,
        }
    }

    pub(crate) fn state(&self) -> State {
        self.tcp.get().state()
    }

    /// Updates the state after a segment. `was` is the state before; `moved` says whether bytes arrived or were acknowledged.
    pub(crate) fn on_segment(&mut self, segment: &Segment, was: State, moved: bool) {
        let is = self.state();
        if matches!(was, State::Listen | State::SynSent)
            && !matches!(is, State::Listen | State::SynSent | State::Closed)
        {
            // The peer's initial sequence number.
            self.first = Some(segment.sequence);
        }
        let opened = matches!(was, State::SynSent | State::SynReceived)
            && !matches!(is, State::Listen | State::SynSent | State::SynReceived | State::Closed);
        if opened || moved {
            // The stack ignores a segment that acknowledges bytes which were not sent.
            self.acknowledged = Some(segment.acknowledged);
        }
        self.ended |= matches!(self.state(), State::CloseWait | State::Closing | State::LastAck | State::TimeWait);
    }

    /// Whether a reset has exactly the next sequence number, which shows that it is the peer's (RFC 5961 section 3.2).
    pub(crate) fn is_exact(&self, segment: &Segment) -> bool {
        let Some(first) = self.first else { return false };
        let waiting = u32::try_from(self.tcp.get().recv_queue()).unwrap_or(0);
        let end = u32::from(self.ended);
        let next = first.wrapping_add(1).wrapping_add(self.taken).wrapping_add(waiting).wrapping_add(end);
        segment.sequence == next
    }

    /// Whether the byte with this sequence number was sent and is not acknowledged.
    pub(crate) fn is_under_way(&self, sequence: u32) -> bool {
        let unacknowledged = u32::try_from(self.tcp.get().send_queue()).unwrap_or(0);
        self.acknowledged.is_some_and(|acknowledged| sequence.wrapping_sub(acknowledged) < unacknowledged)
    }

    /// Whether the peer has acknowledged all bytes and our FIN.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.state(), State::FinWait2 | State::TimeWait | State::Closed)
    }

    /// Moves received bytes to `buf`, as many as fit. Returns their number.
    pub(crate) fn take_received(&mut self, buf: &mut [u8]) -> usize {
        let saved = self.saved.len().min(buf.len());
        if saved > 0 {
            buf[..saved].copy_from_slice(&self.saved.filled()[..saved]);
            self.saved.take(saved);
            return saved;
        }
        let taken = self.tcp.get_mut().recv_slice(buf).unwrap_or(0);
        self.taken = self.taken.wrapping_add(u32::try_from(taken).unwrap_or(0));
        taken
    }

    /// Saves undelivered bytes in `TIME-WAIT`, at whose end the stack clears its buffers.
    pub(crate) fn save_undelivered(&mut self) {
        let len = self.tcp.get().recv_queue();
        if self.state() == State::TimeWait && len > 0 {
            let mut bytes = vec![0; len];
            // This happens once: no byte follows the peer's FIN, so nothing was saved before.
            let taken = self.take_received(&mut bytes);
            self.saved.put(&bytes[..taken]);
        }
    }

    /// Whether the peer's FIN arrived, which may have been before the connection closed.
    pub(crate) const fn is_at_end(&self) -> bool {
        self.ended
    }

    /// Moves bytes of `buf` to the send buffer, as many as fit.
    pub(crate) fn put(&mut self, buf: &mut Buf) {
        if let Ok(taken) = self.tcp.get_mut().send_slice(buf.filled()) {
            buf.take(taken);
        }
    }

    /// Sends our FIN if it was asked for and no bytes are pending.
    pub(crate) fn finish(&mut self) {
        let connected = !matches!(self.phase, Phase::Resolving { .. } | Phase::Connecting);
        if self.finishing && self.pending.is_empty() && connected {
            self.tcp.get_mut().close();
        }
    }
}
