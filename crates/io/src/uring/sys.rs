//! The unsafe part: the kernel's queues, and all memory that the kernel reads or writes on its own.
//!
//! Two kinds of memory are shared with the kernel. [`Ring`] owns each buffer that is being sent until its completion
//! was taken. [`Inbox`] owns the memory that is received into, as one log: the kernel fills it in order, says how much,
//! and gets a part back only after what lay there was lent and is done with.
#![expect(unsafe_code, reason = "submitting to io_uring hands the kernel addresses")]

use crate::Token;
use io_uring::types::{BufRingEntry, CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::event::PollFlags;
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags};
use std::alloc::{self, Layout};
use std::collections::VecDeque;
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tautline_window::Buf;

/// The only group of provided buffers.
const GROUP: u16 = 0;

/// `IOU_PBUF_RING_INC`: a buffer is used up by several receives.
const INCREMENTAL: u16 = 2;

/// `IORING_ENTER_GETEVENTS`: completes what has become ready, without which nothing is under `DEFER_TASKRUN`.
const GET_EVENTS: u32 = 1;

/// Longest that dropping waits for requests to be cancelled, which the kernel does at once.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Longest single wait; the caller waits again.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Indices of connections, listeners and sends stay below this.
pub(super) const MAX_INDEX: u32 = 1 << 28;

/// What a request is for, as kept in its user data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Receive(Token),
    /// Tells of errors on a connection that is not received from.
    Watch(Token),
    Connect(Token),
    Accept {
        listener: u32,
        generation: u32,
    },
    Send(u32),
    Wake,
    Cancel,
}

impl Source {
    fn data(self) -> u64 {
        let (kind, index, generation) = match self {
            Self::Receive(token) => (0, token.index, token.generation),
            Self::Watch(token) => (1, token.index, token.generation),
            Self::Connect(token) => (2, token.index, token.generation),
            Self::Accept { listener, generation } => (3, listener, generation),
            Self::Send(number) => (4, number, 0),
            Self::Wake => (5, 0, 0),
            Self::Cancel => (6, 0, 0),
        };
        u64::from(generation) << 32 | kind << 28 | u64::from(index)
    }

    fn of(data: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = data.to_le_bytes();
        let low = u32::from_le_bytes([a, b, c, d]);
        let (index, generation) = (low & (MAX_INDEX - 1), u32::from_le_bytes([e, f, g, h]));
        let token = Token { index, generation };
        match low >> 28 {
            0 => Self::Receive(token),
            1 => Self::Watch(token),
            2 => Self::Connect(token),
            3 => Self::Accept { listener: index, generation },
            4 => Self::Send(index),
            5 => Self::Wake,
            _ => Self::Cancel,
        }
    }
}

/// One completion.
pub(super) struct Completion {
    pub(super) source: Source,
    pub(super) result: Result<u32, Errno>,
    /// The request goes on.
    pub(super) more: bool,
    pub(super) with: With,
}

/// What comes with a [`Completion`].
pub(super) enum With {
    Nothing,
    Chunk(Chunk),
    Accepted(OwnedFd),
    Sent(Token, Buf),
}

/// Sizes of a [`Ring`] and its [`Inbox`].
pub(super) struct Sizes {
    pub(super) submissions: u32,
    pub(super) completions: u32,
    pub(super) buffers: u16,
    pub(super) buffer: u32,
    pub(super) headroom: usize,
}

/// One io_uring with its provided buffers, and the buffers that are being sent.
pub(super) struct Ring {
    ring: IoUring,
    enabled: bool,
    /// Requests whose last completion was not taken yet, but for cancellations.
    running: usize,
    /// How often all that was pushed went to the kernel.
    flushes: u32,
    sends: Vec<Option<(Token, Buf)>>,
    free: Vec<u32>,
    /// Sockets that requests name which the kernel has not seen yet: the number must not be used again before.
    closing: Vec<OwnedFd>,
    next: Option<cqueue::Entry>,
    shelf: Arc<Mutex<Option<Inbox>>>,
}

impl Ring {
    pub(super) fn new(sizes: &Sizes) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_cqsize(sizes.completions)
            .setup_clamp()
            .setup_submit_all()
            .setup_coop_taskrun()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_r_disabled()
            .build(sizes.submissions)
            .map_err(|error| missing("io_uring with deferred task work (Linux 6.1)", &error))?;
        let inbox = Inbox::new(sizes)?;
        // SAFETY: the entries are page-aligned and as many as told; they are freed only after they were unregistered.
        let registered = unsafe {
            ring.submitter().register_buf_ring_with_flags(
                inbox.entries.as_ptr() as u64,
                inbox.count,
                GROUP,
                INCREMENTAL,
            )
        };
        if let Err(error) = registered {
            // SAFETY: the kernel refused to know of it.
            unsafe { inbox.free() };
            return Err(missing("buffers that are consumed incrementally (Linux 6.12)", &error));
        }
        Ok(Self {
            ring,
            enabled: false,
            running: 0,
            flushes: 0,
            sends: Vec::new(),
            free: Vec::new(),
            closing: Vec::new(),
            next: None,
            shelf: Arc::new(Mutex::new(Some(inbox))),
        })
    }

    /// The inbox, for one turn. `None` where a turn has it already.
    pub(super) fn borrow_inbox(&self) -> Option<Loan> {
        let shelf = Arc::clone(&self.shelf);
        let inbox = shelf.lock().unwrap_or_else(PoisonError::into_inner).take();
        inbox.map(|inbox| Loan { inbox: Some(inbox), shelf })
    }

    /// How often all that was pushed went to the kernel.
    pub(super) const fn flushes(&self) -> u32 {
        self.flushes
    }

    pub(super) fn receive(&mut self, fd: impl AsFd, token: Token) -> io::Result<()> {
        let entry = opcode::RecvMulti::new(number(fd), GROUP).build();
        // SAFETY: it receives into provided buffers only, which outlive it (see `drop`).
        unsafe { self.start(entry, Source::Receive(token)) }
    }

    pub(super) fn accept(
        &mut self,
        fd: impl AsFd,
        listener: u32,
        generation: u32,
        flags: SocketFlags,
    ) -> io::Result<()> {
        let flags = flags.bits().cast_signed();
        let entry = opcode::AcceptMulti::new(number(fd)).flags(flags).build();
        // SAFETY: it names no memory.
        unsafe { self.start(entry, Source::Accept { listener, generation }) }
    }

    pub(super) fn poll(&mut self, fd: impl AsFd, what: PollFlags, multi: bool, source: Source) -> io::Result<()> {
        let entry = opcode::PollAdd::new(number(fd), u32::from(what.bits())).multi(multi).build();
        // SAFETY: it names no memory.
        unsafe { self.start(entry, source) }
    }

    /// Sends as much of `buf` as there is room for, at least a byte; its completion brings the buffer back. Returns the number of the send.
    pub(super) fn send(&mut self, fd: impl AsFd, token: Token, buf: Buf) -> io::Result<u32> {
        let index = self.free.pop().or_else(|| u32::try_from(self.sends.len()).ok().filter(|&index| index < MAX_INDEX));
        let index = index.ok_or(io::ErrorKind::OutOfMemory)?;
        let len = u32::try_from(buf.len()).unwrap_or(u32::MAX);
        // Completes with what there was room for, so that the user can tell a slow peer from one that stopped to read.
        let flags = SendFlags::NOSIGNAL.bits().cast_signed();
        let entry = opcode::Send::new(number(fd), buf.filled().as_ptr(), len).flags(flags).build();
        if index as usize == self.sends.len() {
            self.sends.push(None);
        }
        self.sends[index as usize] = Some((token, buf));
        // SAFETY: the buffer's memory does not move when `sends` grows, and it is neither changed nor freed before the
        // completion was taken, not even on drop.
        let started = unsafe { self.start(entry, Source::Send(index)) };
        if let Err(error) = started {
            self.sends[index as usize] = None;
            self.free.push(index);
            return Err(error);
        }
        Ok(index)
    }

    /// Number of bytes of a running send.
    pub(super) fn send_len(&self, index: u32) -> usize {
        self.sends.get(index as usize).map_or(0, |send| send.as_ref().map_or(0, |(_, buf)| buf.len()))
    }

    /// The connection of a running send has a new name.
    pub(super) fn rename_send(&mut self, index: u32, token: Token) {
        if let Some(Some((owner, _))) = self.sends.get_mut(index as usize) {
            *owner = token;
        }
    }

    /// Cancels a request; its last completion still comes.
    pub(super) fn cancel(&mut self, source: Source) {
        let entry = opcode::AsyncCancel::new(source.data()).build().flags(squeue::Flags::SKIP_SUCCESS);
        // SAFETY: it names no memory.
        let pushed = unsafe { self.push(&entry.user_data(Source::Cancel.data())) };
        if let Err(error) = pushed {
            log::error!("cannot cancel a request: {error}");
        }
    }

    /// Closes a socket, but not before the kernel knows of all that was asked of it. `flush` is the number of
    /// [`flushes`](Self::flushes) when that was last.
    pub(super) fn close(&mut self, fd: OwnedFd, flush: u32) {
        if flush == self.flushes {
            self.closing.push(fd);
        }
    }

    /// Submits, and waits for a completion at most `timeout`, for ever where it is `None`.
    pub(super) fn enter(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.enable()?;
        let waiting = self.ring.submission().len();
        let submitter = self.ring.submitter();
        let result = match timeout {
            None => submitter.submit_and_wait(1),
            Some(Duration::ZERO) => {
                let len = u32::try_from(waiting).unwrap_or(u32::MAX);
                // SAFETY: no argument is passed, and the queue has as many entries.
                unsafe { submitter.enter::<()>(len, 0, GET_EVENTS, None) }
            }
            Some(timeout) => {
                let timeout = timeout.min(LONGEST);
                let timeout = Timespec::new().sec(timeout.as_secs()).nsec(timeout.subsec_nanos());
                submitter.submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
        };
        self.entered(result)
    }

    /// The next completion.
    pub(super) fn next(&mut self, inbox: &mut Inbox) -> Option<Completion> {
        let entry = self.next.take().or_else(|| self.ring.completion().next())?;
        let source = Source::of(entry.user_data());
        let more = cqueue::more(entry.flags());
        let result = result(&entry);
        if !more && source != Source::Cancel {
            self.running = self.running.saturating_sub(1);
        }
        let with = match (source, result) {
            (Source::Receive(_), Ok(len)) => inbox.take(&entry, len).map_or(With::Nothing, With::Chunk),
            (Source::Accept { .. }, Ok(fd)) => {
                // SAFETY: the kernel opened it for this completion, which is taken once.
                With::Accepted(unsafe { OwnedFd::from_raw_fd(RawFd::try_from(fd).unwrap_or(RawFd::MAX)) })
            }
            (Source::Send(index), _) if !more => {
                self.free.push(index);
                self.sends[index as usize].take().map_or(With::Nothing, |(token, buf)| With::Sent(token, buf))
            }
            _ => With::Nothing,
        };
        Some(Completion { source, result, more, with })
    }

    /// Takes the next completion too where it goes on with `chunk`, up to `most` bytes in all.
    /// Returns whether the request goes on.
    pub(super) fn join(&mut self, inbox: &mut Inbox, token: Token, chunk: &mut Chunk, most: usize) -> Option<bool> {
        if self.next.is_none() {
            self.next = self.ring.completion().next();
        }
        let entry = self.next.as_ref().filter(|entry| entry.user_data() == Source::Receive(token).data())?;
        let len = result(entry).ok()?;
        if chunk.len + len as usize > most || inbox.position(entry)? != chunk.start + chunk.len {
            return None;
        }
        let more = cqueue::more(entry.flags());
        let entry = self.next.take()?;
        chunk.len += inbox.take(&entry, len)?.len;
        self.running -= usize::from(!more);
        Some(more)
    }

    /// How many completions are there.
    pub(super) fn ready(&mut self) -> usize {
        self.ring.completion().len() + usize::from(self.next.is_some())
    }

    pub(super) fn nothing_to_submit(&mut self) -> bool {
        self.ring.submission().is_empty()
    }

    fn enable(&mut self) -> io::Result<()> {
        if !self.enabled {
            // From here on the ring belongs to the calling thread.
            self.ring.submitter().register_enable_rings()?;
            self.enabled = true;
        }
        Ok(())
    }

    fn entered(&mut self, result: io::Result<usize>) -> io::Result<()> {
        if self.nothing_to_submit() {
            self.flushes = self.flushes.wrapping_add(1);
            self.closing.clear();
        }
        match result.as_ref().map_err(Errno::from_io_error) {
            // The time is up, a signal came, or completions must be taken before more is submitted.
            Ok(_) | Err(Some(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN)) => Ok(()),
            Err(_) => result.map(drop),
        }
    }

    /// # Safety
    /// Memory that the entry names must outlive the request.
    unsafe fn start(&mut self, entry: squeue::Entry, source: Source) -> io::Result<()> {
        // SAFETY: promised by the caller.
        unsafe { self.push(&entry.user_data(source.data())) }?;
        self.running += 1;
        Ok(())
    }

    /// # Safety
    /// Memory that the entry names must outlive the request.
    unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: promised by the caller.
        if unsafe { self.ring.submission().push(entry) }.is_ok() {
            return Ok(());
        }
        self.enable()?;
        let submitted = self.ring.submit();
        self.entered(submitted)?;
        // SAFETY: promised by the caller.
        unsafe { self.ring.submission().push(entry) }.map_err(|_| io::Error::from(Errno::BUSY))
    }

    /// Cancels everything and waits for it. Returns whether the kernel uses none of our memory any more.
    fn quiesce(&mut self, inbox: &mut Inbox) -> bool {
        if !self.enabled {
            return true;
        }
        let entry = opcode::AsyncCancel2::new(CancelBuilder::any()).build().user_data(Source::Cancel.data());
        let start = Instant::now();
        let mut known = 0;
        while self.running > 0 && start.elapsed() < LAST_WAIT {
            if known != self.running {
                known = self.running;
                // SAFETY: it names no memory.
                if unsafe { self.push(&entry) }.is_err() {
                    return false;
                }
            }
            if self.enter(Some(Duration::from_millis(1))).is_err() {
                return false;
            }
            while self.next(inbox).is_some() {}
        }
        self.running == 0
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let inbox = self.shelf.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut inbox) = inbox
            && self.quiesce(&mut inbox)
            && self.ring.submitter().unregister_buf_ring(GROUP).is_ok()
        {
            // SAFETY: the kernel forgot it, no request is left, and nothing is lent as it was on the shelf.
            unsafe { inbox.free() };
            return;
        }
        // Dropped by another thread than the one that turned it, or within a turn: the kernel may still read and write.
        std::mem::forget(std::mem::take(&mut self.sends));
    }
}

fn number(fd: impl AsFd) -> Fd {
    Fd(fd.as_fd().as_raw_fd())
}

fn result(entry: &cqueue::Entry) -> Result<u32, Errno> {
    u32::try_from(entry.result()).map_err(|_| Errno::from_raw_os_error(-entry.result()))
}

fn missing(what: &str, error: &io::Error) -> io::Error {
    let reason = match Errno::from_io_error(error) {
        Some(Errno::NOSYS) => "the kernel has none",
        Some(Errno::PERM | Errno::ACCESS) => "not permitted: see kernel.io_uring_disabled and seccomp filters",
        Some(Errno::INVAL) => "the kernel is too old",
        _ => "refused",
    };
    io::Error::new(error.kind(), format!("io_uring: no {what}: {reason} ({error})"))
}

/// Bytes that arrived in an [`Inbox`].
#[derive(Debug)]
pub(super) struct Chunk {
    /// Where it begins in the inbox's memory.
    start: usize,
    len: usize,
    /// Where our memory before it begins.
    floor: usize,
}

/// Memory that the kernel receives into: headroom, then buffers side by side, which it fills in turn.
///
/// INVARIANT: the kernel writes to buffers from its current one on, each behind `used`, and not to those in `retired`.
pub(super) struct Inbox {
    memory: NonNull<u8>,
    entries: NonNull<BufRingEntry>,
    count: u16,
    size: usize,
    headroom: usize,
    /// How far each buffer is filled.
    used: Vec<usize>,
    /// Full buffers, in order, which the kernel does not have.
    retired: VecDeque<u16>,
    tail: u16,
}

// SAFETY: it owns what it points to, and nothing of it is bound to a thread.
unsafe impl Send for Inbox {}

impl Inbox {
    fn new(sizes: &Sizes) -> io::Result<Self> {
        let (count, size, headroom) = (sizes.buffers.next_power_of_two(), sizes.buffer as usize, sizes.headroom);
        let (memory, entries) = Self::layouts(count, size, headroom)?;
        // SAFETY: its size is not zero.
        let memory = NonNull::new(unsafe { alloc::alloc_zeroed(memory) }).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: its size is not zero.
        let entries = NonNull::new(unsafe { alloc::alloc_zeroed(entries) }).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut inbox = Self {
            memory,
            entries: entries.cast(),
            count,
            size,
            headroom,
            used: vec![0; count.into()],
            retired: VecDeque::new(),
            tail: 0,
        };
        (0..count).for_each(|number| inbox.give(number));
        Ok(inbox)
    }

    fn layouts(count: u16, size: usize, headroom: usize) -> io::Result<(Layout, Layout)> {
        let too_big = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let memory = Layout::from_size_align(headroom + usize::from(count) * size, 4096).map_err(too_big)?;
        let entries = Layout::array::<BufRingEntry>(count.into()).and_then(|layout| layout.align_to(4096));
        Ok((memory, entries.map_err(too_big)?))
    }

    /// # Safety
    /// The kernel must not know of it any more.
    unsafe fn free(self) {
        if let Ok((memory, entries)) = Self::layouts(self.count, self.size, self.headroom) {
            // SAFETY: allocated by `new` with this layout.
            unsafe { alloc::dealloc(self.memory.as_ptr(), memory) };
            // SAFETY: allocated by `new` with this layout.
            unsafe { alloc::dealloc(self.entries.as_ptr().cast(), entries) };
        }
    }

    /// Where the bytes of a completion begin.
    fn position(&self, entry: &cqueue::Entry) -> Option<usize> {
        let number = usize::from(cqueue::buffer_select(entry.flags())?);
        Some(self.headroom + number * self.size + self.used.get(number)?)
    }

    /// Accounts for the bytes of a completion.
    fn take(&mut self, entry: &cqueue::Entry, len: u32) -> Option<Chunk> {
        let start = self.position(entry)?;
        let number = cqueue::buffer_select(entry.flags())?;
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
        if !cqueue::buffer_more(entry.flags()) {
            self.retired.push_back(number);
        }
        (len > 0).then_some(Chunk { start, len: len as usize, floor })
    }

    /// The bytes of `chunk` with room in front. Bytes of earlier chunks are overwritten where the room is used.
    pub(super) fn lend(&mut self, chunk: &Chunk) -> (&mut [u8], usize) {
        let room = (chunk.start - chunk.floor).min(self.headroom);
        // SAFETY: it lies within `memory`, all of which is initialised. It is the kernel's no more: `take` accounted for
        // it, and `recycle` cannot be called while it is lent.
        let first = unsafe { self.memory.add(chunk.start - room) };
        // SAFETY: as above; the slice borrows `self`, so that nothing else is lent meanwhile.
        (unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), room + chunk.len) }, room)
    }

    /// Gives the kernel what is done with: all full buffers but the last. No chunk may be lent later that was taken
    /// before.
    pub(super) fn recycle(&mut self) {
        while self.retired.len() > 1 {
            if let Some(number) = self.retired.pop_front() {
                self.used[usize::from(number)] = 0;
                self.give(number);
            }
        }
    }

    fn give(&mut self, number: u16) {
        let slot = usize::from(self.tail & (self.count - 1));
        // SAFETY: there are `count` entries.
        let entry = unsafe { self.entries.add(slot) };
        // SAFETY: there are `count` buffers.
        let buffer = unsafe { self.memory.add(self.headroom + usize::from(number) * self.size) };
        // SAFETY: the kernel reads only entries between its head and the tail, and this one lies outside. Fields are
        // written one by one as the tail overlays the first entry.
        let entry = unsafe { &mut *entry.as_ptr() };
        entry.set_addr(buffer.as_ptr() as u64);
        entry.set_len(u32::try_from(self.size).unwrap_or(u32::MAX));
        entry.set_bid(number);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the address of the first entry, which is initialised.
        let tail = unsafe { BufRingEntry::tail(self.entries.as_ptr()) };
        // SAFETY: aligned, within the entries, and only this thread and the kernel use it.
        let tail = unsafe { core::sync::atomic::AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(self.tail, core::sync::atomic::Ordering::Release);
    }
}

/// The inbox of a driver that is in a turn. Goes back where it came from, also where the sink panics.
pub(super) struct Loan {
    inbox: Option<Inbox>,
    shelf: Arc<Mutex<Option<Inbox>>>,
}

impl Loan {
    pub(super) const fn get(&mut self) -> Option<&mut Inbox> {
        self.inbox.as_mut()
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        *self.shelf.lock().unwrap_or_else(PoisonError::into_inner) = self.inbox.take();
    }
}
