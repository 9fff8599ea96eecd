//! The queue of messages for a slow peer. They are not encoded yet, so that the policy can still drop them.

use crate::config::SlowConsumer;
use crate::message::Publication;
use std::collections::VecDeque;
use tautline_ws::Kind;

/// Bytes that a queued message counts beside its payload.
const ITEM_COST: usize = 64;

/// A queued message, or a piece of one.
pub(crate) enum Item {
    Message { kind: Kind, payload: Box<[u8]>, compress: bool, key: Option<u64> },
    Shared(Publication),
    Fragment { kind: Kind, payload: Box<[u8]>, last: bool },
}

impl Item {
    pub(crate) fn cost(&self) -> usize {
        ITEM_COST
            + match self {
                Self::Message { payload, .. } | Self::Fragment { payload, .. } => payload.len(),
                Self::Shared(publication) => publication.message.payload().len(),
            }
    }

    const fn key(&self) -> Option<u64> {
        match self {
            Self::Message { key, .. } => *key,
            Self::Shared(publication) => publication.key,
            Self::Fragment { .. } => None,
        }
    }

    const fn may_drop(&self) -> bool {
        !matches!(self, Self::Fragment { .. })
    }
}

/// The result of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// The item waits.
    Waits,
    /// The item waits, and replaced an older one with the same key.
    Replaces,
    /// The item was dropped.
    Dropped,
    /// The item was dropped, and the policy gives up on the peer.
    Overrun,
}

/// A first-in, first-out queue, bounded by the policy. It holds no memory while it is empty.
#[derive(Default)]
pub(crate) struct Queue(Option<Box<Waiting>>);

#[derive(Default)]
struct Waiting {
    items: VecDeque<Item>,
    bytes: usize,
}

impl Queue {
    /// Appends `item`, or applies `policy` if the limit is exceeded. Adds the number of dropped items to `dropped`.
    pub(crate) fn push(&mut self, item: Item, policy: SlowConsumer, dropped: &mut u64) -> Pushed {
        self.0.get_or_insert_default().push(item, policy, dropped)
    }

    pub(crate) fn pop(&mut self) -> Option<Item> {
        let waiting = self.0.as_mut()?;
        let Some(item) = waiting.items.pop_front() else {
            self.clear();
            return None;
        };
        waiting.bytes -= item.cost();
        Some(item)
    }

    /// Drops everything and gives the memory back.
    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|waiting| waiting.items.is_empty())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |waiting| waiting.items.len())
    }

    /// The payload bytes of all items, and a fixed cost for each.
    pub(crate) const fn bytes(&self) -> usize {
        match &self.0 {
            Some(waiting) => waiting.bytes,
            None => 0,
        }
    }
}

impl Waiting {
    fn push(&mut self, item: Item, policy: SlowConsumer, dropped: &mut u64) -> Pushed {
        let limit = policy.limit();
        let cost = item.cost();
        let mut pushed = Pushed::Waits;
        if matches!(policy, SlowConsumer::KeepLatest(_))
            && let Some(at) = item.key().and_then(|key| self.items.iter().position(|old| old.key() == Some(key)))
        {
            *dropped += 1;
            self.bytes -= self.items[at].cost();
            if self.bytes.saturating_add(cost) <= limit {
                self.bytes += cost;
                self.items[at] = item;
                return Pushed::Replaces;
            }
            self.items.remove(at);
            // The new item takes the older one's place in the count of messages taken.
            pushed = Pushed::Replaces;
        }
        // A message of any size may wait alone. Otherwise the limit would make large messages impossible to send.
        let too_much = |queue: &Self| !queue.items.is_empty() && queue.bytes.saturating_add(cost) > limit;
        if item.may_drop() && too_much(self) {
            match policy {
                SlowConsumer::Disconnect(_) => return Pushed::Overrun,
                SlowConsumer::DropNewest(_) => {}
                SlowConsumer::DropOldest(_) | SlowConsumer::KeepLatest(_) => {
                    self.drop_oldest(limit.saturating_sub(cost), dropped);
                }
            }
            if too_much(self) {
                *dropped += 1;
                return Pushed::Dropped;
            }
        }
        self.bytes += cost;
        self.items.push_back(item);
        pushed
    }

    fn drop_oldest(&mut self, keep: usize, dropped: &mut u64) {
        let mut at = 0;
        while self.bytes > keep
            && let Some(item) = self.items.get(at)
        {
            if item.may_drop() {
                self.bytes -= item.cost();
                self.items.remove(at);
                *dropped += 1;
            } else {
                at += 1;
            }
        }
    }
}
