//! Memory of connections.

use std::mem::MaybeUninit;

/// Boxes allocated at a time.
const RUN: usize = 64;

/// Allocator of long-lived boxes, in runs of [`RUN`].
///
/// A handshake frees many times the memory that its connection keeps. If each connection was allocated alone, it would lie
/// between blocks that handshakes free. The holes would cost 0.1 KiB per connection.
pub(crate) struct BatchAlloc<T> {
    free: Vec<Box<MaybeUninit<T>>>,
}

impl<T> BatchAlloc<T> {
    pub(crate) const fn new() -> Self {
        Self { free: Vec::new() }
    }

    /// Boxes `value`. Dropping the box frees its memory as usual.
    pub(crate) fn place(&mut self, value: T) -> Box<T> {
        let place = self.free.pop().unwrap_or_else(|| {
            self.free.extend((1..RUN).map(|_| Box::new_uninit()));
            Box::new_uninit()
        });
        Box::write(place, value)
    }
}
