//! Memory of a log, counted as long as a request or a followed topic holds it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A sum of memory, in bytes. Clones are one sum.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<AtomicUsize>);

impl Memory {
    /// The sum.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts this many bytes until the result is dropped.
    #[must_use]
    pub fn hold(&self, bytes: usize) -> Held {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Held { memory: self.clone(), bytes }
    }

    /// Counts bytes as [`hold`](Self::hold) does, if the sum is then at most `most`.
    #[must_use]
    pub fn try_hold(&self, bytes: usize, most: usize) -> Option<Held> {
        let held = self.hold(bytes);
        (self.bytes() <= most).then_some(held)
    }
}

/// A part of a sum.
#[derive(Debug)]
pub struct Held {
    memory: Memory,
    bytes: usize,
}

impl Held {
    /// Counts further bytes.
    pub fn add(&mut self, bytes: usize) {
        self.memory.0.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
    }

    /// Keeps this many bytes, and returns the rest as a part of its own.
    #[must_use]
    pub fn split(&mut self, keeps: usize) -> Self {
        let rest = self.bytes.saturating_sub(keeps);
        self.bytes -= rest;
        Self { memory: self.memory.clone(), bytes: rest }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Memory;

    #[test]
    fn counts_what_is_held() {
        let memory = Memory::default();
        let mut one = memory.hold(10);
        assert!(memory.try_hold(11, 20).is_none());
        let other = memory.try_hold(10, 20);
        assert!(other.is_some() && memory.bytes() == 20);
        one.add(5);
        let rest = one.split(7);
        assert_eq!((memory.bytes(), one.split(9).bytes), (25, 0));
        drop(other);
        drop(rest);
        assert_eq!(memory.bytes(), 7);
        drop(one);
        assert_eq!(memory.bytes(), 0);
    }
}
