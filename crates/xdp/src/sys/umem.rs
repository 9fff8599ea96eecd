//! The memory of frames.

use rustix::io::{Errno, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ptr::NonNull;
use std::rc::Rc;

/// Bytes of a huge page on most machines.
const HUGE: usize = 2 << 20;

/// Bytes of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Most bytes of a frame that are prefetched: headers and a small message.
#[cfg(target_arch = "x86_64")]
const PREFETCHED: u32 = 192;

/// The memory of frames: chunks, each for one frame.
///
/// INVARIANT: `chunks * chunk` bytes from `base` lie in the mapping of `mapped` bytes; `chunk` is a power of two. Only the
/// kernel, or only the owner of the one [`Frame`] that names it, touches a chunk.
pub(super) struct Umem {
    mapping: NonNull<u8>,
    mapped: usize,
    base: NonNull<u8>,
    chunk: u32,
    chunks: u32,
}

impl Umem {
    /// Maps memory for `chunks` frames of at most `chunk` bytes. Returns it with a frame for each chunk.
    pub(super) fn new(chunk: u32, chunks: u32) -> Result<(Rc<Self>, Vec<Frame>)> {
        let bytes = chunk as usize * chunks as usize;
        // Extra room, so that `base` can be aligned to a huge page.
        let mapped = bytes + HUGE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an unused address for the new mapping.
        let mapping = unsafe { mmap_anonymous(core::ptr::null_mut(), mapped, protection, MapFlags::PRIVATE) }?;
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or(Errno::NOMEM)?;
        // SAFETY: the address is at most `HUGE` bytes after the start, and `bytes` more follow it.
        let base = unsafe { mapping.add(mapping.align_offset(HUGE).min(HUGE)) };
        // Frames are used in turn. With small pages nearly every use would miss the TLB. Without huge pages, small ones do.
        // SAFETY: this is our own mapping, and the advice does not change its contents.
        let _ = unsafe { madvise(base.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        let umem = Rc::new(Self { mapping, mapped, base, chunk, chunks });
        let frames = (0..chunks).map(|index| Frame { umem: Rc::clone(&umem), index, start: 0, len: 0 }).collect();
        Ok((umem, frames))
    }

    pub(super) fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    pub(super) const fn len(&self) -> u64 {
        self.chunk as u64 * self.chunks as u64
    }

    /// Prefetches the beginning of a frame, which another processor wrote.
    pub(super) fn prefetch(&self, address: u64, len: u32) {
        #[cfg(target_arch = "x86_64")]
        if let Ok(start) = usize::try_from(address) {
            let base = self.base.as_ptr().wrapping_add(start);
            for line in (0..len.min(PREFETCHED) as usize).step_by(LINE) {
                // SAFETY: every address may be prefetched, and no memory is read or written.
                unsafe {
                    core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(
                        base.wrapping_add(line).cast(),
                    );
                };
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (address, len);
    }

    /// Takes back the frame at `address`, which may follow headroom, from the kernel.
    ///
    /// # Safety
    /// The kernel must have just given up the chunk at `address`, and no [`Frame`] may name it.
    #[inline]
    pub(super) unsafe fn take_back(self: &Rc<Self>, address: u64, len: u32) -> Option<Frame> {
        // A shift, because the length is a power of two.
        let index = u32::try_from(address >> self.chunk.trailing_zeros()).ok().filter(|&index| index < self.chunks)?;
        let start = u32::try_from(address & u64::from(self.chunk - 1)).ok()?;
        let len = len.min(self.chunk - start);
        Some(Frame { umem: Rc::clone(self), index, start, len })
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: this is our own mapping. Every frame holds it alive, and the socket that used it is closed.
        let _ = unsafe { munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}

/// The right to touch one chunk, and the place of a frame in it.
pub(crate) struct Frame {
    umem: Rc<Umem>,
    index: u32,
    start: u32,
    len: u32,
}

impl Frame {
    /// The frame's bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: inside the chunk, initialised by mmap(2); only the owner of this frame touches it (INVARIANT).
        unsafe { core::slice::from_raw_parts(self.at(), self.len as usize) }
    }

    /// Sets the frame's length to `len`, as far as that fits, and returns its bytes.
    pub(crate) fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        self.len = u32::try_from(len).unwrap_or(u32::MAX).min(self.umem.chunk - self.start);
        // SAFETY: as above; the exclusive reference to the frame is the only way to its chunk.
        unsafe { core::slice::from_raw_parts_mut(self.at(), self.len as usize) }
    }

    /// The `N` bytes in front of the frame, if the chunk has them.
    pub(crate) fn before_mut<const N: usize>(&mut self) -> Option<&mut [u8; N]> {
        let before = u32::try_from(N).ok().filter(|&before| before <= self.start)?;
        // SAFETY: these `before` bytes lie in the chunk.
        let at = unsafe { self.at().sub(before as usize) };
        // SAFETY: inside the chunk, as above; an array of bytes needs no alignment.
        Some(unsafe { &mut *at.cast() })
    }

    /// Makes the frame empty, at `start` bytes in its chunk.
    pub(super) fn clear(&mut self, start: u32) {
        (self.start, self.len) = (start.min(self.umem.chunk), 0);
    }

    pub(super) fn address(&self) -> u64 {
        u64::from(self.index) * u64::from(self.umem.chunk) + u64::from(self.start)
    }

    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn is_of(&self, umem: &Rc<Umem>) -> bool {
        Rc::ptr_eq(&self.umem, umem)
    }

    fn at(&self) -> *mut u8 {
        let offset = self.index as usize * self.umem.chunk as usize + self.start as usize;
        // SAFETY: `index` is below `chunks` and `start` below `chunk`: inside the mapping.
        unsafe { self.umem.base.as_ptr().add(offset) }
    }
}
