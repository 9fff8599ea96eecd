//! Whether anyone waits for the answer to a request, as its ticket sees it from any thread.

use crate::threads::sync::{AtomicBool, Ordering};
use std::sync::Arc;

/// The connection's part. Nobody waits any more once it is dropped.
pub(crate) struct Wanted(Arc<AtomicBool>);

/// The ticket's part.
#[derive(Clone)]
pub(crate) struct IsWanted(Arc<AtomicBool>);

impl Wanted {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    pub(crate) fn observer(&self) -> IsWanted {
        IsWanted(self.0.clone())
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl IsWanted {
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
