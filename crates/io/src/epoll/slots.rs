use crate::Token;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use std::io;
use tautline_window::Buf;

/// Indices from here on name what is no connection, see [`Source`].
const FIRST_LISTENER: u32 = 1 << 31;
const WAKE: u32 = u32::MAX;

/// What an epoll event speaks of, as kept in the event's data.
pub(super) enum Source {
    Connection(Token),
    Listener(u32),
    Wake,
}

impl Source {
    pub(super) fn data(&self) -> EventData {
        let (index, generation) = match *self {
            Self::Connection(token) => (token.index, token.generation),
            Self::Listener(number) => (FIRST_LISTENER | number, 0),
            Self::Wake => (WAKE, 0),
        };
        EventData::new_u64(u64::from(generation) << 32 | u64::from(index))
    }

    pub(super) fn of(data: EventData) -> Self {
        let data = data.u64().to_le_bytes();
        let [a, b, c, d, e, f, g, h] = data;
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
            pending: Buf::new(),
        }
    }

    /// Makes epoll report the connection under `token`, beginning with what there is.
    pub(super) fn watch(&self, epoll: &OwnedFd, token: Token) -> io::Result<()> {
        Ok(epoll::add(epoll, &self.fd, Source::Connection(token).data(), self.edges())?)
    }

    /// Makes epoll report it under a new token.
    pub(super) fn rename(&self, epoll: &OwnedFd, token: Token) -> io::Result<()> {
        Ok(epoll::modify(epoll, &self.fd, Source::Connection(token).data(), self.edges())?)
    }

    /// Makes epoll report room to send, beginning with what there is, or not any more.
    pub(super) fn watch_out(&mut self, epoll: &OwnedFd, token: Token, out: bool) -> io::Result<()> {
        if self.out == out {
            return Ok(());
        }
        self.out = out;
        self.rename(epoll, token)
    }

    fn edges(&self) -> EventFlags {
        if self.out { EDGES | EventFlags::OUT } else { EDGES }
    }
}

/// One cache line: a turn touches one per event.
struct Slot {
    generation: u32,
    conn: Option<Conn>,
}

const _: () = assert!(size_of::<Slot>() <= 64);

/// The connections of one driver by token. Freed slots are used again, the latest first.
#[derive(Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Slots {
    /// # Errors
    /// There are 2^31 connections.
    pub(super) fn insert(&mut self, conn: Conn) -> io::Result<Token> {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.conn = Some(conn);
            return Ok(Token { index, generation: slot.generation });
        }
        let index = u32::try_from(self.slots.len()).ok().filter(|&index| index < FIRST_LISTENER);
        let index = index.ok_or(io::ErrorKind::OutOfMemory)?;
        self.slots.push(Slot { generation: 0, conn: Some(conn) });
        Ok(Token { index, generation: 0 })
    }

    pub(super) fn get(&self, token: Token) -> Option<&Conn> {
        let slot = self.slots.get(token.index as usize)?;
        if slot.generation == token.generation { slot.conn.as_ref() } else { None }
    }

    pub(super) fn get_mut(&mut self, token: Token) -> Option<&mut Conn> {
        let slot = self.slots.get_mut(token.index as usize)?;
        if slot.generation == token.generation { slot.conn.as_mut() } else { None }
    }

    /// Invalidates `token` and returns the one that names the connection from now on.
    pub(super) fn rename(&mut self, token: Token) -> Token {
        let generation = token.generation.wrapping_add(1);
        if let Some(slot) = self.slots.get_mut(token.index as usize) {
            slot.generation = generation;
        }
        Token { generation, ..token }
    }

    /// Frees the slot; what it held is dropped, which closes the socket.
    pub(super) fn remove(&mut self, token: Token) {
        if let Some(slot) = self.slots.get_mut(token.index as usize)
            && slot.generation == token.generation
            && slot.conn.take().is_some()
        {
            slot.generation = slot.generation.wrapping_add(1);
            self.free.push(token.index);
        }
    }
}
