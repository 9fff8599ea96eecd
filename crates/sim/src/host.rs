use crate::end_id::EndId;
use crate::trace::Time;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tautline_io::Address;

/// A process with one loop: the sockets of its driver, and when it runs.
#[derive(Debug, Default)]
pub(crate) struct Host {
    pub(crate) slots: Vec<Slot>,
    pub(crate) free: Vec<u32>,
    pub(crate) ready: Vec<EndId>,
    /// The address that it listens at.
    pub(crate) listens: Option<Address>,
    pub(crate) accept_paused: bool,
    pub(crate) accept_rests: bool,
    /// Connections that are established and not accepted.
    pub(crate) backlog: VecDeque<usize>,
    pub(crate) woken: Arc<AtomicBool>,
    /// When the timeout of its wait is over; `None` if it waits for events only.
    pub(crate) due: Option<Time>,
    /// Until then it computes, or is stopped.
    pub(crate) busy_until: Time,
    pub(crate) turns: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) generation: u32,
    pub(crate) end: Option<EndId>,
}

impl Host {
    /// Gives an end a slot.
    pub(crate) fn insert(&mut self, id: EndId) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        self.slots[index as usize].end = Some(id);
        index
    }

    /// Whether a connection can be accepted.
    pub(crate) fn can_accept(&self) -> bool {
        !self.backlog.is_empty() && !self.accept_paused && !self.accept_rests
    }
}
