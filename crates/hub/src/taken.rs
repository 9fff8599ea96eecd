//! Identifiers of messages that are not taken from a connection again.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use tautline::layers::engine::sized::{name_memory, table};

/// The latest identifiers that were taken from a connection: their messages wait for the log, or have their answer.
///
/// A client repeats all messages that it has no answer for, so answers and repetitions cross. If the second message of one
/// identifier waited as well, it could fail after the first one had its answer. The connection would then be blocked until the
/// client repeats a message that it knows to be stored, and so for ever.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    ids: HashSet<Arc<str>>,
    order: VecDeque<Arc<str>>,
    /// Bytes of the identifiers.
    bytes: usize,
}

impl Taken {
    /// Whether the message with this identifier waits or has its answer.
    pub(crate) fn contains(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    /// Its memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let id = size_of::<Arc<str>>();
        size_of::<Self>() + table(self.ids.capacity(), id) + self.order.capacity() * id + self.bytes
    }

    /// Adds an identifier, and forgets those before the latest `most`.
    pub(crate) fn add(&mut self, id: &str, most: usize) {
        let id: Arc<str> = id.into();
        if self.ids.insert(id.clone()) {
            self.bytes += name_memory(&id);
            self.order.push_back(id);
        }
        while self.order.len() > most
            && let Some(oldest) = self.order.pop_front()
        {
            self.bytes -= name_memory(&oldest);
            self.ids.remove(&oldest);
        }
    }

    /// Removes identifiers whose messages have to be sent again.
    pub(crate) fn remove<'a>(&mut self, ids: impl Iterator<Item = &'a str>) {
        let before = self.ids.len();
        for id in ids {
            if self.ids.remove(id) {
                self.bytes -= name_memory(id);
            }
        }
        if self.ids.len() < before {
            self.order.retain(|id| self.ids.contains(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Taken;

    #[test]
    fn the_latest_identifiers_are_kept_until_they_are_removed() {
        let mut taken = Taken::default();
        for id in ["a", "b", "b", "c", "d"] {
            taken.add(id, 3);
        }
        assert_eq!(["a", "b", "c", "d"].map(|id| taken.contains(id)), [false, true, true, true]);
        taken.remove(["c", "x"].into_iter());
        assert!(!taken.contains("c"));
        // It is the latest one now.
        taken.add("c", 3);
        taken.add("e", 3);
        assert_eq!(["b", "c", "d", "e"].map(|id| taken.contains(id)), [false, true, true, true]);
        assert_eq!(taken.order.len(), taken.ids.len());
        assert_eq!(taken.bytes, 3 * (16 + 8), "two counts and eight bytes for each");
    }
}
