//! All connections of a shard by their slots, and the state of its turns.

use crate::close::schedule::Schedule;
use crate::dial::dialing::SystemResolver;
use crate::handler::Handler;
use crate::link::state::Link;
use crate::moving::restored::Restored;
use crate::threads::remote::Commands;
use crate::topics::joining::Joined;
use crate::turn::core::Core;
use crate::turn::slot::Slot;
use crate::turn::stall::Stall;
use crate::turn::timer::Tick;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use tautline_io::Token;
use tautline_tls::Engine;
use tautline_ws::CloseCode;

/// A shard without its driver, which calls it back as a [`Sink`](tautline_io::Sink).
///
/// It takes a connection out of its slot, and has the [`Core`] serve it.
pub(crate) struct Reactor<E: Engine, H: Handler> {
    pub(crate) core: Core<E, H>,
    pub(crate) due: Vec<Token>,
    pub(crate) commands: Commands,
    /// Whether commands may wait although no wake will be reported for them.
    pub(crate) commands_left: bool,
    pub(crate) resolver: SystemResolver,
    /// The lookups that resolvers of the application hold.
    pub(crate) lookups: Arc<AtomicUsize>,
    /// The part of a drain that is left.
    pub(crate) draining: Option<Draining>,
    /// Memory for the subscribers to whom messages are being sent.
    pub(crate) walk: Vec<Token>,
    /// The messages that are being sent, for connections that join texts.
    pub(crate) joined: Joined,
    /// Whether the application knows that the shard has begun.
    pub(crate) is_started: bool,
    /// The slots that a walk over all connections has still to serve, from the last of them to the first.
    pub(crate) unserved: usize,
    /// Milliseconds from which a turn counts as slow.
    pub(crate) slow_turn: Tick,
    /// When a slow turn may be logged again.
    pub(crate) slow_turn_news: Tick,
    pub(crate) stall: Stall,
    /// Connections that have arrived from another process and have not begun, by their numbers: one, or two that move together.
    /// Those without any stayed there after all.
    pub(crate) restored: Vec<Vec<Restored<E::Session, H::State>>>,
    /// The time up to which times of connections that move count.
    pub(crate) move_began: Option<Tick>,
}

/// A drain that has not reached all connections.
pub(crate) struct Draining {
    pub(crate) code: CloseCode,
    pub(crate) reason: String,
    /// The first slot that it has not looked at.
    pub(crate) next: usize,
    /// When connections are closed before a restart, and their clients return.
    pub(crate) schedule: Option<Schedule>,
}

impl Draining {
    /// When the drain goes on.
    pub(crate) fn due(&self) -> Tick {
        self.schedule.as_ref().map_or(0, Schedule::next_at)
    }
}

impl<E: Engine, H: Handler> Reactor<E, H> {
    /// Takes a link out of its slot, so that the link and the rest of the shard can be borrowed separately.
    pub(crate) fn take(&mut self, token: Token) -> Option<Box<Link<E::Session, H::State>>> {
        let slot = self.core.slots.get_mut(token.index as usize)?;
        match slot {
            Slot::Link(link) if link.token == token => match std::mem::replace(slot, Slot::Free) {
                Slot::Link(link) => Some(link),
                _ => None,
            },
            _ => None,
        }
    }

    /// Puts a link into its slot.
    #[inline]
    pub(crate) fn put_link(&mut self, link: Box<Link<E::Session, H::State>>) {
        // Not by `put`: a slot that is made in one place for both cases is written to the stack and read again at once.
        match self.core.slots.get_mut(link.token.index as usize) {
            Some(place) => *place = Slot::Link(link),
            None => self.put(link.token, Slot::Link(link)),
        }
    }

    #[inline(never)]
    pub(crate) fn put(&mut self, token: Token, slot: Slot<E::Session, H::State>) {
        let index = token.index as usize;
        match self.core.slots.get_mut(index) {
            Some(place) => *place = slot,
            None => {
                self.core.slots.resize_with(index, || Slot::Free);
                self.core.slots.push(slot);
            }
        }
    }
}
