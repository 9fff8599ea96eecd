use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of the application's own memory that count in a shard's part of the [budget](crate::Limits::memory). Clones share one
/// number, and any thread may change it. [`ShardContext::memory`](crate::ShardContext::memory) has it.
///
/// It is for tables and messages that peers can make an application keep. Memory that goes with one connection is better
/// counted with [`Conn::set_memory`](crate::Conn::set_memory), since heavy connections are closed when memory is short.
///
/// ```
/// # mod tautline { pub use {tautline_engine::{Conn, Handler, ShardContext}, tautline_ws::Message}; }
/// use tautline::{Conn, Handler, Message, ShardContext};
///
/// /// Keeps the last text of each room.
/// #[derive(Default)]
/// struct Rooms(std::collections::HashMap<String, String>);
///
/// impl Handler for Rooms {
///     type State = String;
///     fn on_message(&mut self, conn: &mut Conn<'_, String>, message: Message<'_>) {
///         let text = message.text().unwrap_or_default().to_owned();
///         let room = conn.state().clone();
///         let more = text.len() + room.len() + 100;
///         let before = self.0.insert(room, text).map_or(0, |before| before.len() + 100);
///         conn.shard().memory().replace(before, more);
///     }
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ApplicationMemory(Arc<AtomicUsize>);

impl ApplicationMemory {
    /// Counts `bytes` more.
    pub fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts `bytes` less, at least 0.
    pub fn remove(&self, bytes: usize) {
        let less = |now: usize| Some(now.saturating_sub(bytes));
        // It always returns a number.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Counts `after` bytes in the place of `before`.
    pub fn replace(&self, before: usize, after: usize) {
        if after >= before {
            self.add(after - before);
        } else {
            self.remove(before - after);
        }
    }

    /// The bytes that are counted.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::ApplicationMemory;

    #[test]
    fn clones_share_a_number_that_stays_above_zero() {
        let memory = ApplicationMemory::default();
        let other = memory.clone();
        other.add(100);
        memory.replace(40, 10);
        memory.replace(10, 30);
        assert_eq!(memory.bytes(), 90);
        other.remove(91);
        assert_eq!(memory.bytes(), 0);
    }
}
