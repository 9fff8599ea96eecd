//! Memory that a log takes in this process, counted as long as a request or a followed topic holds it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tautline_hub::Append;

/// Memory of a followed topic: its task, and a consumer of JetStream with its subscription (measured in `tests/memory.rs`).
pub(crate) const FOLLOWED: usize = 19_500;
/// Memory of a request for a page: its task, which has the page's reading in it.
pub(crate) const READ: usize = 9_200;
/// Memory of a consumer that reads a page, beside the page.
pub(crate) const READING: usize = 12_000;
/// Memory of a request that waits for the page of another one.
pub(crate) const WAITING: usize = 200;
/// Memory of a message on its way, beside its texts: the request, and the task that waits for the answer.
const APPEND: usize = 1_800;

/// A sum of memory, in bytes. Clones are one sum.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory(Arc<AtomicUsize>);

impl Memory {
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts this many bytes until the result is dropped.
    pub(crate) fn hold(&self, bytes: usize) -> Held {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Held { memory: self.clone(), bytes }
    }

    /// Counts bytes as [`hold`](Self::hold) does, if the sum is then at most `most`.
    pub(crate) fn try_hold(&self, bytes: usize, most: usize) -> Option<Held> {
        let held = self.hold(bytes);
        (self.bytes() <= most).then_some(held)
    }
}

/// A part of a sum.
#[derive(Debug)]
pub(crate) struct Held {
    memory: Memory,
    bytes: usize,
}

impl Held {
    pub(crate) fn add(&mut self, bytes: usize) {
        self.memory.0.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
    }

    /// Keeps this many bytes, and returns the rest as a part of its own.
    pub(crate) fn split(&mut self, keeps: usize) -> Self {
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

/// The memory of a message on its way.
pub(crate) fn append(append: &Append) -> usize {
    let optional = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
    APPEND + append.data.len() + optional(&append.key) + optional(&append.id)
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
