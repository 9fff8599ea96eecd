use super::Sizes;
use super::entry::Entry;
use crate::Arrival;
use crate::stamp::{CONTROL, stamp};
use io_uring::cqueue;
use io_uring::types::BufRingEntry;
use std::alloc::{self, Layout};
use std::collections::VecDeque;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

/// Bytes that arrived in a [`BufferRing`].
///
/// It borrows the ring, so the kernel gets none of the memory back while a chunk exists.
///
/// INVARIANT: `floor..start + len` lies within the ring's memory, in buffers of which the kernel writes to none of
/// these bytes.
///
/// ```
/// # use tautline_io::Arrival;
/// # mod stamp {
/// #     pub const CONTROL: usize = 64;
/// #     pub fn stamp(_: &[u8]) -> Option<crate::Arrival> { None }
/// # }
/// # mod uring {
/// #     pub mod sys {
/// #         pub struct Sizes { pub buffers: u16, pub buffer: u32, pub headroom: usize }
/// #         pub mod entry { pub struct Entry { pub flags: u32 } }
/// #         pub mod buffer_ring {
/// #             include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/uring/sys/buffer_ring.rs"));
/// #             pub fn test() -> Option<()> {
/// #                 let mut ring = BufferRing::new(&Sizes { buffers: 2, buffer: 4096, headroom: 64 }).ok()?;
/// let mut chunk = ring.take(&Entry { flags: 1 }, 5)?;
/// assert_eq!(chunk.lend().0.len(), 64 + 5);
/// ring.recycle();
/// #                 Some(())
/// #             }
/// #         }
/// #     }
/// # }
/// # fn main() { assert_eq!(uring::sys::buffer_ring::test(), Some(())); }
/// ```
///
/// A chunk that is used after its memory may have gone back does not compile:
/// ```compile_fail,E0499
/// # use tautline_io::Arrival;
/// # mod stamp {
/// #     pub const CONTROL: usize = 64;
/// #     pub fn stamp(_: &[u8]) -> Option<crate::Arrival> { None }
/// # }
/// # mod uring {
/// #     pub mod sys {
/// #         pub struct Sizes { pub buffers: u16, pub buffer: u32, pub headroom: usize }
/// #         pub mod entry { pub struct Entry { pub flags: u32 } }
/// #         pub mod buffer_ring {
/// #             include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/uring/sys/buffer_ring.rs"));
/// #             pub fn test() -> Option<()> {
/// #                 let mut ring = BufferRing::new(&Sizes { buffers: 2, buffer: 4096, headroom: 64 }).ok()?;
/// let mut chunk = ring.take(&Entry { flags: 1 }, 5)?;
/// ring.recycle();
/// assert_eq!(chunk.lend().0.len(), 64 + 5);
/// #                 Some(())
/// #             }
/// #         }
/// #     }
/// # }
/// # fn main() { assert_eq!(uring::sys::buffer_ring::test(), Some(())); }
/// ```
pub(in crate::uring) struct Chunk<'r> {
    buffer_ring: &'r mut BufferRing,
    /// Index of the first byte in the ring's memory.
    start: usize,
    len: usize,
    /// Index from which on the memory in front of the bytes is ours.
    floor: usize,
    pub(in crate::uring) arrival: Option<Arrival>,
}

/// Length of the header in front of a stamped receive's bytes: `struct io_uring_recvmsg_out`
/// (io_uring_prep_recvmsg_multishot(3)), which is four numbers of 32 bits, and control messages.
const FRONT: usize = NUMBERS + CONTROL;
const NUMBERS: usize = 16;

impl Chunk<'_> {
    /// The ring in which the bytes lie.
    pub(super) const fn buffer_ring(&self) -> &BufferRing {
        self.buffer_ring
    }

    pub(in crate::uring) const fn len(&self) -> usize {
        self.len
    }

    /// The bytes with room in front. Bytes of earlier chunks are overwritten where the room is used.
    pub(in crate::uring) fn lend(&mut self) -> (&mut [u8], usize) {
        let room = (self.start - self.floor).min(self.buffer_ring.headroom);
        // SAFETY: it lies within the memory (INVARIANT), all of which is initialised.
        let first = unsafe { self.buffer_ring.memory.add(self.start - room) };
        // SAFETY: as above. The kernel writes to none of it (INVARIANT), and gets none of it back meanwhile, since that
        // takes the ring. The slice borrows the only chunk there is, so nothing else is lent.
        (unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), room + self.len) }, room)
    }

    /// Whether the bytes of a completion continue these.
    pub(super) fn goes_on_with(&self, entry: &Entry) -> bool {
        self.buffer_ring.position(entry) == Some(self.start + self.len)
    }

    /// Adds the bytes of a completion that [continues](Self::goes_on_with) these. `None` if it has none, or others.
    pub(super) fn append(&mut self, entry: &Entry, len: u32) -> Option<()> {
        let end = self.start + self.len;
        let next = self.buffer_ring.account(entry, len).filter(|next| next.start == end)?;
        self.len += next.len;
        Some(())
    }

    /// Cuts the header of a stamped receive off. `None` if no bytes are behind it.
    fn without_header(mut self) -> Option<Self> {
        let (bytes, room) = self.lend();
        let (front, content) = bytes.get(room..)?.split_at_checked(FRONT)?;
        let written: &[u8; 4] = front.get(4..)?.first_chunk()?;
        let written = (u32::from_ne_bytes(*written) as usize).min(CONTROL);
        // SAFETY: the kernel wrote these bytes for one completion. Only `take_stamped` calls this, with the chunk that it
        // has just made of that completion.
        let arrival = unsafe { stamp(front.get(NUMBERS..NUMBERS + written)?) };
        let len = content.len();
        (self.start, self.len, self.arrival) = (self.start + FRONT, len, arrival);
        (len > 0).then_some(self)
    }
}

/// The location of a completion's bytes.
struct Piece {
    start: usize,
    len: usize,
    floor: usize,
}

/// Memory that the kernel receives into: headroom, then buffers side by side, which it fills in turn.
///
/// INVARIANT: the kernel writes to buffers from its current one on, each behind `used`, and not to those in `retired`.
pub(in crate::uring) struct BufferRing {
    memory: NonNull<u8>,
    pub(super) entries: NonNull<BufRingEntry>,
    pub(super) count: u16,
    size: usize,
    headroom: usize,
    /// Number of bytes that each buffer holds.
    used: Vec<usize>,
    /// Buffers that the kernel has, in the order in which it fills them.
    order: VecDeque<u16>,
    /// Full buffers, in order, which the kernel does not have.
    retired: VecDeque<u16>,
    tail: u16,
}

/// Tells a [`BufferRing`] from all others that exist.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity(NonZeroUsize);

// SAFETY: it owns what it points to, and nothing of it is bound to a thread.
unsafe impl Send for BufferRing {}

impl BufferRing {
    pub(super) fn new(sizes: &Sizes) -> io::Result<Self> {
        let (count, size, headroom) = (sizes.buffers.next_power_of_two(), sizes.buffer as usize, sizes.headroom);
        let (memory, entries) = Self::layouts(count, size, headroom)?;
        // SAFETY: its size is not zero.
        let memory = NonNull::new(unsafe { alloc::alloc_zeroed(memory) }).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: its size is not zero.
        let entries = NonNull::new(unsafe { alloc::alloc_zeroed(entries) }).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut buffer_ring = Self {
            memory,
            entries: entries.cast(),
            count,
            size,
            headroom,
            used: vec![0; count.into()],
            order: VecDeque::new(),
            retired: VecDeque::new(),
            tail: 0,
        };
        (0..count).for_each(|number| buffer_ring.give(number));
        Ok(buffer_ring)
    }

    fn layouts(count: u16, size: usize, headroom: usize) -> io::Result<(Layout, Layout)> {
        let too_big = |_| io::Error::from(io::ErrorKind::InvalidInput);
        // Places in it are found by arithmetic that must not wrap around.
        let len = usize::from(count).checked_mul(size).and_then(|len| len.checked_add(headroom));
        let memory = Layout::from_size_align(len.unwrap_or(usize::MAX), 4096).map_err(too_big)?;
        let entries = Layout::array::<BufRingEntry>(count.into()).and_then(|layout| layout.align_to(4096));
        Ok((memory, entries.map_err(too_big)?))
    }

    pub(super) fn identity(&self) -> Identity {
        // No other ring has entries there before these are freed.
        Identity(self.entries.addr())
    }

    /// # Safety
    /// The kernel must not use this memory any more.
    pub(super) unsafe fn free(self) {
        if let Ok((memory, entries)) = Self::layouts(self.count, self.size, self.headroom) {
            // SAFETY: allocated by `new` with this layout.
            unsafe { alloc::dealloc(self.memory.as_ptr(), memory) };
            // SAFETY: allocated by `new` with this layout.
            unsafe { alloc::dealloc(self.entries.as_ptr().cast(), entries) };
        }
    }

    /// Index in the memory of the first byte of a completion.
    pub(super) fn position(&self, entry: &Entry) -> Option<usize> {
        let number = usize::from(cqueue::buffer_select(entry.flags)?);
        Some(self.headroom + number * self.size + self.used.get(number)?)
    }

    /// Takes the bytes of a completion. `None` if it has none.
    pub(super) fn take(&mut self, entry: &Entry, len: u32) -> Option<Chunk<'_>> {
        let Piece { start, len, floor } = self.account(entry, len)?;
        Some(Chunk { buffer_ring: self, start, len, floor, arrival: None })
    }

    /// Takes the bytes of a stamped receive. `None` if no bytes came, as at the end of a stream, or if the buffer had
    /// room for no more than the header.
    pub(super) fn take_stamped(&mut self, entry: &Entry, len: u32) -> Option<Chunk<'_>> {
        self.take(entry, len)?.without_header()
    }

    /// Accounts for the bytes of a completion.
    fn account(&mut self, entry: &Entry, len: u32) -> Option<Piece> {
        let start = self.position(entry)?;
        let number = cqueue::buffer_select(entry.flags)?;
        let index = usize::from(number);
        self.used[index] += len as usize;
        assert!(self.used[index] <= self.size, "the kernel filled a buffer beyond its end");
        // The buffer before is kept while this one is filled, as room in front.
        let before =
            index.checked_sub(1).filter(|&before| self.retired.back().is_some_and(|&b| usize::from(b) == before));
        let floor = match (index, before) {
            (0, _) => 0,
            (_, Some(before)) => self.headroom + before * self.size,
            (_, None) => self.headroom + index * self.size,
        };
        if !cqueue::buffer_more(entry.flags) {
            self.order.pop_front();
            self.retired.push_back(number);
        }
        (len > 0).then_some(Piece { start, len: len as usize, floor })
    }

    /// Lets the kernel fill the memory from its front again, which is in the cache. The kernel must not
    /// receive meanwhile: under `DEFER_TASKRUN` it does so only while it is entered.
    ///
    /// The kernel keeps count of the buffer that it fills in that buffer's entry (`IOU_PBUF_RING_INC`). Only this
    /// entry is compared with our count; if they differ, nothing changes.
    pub(super) fn rewind(&mut self) {
        let given = u16::try_from(self.order.len()).unwrap_or(self.count);
        let head = self.tail.wrapping_sub(given);
        if let Some(&number) = self.order.front() {
            let used = self.used[usize::from(number)];
            if used == 0 && self.retired.is_empty() {
                return;
            }
            // Bytes that the kernel received and could not report yet lie behind those that we know of.
            let (address, left) = (self.address(number) + used as u64, self.size - used);
            let entry = self.entry(head);
            if entry.bid() != number || entry.addr() != address || entry.len() as usize != left {
                return;
            }
        }
        self.retired.clear();
        self.order.clear();
        self.used.fill(0);
        self.tail = head;
        (0..self.count).for_each(|number| self.give(number));
    }

    /// Gives all full buffers but the last back to the kernel.
    pub(in crate::uring) fn recycle(&mut self) {
        while self.retired.len() > 1 {
            if let Some(number) = self.retired.pop_front() {
                self.used[usize::from(number)] = 0;
                self.give(number);
            }
        }
    }

    fn address(&self, number: u16) -> u64 {
        // SAFETY: there are `count` buffers.
        unsafe { self.memory.add(self.headroom + usize::from(number) * self.size) }.as_ptr() as u64
    }

    fn entry(&mut self, position: u16) -> &mut BufRingEntry {
        let slot = usize::from(position & (self.count - 1));
        // SAFETY: there are `count` entries.
        let entry = unsafe { self.entries.add(slot) };
        // SAFETY: initialised, and the kernel looks at entries only while it is entered. It cannot be entered
        // meanwhile: that takes the ring, whose owner waits for this call. Fields are written one by one as the tail
        // overlays the first entry.
        unsafe { &mut *entry.as_ptr() }
    }

    fn give(&mut self, number: u16) {
        self.order.push_back(number);
        let (address, size) = (self.address(number), u32::try_from(self.size).unwrap_or(u32::MAX));
        let entry = self.entry(self.tail);
        entry.set_addr(address);
        entry.set_len(size);
        entry.set_bid(number);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the address of the first entry, which is initialised.
        let tail = unsafe { BufRingEntry::tail(self.entries.as_ptr()) };
        // SAFETY: aligned, within the entries, and only this thread and the kernel use it.
        let tail = unsafe { core::sync::atomic::AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(self.tail, core::sync::atomic::Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::{BufferRing, Sizes};
    use std::io::ErrorKind;

    #[test]
    fn sizes_that_no_memory_has_are_refused() {
        for headroom in [usize::MAX, usize::MAX - 8 * 4096 + 1, isize::MAX as usize] {
            let sizes = Sizes { submissions: 1, completions: 1, buffers: 8, buffer: 4096, headroom };
            assert_eq!(
                BufferRing::new(&sizes).err().map(|error| error.kind()),
                Some(ErrorKind::InvalidInput),
                "{headroom}"
            );
        }
    }
}
