use super::poll::Poll;
use crate::Token;
pub(super) use crate::slots::Phase;
use crate::slots::Slot;
use rustix::event::epoll::EventFlags;
use rustix::fd::{AsFd, OwnedFd};
use std::io;
use tautline_buf::Buf;

/// Indices from here on name listeners and the wake, see [`Source`].
pub(super) const FIRST_LISTENER: u32 = 1 << 31;
const WAKE: u32 = u32::MAX;

/// The origin of an event, as kept in its data.
pub(super) enum Source {
    Connection(Token),
    Listener(u32),
    Wake,
}

impl Source {
    pub(super) fn data(&self) -> u64 {
        let (index, generation) = match *self {
            Self::Connection(token) => (token.index, token.generation),
            Self::Listener(number) => (FIRST_LISTENER | number, 0),
            Self::Wake => (WAKE, 0),
        };
        u64::from(generation) << 32 | u64::from(index)
    }

    pub(super) fn of(data: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = data.to_le_bytes();
        let index = u32::from_le_bytes([a, b, c, d]);
        let generation = u32::from_le_bytes([e, f, g, h]);
        match index {
            WAKE => Self::Wake,
            FIRST_LISTENER.. => Self::Listener(index & !FIRST_LISTENER),
            _ => Self::Connection(Token { index, generation }),
        }
    }
}

/// The interest in every connection. It is edge-triggered: the kernel reports new state only once, even if the state
/// lasts.
const EDGES: EventFlags = EventFlags::IN.union(BEHIND).union(EventFlags::ET);

/// Flags that report something behind the received bytes: an end, an error, or urgent data, at which receives stop.
///
/// While one of them is set, a short receive does not mean that nothing is left.
pub(super) const BEHIND: EventFlags =
    EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR).union(EventFlags::PRI);

/// Flags that report that no further bytes will come.
pub(super) const ENDS: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

/// The kernel's part in a connection: a set of the bits below, in the only byte that is left in [`Conn`].
#[derive(Clone, Copy, Default)]
pub(super) struct InKernel(u8);

impl InKernel {
    /// The kernel seals sent records.
    pub(super) const TRANSMIT: u8 = 1;
    /// The kernel opens received records.
    pub(super) const RECEIVE: u8 = 2;
    /// A received record could not be opened: no more records are received.
    pub(super) const REFUSED: u8 = 4;
    /// An incomplete record lies in the socket, which reports only bytes beyond it (`SO_RCVLOWAT`).
    pub(super) const RESTS: u8 = 8;
    /// It did not take all bytes: the connection counts in [`Driver::waiting`](super::driver::Driver).
    pub(super) const FULL: u8 = 16;
    /// It numbers sent bytes, and stamps some of them.
    pub(super) const STAMPED: u8 = 32;

    pub(super) const fn has(self, what: u8) -> bool {
        self.0 & what != 0
    }

    pub(super) const fn add(&mut self, what: u8) {
        self.0 |= what;
    }

    pub(super) const fn remove(&mut self, what: u8) {
        self.0 &= !what;
    }
}

/// One connection.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about one socket; packed they fill one cache line"
)]
pub(super) struct Conn {
    pub(super) fd: OwnedFd,
    /// Flags of [`BEHIND`] that were reported since the socket was last found empty.
    pub(super) behind: EventFlags,
    /// Whether room to send is reported. Unix sockets report it whenever the peer reads, needed or not.
    out: bool,
    pub(super) phase: Phase,
    /// The sink wants no bytes for now.
    pub(super) paused: bool,
    /// The kernel has reported something that is not received yet.
    pub(super) readable: bool,
    /// It is in the queue of connections to receive from without another report by the kernel.
    pub(super) queued: bool,
    /// The peer finished its direction, and the sink was notified.
    pub(super) finished: bool,
    /// Our direction is to be finished once `pending` is sent.
    pub(super) finishing: bool,
    /// The kernel's part in its [TLS](crate::kernel) and in what it sends.
    pub(super) kernel: InKernel,
    /// Bytes that the kernel did not take yet.
    pub(super) pending: Buf,
}

impl Conn {
    pub(super) const fn new(fd: OwnedFd, phase: Phase) -> Self {
        Self {
            fd,
            behind: EventFlags::empty(),
            out: matches!(phase, Phase::Connecting),
            phase,
            paused: false,
            readable: false,
            queued: false,
            finished: false,
            finishing: false,
            kernel: InKernel(0),
            pending: Buf::new(),
        }
    }

    /// Watches the connection under `token`. State that is there already is reported too.
    pub(super) fn watch(&self, poll: &mut impl Poll, token: Token) -> io::Result<()> {
        poll.add(self.fd.as_fd(), Source::Connection(token).data(), self.edges())
    }

    /// Watches the connection again, under `token` and with its current interest.
    ///
    /// State that is there already is reported again.
    pub(super) fn watch_again(&self, poll: &mut impl Poll, token: Token) -> io::Result<()> {
        poll.modify(self.fd.as_fd(), Source::Connection(token).data(), self.edges())
    }

    /// Turns reports of room to send on or off. Room that is there already is reported too.
    pub(super) fn watch_out(&mut self, poll: &mut impl Poll, token: Token, out: bool) -> io::Result<()> {
        if self.out == out {
            if out {
                poll.rearm(self.fd.as_fd(), EventFlags::OUT);
            }
            return Ok(());
        }
        self.out = out;
        self.watch_again(poll, token)
    }

    fn edges(&self) -> EventFlags {
        if self.out { EDGES | EventFlags::OUT } else { EDGES }
    }
}

// A slot fits one cache line, because a turn touches one slot per event.
const _: () = assert!(size_of::<Slot<Conn>>() <= 64);
