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

/// One connection.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about one socket; packed they fill one cache line"
)]
pub(super) struct Conn {
    pub(super) fd: OwnedFd,
    /// What epoll reports now; nothing where it is not `watched`.
    interest: EventFlags,
    /// Whether epoll knows the descriptor.
    watched: bool,
    /// connect(2) is not answered yet.
    pub(super) connecting: bool,
    /// The sink wants no bytes for now.
    pub(super) paused: bool,
    /// The peer finished its direction, and the sink was told.
    pub(super) finished: bool,
    /// Broken. The sink was told, or will be before the driver waits again.
    pub(super) failed: bool,
    /// Our direction is to be finished once `pending` is gone.
    pub(super) finishing: bool,
    /// The user closed it, but `pending` is still to be sent.
    pub(super) orphan: bool,
    /// What the kernel did not take yet.
    pub(super) pending: Buf,
}

impl Conn {
    pub(super) const fn new(fd: OwnedFd, connecting: bool) -> Self {
        Self {
            fd,
            interest: EventFlags::empty(),
            watched: false,
            connecting,
            paused: false,
            finished: false,
            failed: false,
            finishing: false,
            orphan: false,
            pending: Buf::new(),
        }
    }

    /// Makes epoll report what matters now.
    pub(super) fn watch(&mut self, epoll: &OwnedFd, token: Token) -> io::Result<()> {
        let wanted = self.wanted();
        if !self.watched {
            if !wanted.is_empty() {
                epoll::add(epoll, &self.fd, Source::Connection(token).data(), wanted)?;
                self.watched = true;
            }
        } else if wanted != self.interest {
            epoll::modify(epoll, &self.fd, Source::Connection(token).data(), wanted)?;
        }
        self.interest = wanted;
        Ok(())
    }

    /// Makes epoll report under a new token.
    pub(super) fn rename(&mut self, epoll: &OwnedFd, token: Token) -> io::Result<()> {
        self.interest = EventFlags::empty();
        self.watch(epoll, token)
    }

    /// Makes epoll forget the descriptor: hang-ups and errors cannot be masked otherwise.
    pub(super) fn unwatch(&mut self, epoll: &OwnedFd) {
        if self.watched {
            // Fails only for a descriptor that epoll does not know.
            let _ = epoll::delete(epoll, &self.fd);
            self.watched = false;
            self.interest = EventFlags::empty();
        }
    }

    /// Whether epoll reports anything of it.
    pub(super) const fn watched(&self) -> bool {
        self.watched
    }

    fn wanted(&self) -> EventFlags {
        let mut wanted = EventFlags::empty();
        if !self.paused && !self.finished && !self.connecting && !self.orphan {
            wanted |= EventFlags::IN | EventFlags::RDHUP;
        }
        if !self.pending.is_empty() || self.connecting {
            wanted |= EventFlags::OUT;
        }
        wanted
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
