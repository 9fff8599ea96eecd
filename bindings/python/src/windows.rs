//! The memory for windows that connections keep between messages (context takeover).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Connections that may keep windows, of one server or of one loop for outgoing connections.
pub(crate) struct Windows {
    /// How many more may.
    left: AtomicUsize,
}

/// The windows of one connection, which give their memory back when they are dropped.
pub(crate) struct Window(Arc<Windows>);

impl Windows {
    /// As many connections as fit in `memory` bytes, each of which takes `each`.
    pub(crate) fn new(memory: usize, each: usize) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(memory / each) })
    }

    /// Windows for one more connection, if there is memory.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Window> {
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        taken.is_ok().then(|| Window(self.clone()))
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.0.left.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Windows;

    #[test]
    fn memory_is_for_some_connections_and_comes_back() {
        let windows = Windows::new(250, 100);
        let (first, second) = (windows.take(), windows.take());
        assert!(first.is_some() && second.is_some() && windows.take().is_none());
        drop(first);
        assert!(windows.take().is_some());
        assert!(Windows::new(99, 100).take().is_none());
    }
}
