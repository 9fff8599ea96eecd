use crate::frame::{Ethernet, Pair, Segment};
use crate::stack::Tcp;
use rustix::fd::OwnedFd;
use smoltcp::socket::tcp::State;
use std::net::IpAddr;
use std::time::Instant;
use tautline_io::Token;
use tautline_window::Buf;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The peer's handshake is not complete. Names the listener.
    HalfOpen(u32),
    /// Complete, and not accepted yet.
    Waiting(u32),
    /// The next hop's hardware address is not known yet.
    Resolving {
        next_hop: IpAddr,
        tries: u32,
    },
    /// Our first segment is not answered yet.
    Connecting,
    Open,
    /// Broken. The sink was told, or will be.
    Failed,
    /// The user closed it; what is pending, and the end itself, are still to be sent.
    Orphan,
}

/// One connection.
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one connection")]
pub(crate) struct Conn {
    pub(crate) tcp: Tcp,
    pub(crate) pair: Pair,
    /// Where its frames go.
    pub(crate) header: Ethernet,
    pub(crate) phase: Phase,
    /// What the user knows it by, from accepting or connecting until closing.
    pub(crate) token: Option<Token>,
    /// The sink wants no bytes for now.
    pub(crate) paused: bool,
    /// The peer finished its direction, and the sink was told.
    pub(crate) finished: bool,
    /// Our direction is to be finished once `pending` is gone.
    pub(crate) finishing: bool,
    /// The peer's reset was let through.
    pub(crate) reset: bool,
    /// It was asked for an acknowledgement that makes the stack go on.
    pub(crate) stuck: bool,
    /// Probes that were sent.
    pub(crate) probes: u8,
    /// It is in the list of those to serve.
    pub(crate) queued: bool,
    /// It is in the list of those that have something to send.
    pub(crate) dirty: bool,
    /// What found no room in the send buffer.
    pub(crate) pending: Buf,
    /// The peer finished its direction, and all before that is here.
    ended: bool,
    /// What the stack was about to forget, before what it still has.
    kept: Buf,
    /// The peer's first sequence number, where it is known.
    first: Option<u32>,
    /// What the peer acknowledged: the sequence number of the first byte that the stack keeps.
    acknowledged: Option<u32>,
    /// Bytes that were taken from the stack.
    taken: u32,
    /// The earliest entry in the list of timers.
    pub(crate) timer: Option<Instant>,
    /// When what waits for the receiver reached this machine, the last of it, if frames are stamped.
    pub(crate) arrival: Option<u64>,
    /// When it is given up, whatever the stack says.
    pub(crate) deadline: Option<Instant>,
    /// Keeps the local port of an outgoing connection from the kernel.
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
            kept: Buf::new(),
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

    /// Notes what the stack took. `was` is the state before, `moved` whether bytes arrived or were acknowledged.
    pub(crate) fn note(&mut self, segment: &Segment, was: State, moved: bool) {
        let is = self.state();
        if matches!(was, State::Listen | State::SynSent)
            && !matches!(is, State::Listen | State::SynSent | State::Closed)
        {
            // The peer's first sequence number.
            self.first = Some(segment.sequence);
        }
        let opened = matches!(was, State::SynSent | State::SynReceived)
            && !matches!(is, State::Listen | State::SynSent | State::SynReceived | State::Closed);
        if opened || moved {
            // The stack takes nothing from a segment that acknowledges what was not sent.
            self.acknowledged = Some(segment.acknowledged);
        }
        self.ended |= matches!(self.state(), State::CloseWait | State::Closing | State::LastAck | State::TimeWait);
    }

    /// Whether a reset is the peer's own: it knows exactly which byte comes next (RFC 5961 section 3.2).
    pub(crate) fn is_exact(&self, segment: &Segment) -> bool {
        let Some(first) = self.first else { return false };
        let waiting = u32::try_from(self.tcp.get().recv_queue()).unwrap_or(0);
        let end = u32::from(self.ended);
        let next = first.wrapping_add(1).wrapping_add(self.taken).wrapping_add(waiting).wrapping_add(end);
        segment.sequence == next
    }

    /// Whether a segment that begins there was sent, and is not acknowledged.
    pub(crate) fn is_under_way(&self, sequence: u32) -> bool {
        let unacknowledged = u32::try_from(self.tcp.get().send_queue()).unwrap_or(0);
        self.acknowledged.is_some_and(|acknowledged| sequence.wrapping_sub(acknowledged) < unacknowledged)
    }

    /// Whether the peer has all that was sent, and knows that it was the end.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.state(), State::FinWait2 | State::TimeWait | State::Closed)
    }

    /// Moves what arrived into `buf`, as far as it fits.
    pub(crate) fn take_received(&mut self, buf: &mut [u8]) -> usize {
        let kept = self.kept.len().min(buf.len());
        if kept > 0 {
            buf[..kept].copy_from_slice(&self.kept.filled()[..kept]);
            self.kept.take(kept);
            return kept;
        }
        let taken = self.tcp.get_mut().recv_slice(buf).unwrap_or(0);
        self.taken = self.taken.wrapping_add(u32::try_from(taken).unwrap_or(0));
        taken
    }

    /// Saves what was not delivered from the end of `TIME-WAIT`, when the stack clears its buffers.
    pub(crate) fn keep(&mut self) {
        let len = self.tcp.get().recv_queue();
        if self.state() == State::TimeWait && len > 0 {
            let mut bytes = vec![0; len];
            // Only once: nothing follows the peer's end, so that nothing is kept yet.
            let taken = self.take_received(&mut bytes);
            self.kept.put(&bytes[..taken]);
        }
    }

    /// Whether nothing more will arrive because the peer said so, also where the connection is over by now.
    pub(crate) const fn is_at_end(&self) -> bool {
        self.ended
    }

    /// Moves `buf` into the send buffer, as far as it fits.
    pub(crate) fn put(&mut self, buf: &mut Buf) {
        if let Ok(taken) = self.tcp.get_mut().send_slice(buf.filled()) {
            buf.take(taken);
        }
    }

    /// Finishes our direction if that was asked for and nothing is before it.
    pub(crate) fn finish(&mut self) {
        let connected = !matches!(self.phase, Phase::Resolving { .. } | Phase::Connecting);
        if self.finishing && self.pending.is_empty() && connected {
            self.tcp.get_mut().close();
        }
    }
}
