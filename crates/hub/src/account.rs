//! The memory of a hub, for the budget of its server.

use crate::lock::lock;
use std::sync::{Mutex, OnceLock};
use tautline::ApplicationMemory;

/// The memory of one loop's part.
#[derive(Default)]
pub(crate) struct Account {
    /// Memory of topics and clients, in bytes, beside the tables that have them.
    pub(crate) bytes: usize,
    /// Whether a client has more or less since it was told.
    pub(crate) is_changed: bool,
    memory: ApplicationMemory,
    told: usize,
}

impl Account {
    pub(crate) fn begin(&mut self, memory: &ApplicationMemory) {
        self.memory = memory.clone();
    }

    /// Tells the server all, with the memory of tables.
    pub(crate) fn tell(&mut self, tables: usize) {
        let now = tables + self.bytes;
        if now != self.told {
            self.memory.replace(self.told, now);
            self.told = now;
        }
    }
}

/// The memory of what all loops share. The first loop counts it.
#[derive(Default)]
pub(crate) struct CommonAccount {
    pub(crate) feeds: Told,
    pub(crate) log: Told,
    /// Requests that may be repeated, connections of users, users that are revoked, and questions to the application.
    pub(crate) repeats: Told,
    pub(crate) sessions: Told,
    pub(crate) elsewhere: Told,
    pub(crate) revoked: Told,
    pub(crate) calls: Told,
    pub(crate) bounds: Told,
    /// Channels of the Pusher protocol.
    pub(crate) channels: Told,
}

impl CommonAccount {
    pub(crate) fn begin(&self, memory: &ApplicationMemory) {
        let own = [&self.repeats, &self.sessions, &self.revoked, &self.calls, &self.bounds, &self.channels];
        for part in own.into_iter().chain([&self.elsewhere, &self.feeds, &self.log]) {
            part.memory.get_or_init(|| memory.clone());
        }
    }
}

/// A part of the memory, and what the server knows of it.
#[derive(Default)]
pub(crate) struct Told {
    memory: OnceLock<ApplicationMemory>,
    told: Mutex<usize>,
}

impl Told {
    /// Tells the server the bytes that a part takes now.
    pub(crate) fn tell(&self, bytes: impl FnOnce() -> usize) {
        if let Some(memory) = self.memory.get() {
            // Loops tell one after the other. An older number would else come last, or be taken off before it was added.
            let mut told = lock(&self.told);
            let now = bytes();
            memory.replace(std::mem::replace(&mut *told, now), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Told;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tautline::ApplicationMemory;

    #[test]
    fn loops_that_tell_at_once_tell_the_same() {
        let (told, memory) = (Told::default(), ApplicationMemory::default());
        told.memory.get_or_init(|| memory.clone());
        // It takes another number of bytes at each look.
        let looks = AtomicUsize::new(1);
        let bytes = || (looks.fetch_add(1, Ordering::Relaxed) * 7919) % 1_000_003;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20_000).for_each(|_| told.tell(bytes)));
            }
        });
        assert_eq!(memory.bytes(), *told.told.lock().unwrap());
    }
}
