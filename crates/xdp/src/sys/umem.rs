//! The memory of frames.

use rustix::io::{Errno, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ptr::NonNull;
use std::rc::Rc;

/// Bytes of a huge page, on most machines.
const HUGE: usize = 2 << 20;

/// Bytes of a line of the cache.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Bytes of a frame that are prefetched: headers and a small message.
#[cfg(target_arch = "x86_64")]
const PREFETCHED: u32 = 192;

/// A block of chunks, each of which one frame fits.
///
/// INVARIANT: `chunks * chunk` bytes from `base` lie in the mapping of `mapped` bytes; `chunk` is a power of two. A chunk is touched by the kernel, or by the owner of the one
/// [`Frame`] that names it, never by both.
pub(super) struct Umem {
    mapping: NonNull<u8>,
    mapped: usize,
    base: NonNull<u8>,
    chunk: u32,
    chunks: u32,
}

impl Umem {
    /// Memory for `chunks` frames of at most `chunk` bytes, and the right to touch each.
    pub(super) fn new(chunk: u32, chunks: u32) -> Result<(Rc<Self>, Vec<Frame>)> {
        let bytes = chunk as usize * chunks as usize;
        // Room to begin where a huge page does.
        let mapped = bytes + HUGE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let mapping = unsafe { mmap_anonymous(core::ptr::null_mut(), mapped, protection, MapFlags::PRIVATE) }?;
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or(Errno::NOMEM)?;
        // SAFETY: at most `HUGE` bytes on, behind which there are `bytes` more.
        let base = unsafe { mapping.add(mapping.align_offset(HUGE).min(HUGE)) };
        // Frames are used round and round: with small pages, nearly each use would miss the translations that the processor
        // keeps. Where there are no huge pages, it is small ones.
        // SAFETY: our own mapping, whose contents the advice does not change.
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

    /// Has the processor fetch the beginning of a frame, which another processor wrote, while it does something else.
    pub(super) fn prefetch(&self, address: u64, len: u32) {
        #[cfg(target_arch = "x86_64")]
        if let Ok(start) = usize::try_from(address) {
            let base = self.base.as_ptr().wrapping_add(start);
            for line in (0..len.min(PREFETCHED) as usize).step_by(LINE) {
                // SAFETY: no address is invalid to prefetch, and no memory is read or written.
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

    /// The frame that the kernel gave back by its address, which may lie behind headroom.
    ///
    /// # Safety
    /// The kernel has just given up the chunk at `address`, and no [`Frame`] names it.
    #[inline]
    pub(super) unsafe fn take_back(self: &Rc<Self>, address: u64, len: u32) -> Option<Frame> {
        // A power of two: no division.
        let index = u32::try_from(address >> self.chunk.trailing_zeros()).ok().filter(|&index| index < self.chunks)?;
        let start = u32::try_from(address & u64::from(self.chunk - 1)).ok()?;
        let len = len.min(self.chunk - start);
        Some(Frame { umem: Rc::clone(self), index, start, len })
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: our own mapping; every frame held it alive, and the socket, which is closed, used it until now.
        let _ = unsafe { munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}

/// The right to touch one chunk, and where in it a frame lies.
pub(crate) struct Frame {
    umem: Rc<Umem>,
    index: u32,
    start: u32,
    len: u32,
}

impl Frame {
    /// The frame's bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: inside the chunk, initialised by mmap(2), and touched by nobody but the owner of this frame (INVARIANT).
        unsafe { core::slice::from_raw_parts(self.at(), self.len as usize) }
    }

    /// Room for a frame of `len` bytes, as far as they fit, which it has from now on.
    pub(crate) fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        self.len = u32::try_from(len).unwrap_or(u32::MAX).min(self.umem.chunk - self.start);
        // SAFETY: as above, and the exclusive reference to the frame is the only way to its chunk.
        unsafe { core::slice::from_raw_parts_mut(self.at(), self.len as usize) }
    }

    /// The `N` bytes in front of the frame, if there are as many.
    pub(crate) fn before_mut<const N: usize>(&mut self) -> Option<&mut [u8; N]> {
        let before = u32::try_from(N).ok().filter(|&before| before <= self.start)?;
        // SAFETY: `before` bytes of the chunk lie there.
        let at = unsafe { self.at().sub(before as usize) };
        // SAFETY: inside the chunk, as above; an array of bytes needs no alignment.
        Some(unsafe { &mut *at.cast() })
    }

    /// Makes it empty, `start` bytes into its chunk.
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
