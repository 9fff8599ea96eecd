//! The outgoing connections of a shard, by their numbers.

use crate::ids::DialId;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// The outgoing connections of a shard that have not ended, for every thread. No message meets its lock.
#[derive(Default)]
pub(crate) struct Dials {
    next: AtomicU32,
    live: Mutex<HashSet<DialId>>,
}

impl Dials {
    /// A new identifier, which is live from now on. Numbers begin anew after 2^32.
    pub(crate) fn begin(&self) -> DialId {
        loop {
            let id = DialId(self.next.fetch_add(1, Ordering::Relaxed));
            if self.live.lock().unwrap_or_else(PoisonError::into_inner).insert(id) {
                return id;
            }
        }
    }

    pub(crate) fn end(&self, id: DialId) {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    pub(crate) fn is_live(&self, id: DialId) -> bool {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).contains(&id)
    }
}
