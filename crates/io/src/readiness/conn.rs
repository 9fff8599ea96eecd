use super::Poll;
use crate::Token;
use crate::slots::Slot;
use rustix::event::epoll::EventFlags;
use rustix::fd::{AsFd, OwnedFd};
use std::io;
use tautline_window::Buf;

/// Indices from here on name what is no connection, see [`Source`].
pub(super) const FIRST_LISTENER: u32 = 1 << 31;
const WAKE: u32 = u32::MAX;

/// What an event speaks of, as kept in its data.
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

/// What is reported of every connection. Edge-triggered: the kernel speaks once of what is new, so nothing has to be
/// silenced and nothing is asked twice.
const EDGES: EventFlags = EventFlags::IN.union(BEHIND).union(EventFlags::ET);

/// What says that something lies behind the bytes that can be received: a short receive then does not mean that all is
/// received. Urgent data (`PRI`) cuts receives in two.
pub(super) const BEHIND: EventFlags =
    EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR).union(EventFlags::PRI);

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// connect(2) is not answered yet.
    Connecting,
    Open,
    /// Broken. The sink was told, or will be before the driver waits again.
    Failed,
    /// The user closed it, but what is pending is still to be sent.
    Orphan,
}

/// Whose records are the kernel's: a set, in the one byte that is left.
#[derive(Clone, Copy, Default)]
pub(super) struct InKernel(u8);

impl InKernel {
    /// Ours.
    pub(super) const TRANSMIT: u8 = 1;
    /// The peer's.
    pub(super) const RECEIVE: u8 = 2;
    /// One of the peer's could not be opened: no more are received.
    pub(super) const REFUSED: u8 = 4;
    /// The socket tells only of more bytes than the beginning of a record that lies there.
    pub(super) const RESTS: u8 = 8;

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
    /// Which of [`BEHIND`] was reported and not received yet.
    pub(super) behind: EventFlags,
    /// Whether room to send is reported. Unix sockets speak of it whenever the peer reads, needed or not.
    out: bool,
    pub(super) phase: Phase,
    /// The sink wants no bytes for now.
    pub(super) paused: bool,
    /// There is something to receive that the kernel has told of already.
    pub(super) readable: bool,
    /// A later turn receives from it without being told by the kernel.
    pub(super) queued: bool,
    /// The peer finished its direction, and the sink was told.
    pub(super) finished: bool,
    /// Our direction is to be finished once `pending` is gone.
    pub(super) finishing: bool,
    /// What of [TLS](crate::kernel) the kernel does.
    pub(super) kernel: InKernel,
    /// What the kernel did not take yet.
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

    /// Has the connection reported under `token`, beginning with what there is.
    pub(super) fn watch(&self, poll: &mut impl Poll, token: Token) -> io::Result<()> {
        poll.add(self.fd.as_fd(), Source::Connection(token).data(), self.edges())
    }

    /// Has it reported under a new token.
    pub(super) fn rename(&self, poll: &mut impl Poll, token: Token) -> io::Result<()> {
        poll.modify(self.fd.as_fd(), Source::Connection(token).data(), self.edges())
    }

    /// Has room to send reported, beginning with what there is, or not any more.
    pub(super) fn watch_out(&mut self, poll: &mut impl Poll, token: Token, out: bool) -> io::Result<()> {
        if self.out == out {
            if out {
                poll.rearm(self.fd.as_fd(), EventFlags::OUT);
            }
            return Ok(());
        }
        self.out = out;
        self.rename(poll, token)
    }

    fn edges(&self) -> EventFlags {
        if self.out { EDGES | EventFlags::OUT } else { EDGES }
    }
}

/// One cache line: a turn touches one per event.
const _: () = assert!(size_of::<Slot<Conn>>() <= 64);
