//! Where connections get their memory.

use std::mem::MaybeUninit;

/// Connections whose memory is asked for at a time.
const RUN: usize = 64;

/// Memory for what lives long, asked for in runs.
///
/// A handshake leaves many times the memory that its connection keeps. Were that asked for one connection at a time, it
/// would lie between the leftovers of handshakes, and these would be holes too small for anything: 0.1 KiB a connection.
pub(crate) struct Nursery<T> {
    free: Vec<Box<MaybeUninit<T>>>,
}

impl<T> Nursery<T> {
    pub(crate) const fn new() -> Self {
        Self { free: Vec::new() }
    }

    /// Puts `value` into memory of its own, which goes back to the allocator by itself when the value is dropped.
    pub(crate) fn place(&mut self, value: T) -> Box<T> {
        let place = self.free.pop().unwrap_or_else(|| {
            self.free.extend((1..RUN).map(|_| Box::new_uninit()));
            Box::new_uninit()
        });
        Box::write(place, value)
    }
}
