//! The four rings of an AF_XDP socket. Each has one producer and one consumer; the kernel is one of them.

use rustix::fd::AsFd;
use rustix::io::Result;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::xdp::XdpRingOffset;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// `XDP_RING_NEED_WAKEUP`.
const NEED_WAKEUP: u32 = 1;

/// A mapped ring of `T`.
///
/// INVARIANT: the offsets are the kernel's and lie inside the mapping. `entries` is a power of two, and that number of `T`
/// lies at the descriptors' offset.
pub(super) struct Ring<T> {
    base: NonNull<u8>,
    bytes: usize,
    offset: XdpRingOffset,
    entries: u32,
    /// Our position: the number of entries that we produced or consumed, published or not.
    own: u32,
    /// The other side's position when we last read it.
    other: u32,
    of: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// Maps the ring of `fd` at `page_offset`. `T` is the ring's type of descriptor.
    ///
    /// # Safety
    /// `offset` must be the kernel's for this ring, and `entries`, a power of two, the ring's size.
    pub(super) unsafe fn map(fd: impl AsFd, page_offset: u64, offset: XdpRingOffset, entries: u32) -> Result<Self> {
        let descriptors = usize::try_from(offset.desc).unwrap_or(usize::MAX);
        let bytes = descriptors.saturating_add(entries as usize * size_of::<T>());
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: the kernel chooses an unused address for the new mapping.
        let base = unsafe { mmap(core::ptr::null_mut(), bytes, protection, flags, fd, page_offset) }?;
        let base = NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Self { base, bytes, offset, entries, own: 0, other: 0, of: PhantomData })
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        // The kernel's offsets fit usize, because the length of the mapping does.
        let offset = usize::try_from(offset).unwrap_or(0);
        // SAFETY: inside the mapping (INVARIANT).
        let word = unsafe { self.base.add(offset) }.cast::<AtomicU32>();
        // SAFETY: the mapping lives as long as `self`; the kernel aligns its words, and both sides access them atomically.
        unsafe { word.as_ref() }
    }

    fn slot(&self, position: u32) -> NonNull<T> {
        let index = (position & (self.entries - 1)) as usize;
        let descriptors = usize::try_from(self.offset.desc).unwrap_or(0);
        // SAFETY: inside the mapping (INVARIANT).
        let first = unsafe { self.base.add(descriptors) }.cast::<T>();
        // SAFETY: `index` is below `entries`, which is the number of `T` there (INVARIANT).
        unsafe { first.add(index) }
    }

    /// Whether the kernel asks for a wakeup to continue with this ring.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.offset.flags.is_some_and(|flags| self.word(flags).load(Ordering::Relaxed) & NEED_WAKEUP != 0)
    }
}

/// A ring that we fill.
pub(super) struct Producer<T>(pub(super) Ring<T>);

impl<T: Copy> Producer<T> {
    /// The number of entries that can be written.
    pub(super) fn room(&mut self) -> u32 {
        let ring = &mut self.0;
        if ring.own.wrapping_sub(ring.other) == ring.entries {
            // Acquire: the kernel is done with the entries that it consumed.
            ring.other = ring.word(ring.offset.consumer).load(Ordering::Acquire);
        }
        ring.entries - ring.own.wrapping_sub(ring.other).min(ring.entries)
    }

    /// Writes an entry if there is room. The kernel sees it after [`publish`](Self::publish).
    pub(super) fn push(&mut self, entry: T) -> bool {
        if self.room() == 0 {
            return false;
        }
        // SAFETY: the slot is inside the ring and free: the kernel reads it only once it is published.
        unsafe { self.0.slot(self.0.own).write(entry) };
        self.0.own = self.0.own.wrapping_add(1);
        true
    }

    /// Shows the kernel the entries that were written.
    pub(super) fn publish(&self) {
        // Release: the entries are written before the kernel sees the new position.
        self.0.word(self.0.offset.producer).store(self.0.own, Ordering::Release);
    }

    /// The number of entries that the kernel has not consumed.
    pub(super) fn unconsumed(&self) -> u32 {
        self.0.own.wrapping_sub(self.0.word(self.0.offset.consumer).load(Ordering::Acquire))
    }
}

/// A ring that the kernel fills.
pub(super) struct Consumer<T>(pub(super) Ring<T>);

impl<T: Copy> Consumer<T> {
    /// Takes the next entry.
    pub(super) fn pop(&mut self) -> Option<T> {
        if !self.ready() {
            return None;
        }
        // SAFETY: the slot is inside the ring, and the kernel has written and published it (acquired in `ready`).
        let entry = unsafe { self.0.slot(self.0.own).read() };
        self.0.own = self.0.own.wrapping_add(1);
        Some(entry)
    }

    /// The entry that [`pop`](Self::pop) will take after `ahead` others, if it is known to be there.
    pub(super) fn peek(&self, ahead: u32) -> Option<T> {
        if self.0.other.wrapping_sub(self.0.own) <= ahead {
            return None;
        }
        // SAFETY: the slot is inside the ring, and the kernel has published it, as above.
        Some(unsafe { self.0.slot(self.0.own.wrapping_add(ahead)).read() })
    }

    /// Whether there is an entry.
    pub(super) fn ready(&mut self) -> bool {
        let ring = &mut self.0;
        if ring.own == ring.other {
            // Acquire: all that the kernel wrote before it published is visible.
            ring.other = ring.word(ring.offset.producer).load(Ordering::Acquire);
        }
        ring.own != ring.other
    }

    /// Returns the entries that were taken to the kernel.
    pub(super) fn release(&self) {
        // Release: the entries are read before the kernel may write them again.
        self.0.word(self.0.offset.consumer).store(self.0.own, Ordering::Release);
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which no reference outlives `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
