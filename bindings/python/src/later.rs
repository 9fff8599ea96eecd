//! Flushes at the end of a drain.

use crate::crossing::Outbox;
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    /// The outboxes that the end of this thread's `Hub::drain` flushes; `None` outside of one.
    static LATER: RefCell<Option<Vec<Arc<Outbox>>>> = const { RefCell::new(None) };
}

/// Has `outbox` flushed at the end of the drain that runs on this thread. False if none runs.
pub(crate) fn flushes_later(outbox: &Arc<Outbox>) -> bool {
    LATER.with_borrow_mut(|later| later.as_mut().map(|later| later.push(outbox.clone())).is_some())
}

/// A drain on this thread: what is sent meanwhile crosses together at its end.
pub(crate) struct FlushLater {
    outer: Option<Vec<Arc<Outbox>>>,
}

impl FlushLater {
    pub(crate) fn begin() -> Self {
        Self { outer: LATER.replace(Some(Vec::new())) }
    }
}

impl Drop for FlushLater {
    fn drop(&mut self) {
        for outbox in LATER.replace(self.outer.take()).into_iter().flatten() {
            outbox.flush();
        }
    }
}
