use super::buffer_ring::{BufferRing, Chunk, Identity};
use super::enter::Enter;
use super::entry::Entry;
use super::source::{Completion, MAX_INDEX, Source, With};
use super::{GROUP, Sizes};
use crate::Token;
use crate::stamp::CONTROL;
use io_uring::types::{CancelBuilder, Fd, Napi};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::event::PollFlags;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags};
use std::collections::VecDeque;
use std::io;
use std::thread;
use std::time::{Duration, Instant};
use tautline_buf::Buf;

/// `IOU_PBUF_RING_INC`: a buffer is used up by several receives.
const INCREMENTAL: u16 = 2;

/// Longest that dropping waits for requests to be cancelled, which the kernel does at once.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Attempts in a row to hand the kernel requests, none of which it takes, before the loop sleeps between them.
const QUICK_ENTERS: u32 = 100;
/// Such attempts after which the ring is given up: it has slept for a second by then.
const MOST_ENTERS: u32 = QUICK_ENTERS + 1000;

/// `IORING_SEND_ZC_REPORT_USAGE`: the notification says whether the kernel made a copy all the same.
const REPORT_USAGE: u16 = 8;

/// `IORING_NOTIF_USAGE_ZC_COPIED`: the kernel made a copy.
const COPIED: i32 = 1 << 31;

/// A buffer that the kernel sends from.
struct Sending {
    token: Token,
    buf: Buf,
    /// The result of a zero-copy send, from the first of its two completions; the second one frees the buffer.
    result: Result<u32, Errno>,
}

/// One io_uring with its provided buffers, and the buffers that are being sent.
pub(in crate::uring) struct Ring {
    ring: IoUring,
    enter: Enter,
    enabled: bool,
    /// Number of requests whose last completion was not taken yet, without cancellations.
    running: usize,
    /// How often all pushed requests had gone to the kernel.
    flushes: u32,
    sends: Vec<Option<Sending>>,
    /// The log says that the kernel copied a zero-copy send.
    copied: bool,
    free: Vec<u32>,
    /// Closed sockets whose requests the kernel has not seen yet: until then their numbers must not be reused.
    closing: Vec<OwnedFd>,
    /// Requests that the kernel's queue had no room for.
    behind: VecDeque<squeue::Entry>,
    /// Completions that were not looked at yet.
    arrived: VecDeque<Entry>,
    /// Lent to the driver for each turn.
    buffer_ring: Option<BufferRing>,
    /// Tells it from the buffers of other rings, whose memory another kernel ring writes to.
    own: Identity,
    /// Whether a receive was asked for.
    received: bool,
    /// The message by which receives ask for stamps, if they do: room for control messages.
    stamped: Option<Box<libc::msghdr>>,
}

impl Ring {
    pub(in crate::uring) fn new(sizes: &Sizes) -> io::Result<Self> {
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
        let buffer_ring = BufferRing::new(sizes)?;
        // SAFETY: the entries are page-aligned and as many as told; they are freed only after they were unregistered.
        let registered = unsafe {
            ring.submitter().register_buf_ring_with_flags(
                buffer_ring.entries.as_ptr() as u64,
                buffer_ring.count,
                GROUP,
                INCREMENTAL,
            )
        };
        if let Err(error) = registered {
            // SAFETY: the kernel refused to know of it.
            unsafe { buffer_ring.free() };
            return Err(missing("buffers that are consumed incrementally (Linux 6.12)", &error));
        }
        Ok(Self {
            ring,
            enter: Enter::default(),
            enabled: false,
            running: 0,
            flushes: 0,
            sends: Vec::new(),
            copied: false,
            free: Vec::new(),
            closing: Vec::new(),
            behind: VecDeque::new(),
            arrived: VecDeque::new(),
            own: buffer_ring.identity(),
            received: false,
            buffer_ring: Some(buffer_ring),
            stamped: None,
        })
    }

    /// Has receives bring stamps from now on. Earlier receives would be taken for stamped ones, so there must be none.
    pub(in crate::uring) fn stamp(&mut self) {
        assert!(!self.received, "stamps are asked for after a receive without");
        // SAFETY: a message of zeros is one without name, data and control.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_controllen = CONTROL as _;
        self.stamped = Some(Box::new(message));
    }

    /// Lets waiting poll the queues of the cards that the sockets' packets come from (Linux 6.9).
    pub(in crate::uring) fn poll_cards(&self, micros: u32) -> Result<(), Errno> {
        let mut napi = Napi::new().set_busy_poll_timeout(micros).set_prefer_busy_poll(true);
        let registered = self.ring.submitter().register_napi(&mut napi);
        registered.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    /// Lends the buffer ring for one turn. `None` if a turn has it already.
    pub(in crate::uring) const fn lend_inbox(&mut self) -> Option<BufferRing> {
        self.buffer_ring.take()
    }

    /// Takes the buffer ring back at the end of a turn.
    pub(in crate::uring) fn return_inbox(&mut self, buffer_ring: BufferRing) {
        self.check(&buffer_ring);
        self.buffer_ring = Some(buffer_ring);
    }

    /// Ends a call with the buffers of another ring: the kernel may be writing to them.
    #[inline]
    fn check(&self, buffer_ring: &BufferRing) {
        assert!(buffer_ring.identity() == self.own, "the buffers are those of another io_uring");
    }

    /// Lets the kernel fill the memory from its front again, if no completion waits. Called before the kernel is
    /// entered.
    pub(in crate::uring) fn rewind(&self, buffer_ring: &mut BufferRing) {
        self.check(buffer_ring);
        if self.arrived.is_empty() {
            buffer_ring.rewind();
        }
    }

    /// How often all pushed requests had gone to the kernel.
    pub(in crate::uring) const fn flushes(&self) -> u32 {
        self.flushes
    }

    pub(in crate::uring) fn receive(&mut self, fd: impl AsFd, token: Token) {
        self.received = true;
        let entry = match &self.stamped {
            None => opcode::RecvMulti::new(number(fd), GROUP).build(),
            Some(message) => {
                let asked = opcode::RecvMsgMulti::new(number(fd), &raw const **message, GROUP);
                asked.flags(libc::MSG_CMSG_CLOEXEC.cast_unsigned()).build()
            }
        };
        // SAFETY: it receives into provided buffers only, which outlive it (see `drop`). The kernel copies the message
        // when the request is submitted, and the message lives as long as the ring.
        unsafe { self.start(entry, Source::Receive(token)) };
    }

    pub(in crate::uring) fn accept(&mut self, fd: impl AsFd, listener: u32, generation: u32, flags: SocketFlags) {
        let flags = flags.bits().cast_signed();
        let entry = opcode::AcceptMulti::new(number(fd)).flags(flags).build();
        // SAFETY: it names no memory.
        unsafe { self.start(entry, Source::Accept { listener, generation }) };
    }

    pub(in crate::uring) fn poll(&mut self, fd: impl AsFd, what: PollFlags, multi: bool, source: Source) {
        let entry = opcode::PollAdd::new(number(fd), u32::from(what.bits())).multi(multi).build();
        // SAFETY: it names no memory.
        unsafe { self.start(entry, source) };
    }

    /// Sends as much of `buf` as there is room for, at least a byte; its completion brings the buffer back. Returns
    /// the number of the send. `zero_copy` has the kernel send from the buffer instead of from a copy, if the device
    /// can: the completion then comes when the peer has acknowledged the bytes.
    pub(in crate::uring) fn send(&mut self, fd: impl AsFd, token: Token, buf: Buf, zero_copy: bool) -> io::Result<u32> {
        let index = self.free.pop().or_else(|| u32::try_from(self.sends.len()).ok().filter(|&index| index < MAX_INDEX));
        let index = index.ok_or(io::ErrorKind::OutOfMemory)?;
        let (start, len) = (buf.filled().as_ptr(), u32::try_from(buf.len()).unwrap_or(u32::MAX));
        // Without `MSG_WAITALL`: a completion reports each progress, which tells a slow peer from one that stopped
        // reading.
        let flags = SendFlags::NOSIGNAL.bits().cast_signed();
        let entry = if zero_copy {
            opcode::SendZc::new(number(fd), start, len).flags(flags).zc_flags(REPORT_USAGE).build()
        } else {
            opcode::Send::new(number(fd), start, len).flags(flags).build()
        };
        if index as usize == self.sends.len() {
            self.sends.push(None);
        }
        self.sends[index as usize] = Some(Sending { token, buf, result: Ok(0) });
        // SAFETY: the buffer's memory does not move when `sends` grows, and it is neither changed nor freed before the
        // last completion was taken, not even on drop.
        unsafe { self.start(entry, Source::Send(index)) };
        Ok(index)
    }

    /// Number of bytes of a running send.
    pub(in crate::uring) fn send_len(&self, index: u32) -> usize {
        self.sends.get(index as usize).map_or(0, |send| send.as_ref().map_or(0, |sending| sending.buf.len()))
    }

    /// Gives the connection of a running send a new token.
    pub(in crate::uring) fn rename_send(&mut self, index: u32, token: Token) {
        if let Some(Some(sending)) = self.sends.get_mut(index as usize) {
            sending.token = token;
        }
    }

    /// Cancels a request; its last completion still comes.
    pub(in crate::uring) fn cancel(&mut self, source: Source) {
        let entry = opcode::AsyncCancel::new(source.data()).build().flags(squeue::Flags::SKIP_SUCCESS);
        // SAFETY: it names no memory.
        unsafe { self.push(entry.user_data(Source::Cancel.data())) };
    }

    /// Closes a socket, but not before the kernel has seen all requests for it. `flush` is the value of
    /// [`flushes`](Self::flushes) at the last of them.
    pub(in crate::uring) fn close(&mut self, fd: OwnedFd, flush: u32) {
        if flush == self.flushes {
            self.closing.push(fd);
        }
    }

    /// Submits, and waits for a completion at most `timeout`, for ever if it is `None`.
    pub(in crate::uring) fn enter(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.enable()?;
        self.hand_over(|ring| ring.behind.is_empty())?;
        // That may have brought completions.
        let timeout = if self.arrived.is_empty() { timeout } else { Some(Duration::ZERO) };
        self.enter_once(1, timeout)?;
        self.hand_over(Self::nothing_to_submit)
    }

    /// Submits without waiting, until `done`. The kernel leaves requests if completions had no room, which they have
    /// after each attempt, or if memory is short.
    fn hand_over(&mut self, done: impl Fn(&mut Self) -> bool) -> io::Result<()> {
        let (mut left, mut in_vain) = (usize::MAX, 0);
        while !done(self) {
            if in_vain > QUICK_ENTERS {
                thread::sleep(Duration::from_millis(1));
            }
            self.enter_once(0, Some(Duration::ZERO))?;
            let before = std::mem::replace(&mut left, self.behind.len() + self.ring.submission().len());
            in_vain = if left < before { 0 } else { in_vain + 1 };
            if in_vain > MOST_ENTERS {
                let why = "io_uring takes no more requests: the kernel has no memory for them";
                return Err(io::Error::new(io::ErrorKind::OutOfMemory, why));
            }
        }
        Ok(())
    }

    fn enter_once(&mut self, least: u32, timeout: Option<Duration>) -> io::Result<()> {
        self.fill();
        let submit = u32::try_from(self.ring.submission().len()).unwrap_or(u32::MAX);
        // SAFETY: what the requests name outlives them, as promised to `push`.
        let result = unsafe { self.enter.enter(descriptor(&self.ring), submit, least, timeout) };
        self.entered(result)
    }

    /// The next completion.
    pub(in crate::uring) fn next<'r>(&mut self, buffer_ring: &'r mut BufferRing) -> Option<Completion<'r>> {
        self.check(buffer_ring);
        let entry = self.arrived.pop_front()?;
        let source = Source::of(entry.data);
        let more = cqueue::more(entry.flags);
        let mut result = if cqueue::notif(entry.flags) { Ok(0) } else { entry.result() };
        if !more && source != Source::Cancel {
            self.running = self.running.saturating_sub(1);
        }
        let with = match (source, result) {
            (Source::Receive(_), _) if self.stamped.is_some() => stamped(buffer_ring, &entry, &mut result),
            (Source::Receive(_), Ok(len)) => buffer_ring.take(&entry, len).map_or(With::Nothing, With::Chunk),
            (Source::Accept { .. }, Ok(fd)) => {
                // SAFETY: the kernel opened it for this completion, which is taken once.
                With::Accepted(unsafe { OwnedFd::from_raw_fd(RawFd::try_from(fd).unwrap_or(RawFd::MAX)) })
            }
            (Source::Send(index), _) => self.sent(index, &entry, &mut result),
            _ => With::Nothing,
        };
        Some(Completion { source, result, more, with })
    }

    /// Handles a completion of a send. A zero-copy send has two: one with its result, and one that frees the buffer.
    fn sent(&mut self, index: u32, entry: &Entry, result: &mut Result<u32, Errno>) -> With<'static> {
        let Some(Some(sending)) = self.sends.get_mut(index as usize) else { return With::Nothing };
        if cqueue::more(entry.flags) {
            sending.result = *result;
            return With::Nothing;
        }
        if cqueue::notif(entry.flags) {
            *result = sending.result;
            if entry.result & COPIED != 0 && !std::mem::replace(&mut self.copied, true) {
                log::warn!(
                    "the kernel copies what it was to send without: the device cannot do it, or the peer is local"
                );
            }
        }
        self.free.push(index);
        let sending = self.sends[index as usize].take();
        sending.map_or(With::Nothing, |sending| With::Sent(sending.token, sending.buf))
    }

    /// Takes the next completion too if its bytes continue `chunk`, up to `most` bytes in all.
    /// Returns whether the request goes on; `None` if nothing was joined.
    pub(in crate::uring) fn join(&mut self, token: Token, chunk: &mut Chunk<'_>, most: usize) -> Option<bool> {
        self.check(chunk.buffer_ring());
        if self.stamped.is_some() {
            // A header lies in front of each receive's bytes.
            return None;
        }
        let entry = self.arrived.front().filter(|entry| entry.data == Source::Receive(token).data())?;
        let len = entry.result().ok()?;
        if chunk.len() + len as usize > most || !chunk.goes_on_with(entry) {
            return None;
        }
        let more = cqueue::more(entry.flags);
        let entry = self.arrived.pop_front()?;
        chunk.append(&entry, len)?;
        self.running -= usize::from(!more);
        Some(more)
    }

    /// Number of completions that wait.
    pub(in crate::uring) fn ready(&self) -> usize {
        self.arrived.len()
    }

    /// Whether completions or requests wait for the next [`enter`](Self::enter), of which the descriptor reports nothing.
    pub(in crate::uring) fn has_work(&mut self) -> bool {
        self.ready() > 0 || !self.closing.is_empty() || !self.nothing_to_submit()
    }

    /// Has the kernel write to an eventfd when completions arrive.
    pub(in crate::uring) fn report_to(&self, eventfd: BorrowedFd<'_>) -> io::Result<()> {
        self.ring.submitter().register_eventfd(eventfd.as_raw_fd())
    }

    fn nothing_to_submit(&mut self) -> bool {
        self.behind.is_empty() && self.ring.submission().is_empty()
    }

    fn enable(&mut self) -> io::Result<()> {
        if !self.enabled {
            // From here on the ring belongs to the calling thread.
            self.ring.submitter().register_enable_rings()?;
            self.enter.open(descriptor(&self.ring));
            self.enabled = true;
        }
        Ok(())
    }

    fn entered(&mut self, result: Result<u32, Errno>) -> io::Result<()> {
        if self.nothing_to_submit() {
            self.flushes = self.flushes.wrapping_add(1);
            self.closing.clear();
        }
        self.collect();
        match result {
            // The time is up, a signal came, or completions must be taken before more is submitted.
            Ok(_) | Err(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Takes the completions off the kernel's queue.
    fn collect(&mut self) {
        self.arrived.extend(self.ring.completion().map(|entry| Entry::new(&entry)));
    }

    /// # Safety
    /// Memory that the entry names must outlive the request.
    unsafe fn start(&mut self, entry: squeue::Entry, source: Source) {
        self.running += 1;
        #[cfg(test)]
        if let Err(errno) = source.call().may_fail() {
            return self.arrived.push_back(Entry { data: source.data(), result: -errno.raw_os_error(), flags: 0 });
        }
        // SAFETY: promised by the caller.
        unsafe { self.push(entry.user_data(source.data())) };
        #[cfg(test)]
        if crate::faults::Call::Cancel.may_fail().is_err() {
            self.cancel(source);
        }
    }

    /// Has the kernel get the request when it is entered next.
    ///
    /// # Safety
    /// Memory that the entry names must outlive the request.
    unsafe fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: promised by the caller.
        if !self.behind.is_empty() || unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.behind.push_back(entry);
        }
    }

    /// Fills the kernel's queue with requests that it had no room for.
    fn fill(&mut self) {
        while let Some(entry) = self.behind.front() {
            // SAFETY: promised to `push`.
            if unsafe { self.ring.submission().push(entry) }.is_err() {
                return;
            }
            self.behind.pop_front();
        }
    }

    /// Cancels everything and waits for it. Returns whether the kernel uses none of our memory any more.
    fn quiesce(&mut self, buffer_ring: &mut BufferRing) -> bool {
        if !self.enabled {
            return true;
        }
        let entry = opcode::AsyncCancel2::new(CancelBuilder::any()).build().user_data(Source::Cancel.data());
        let start = Instant::now();
        let mut known = 0;
        while self.running > 0 && start.elapsed() < LAST_WAIT {
            // One request cancels all that can be cancelled now. Another one follows for the rest, once no more
            // complete: it looks at all of them again.
            let stuck = known == self.running || known == 0;
            known = self.running;
            if stuck {
                // SAFETY: it names no memory.
                unsafe { self.push(entry.clone()) };
            }
            // The kernel reports no more than 20 at a time unless the call waits for more.
            let all = u32::try_from(self.running).unwrap_or(u32::MAX);
            if self.enter_once(all, Some(Duration::from_millis(1))).is_err() {
                return false;
            }
            while self.next(buffer_ring).is_some() {}
        }
        self.running == 0
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.enter.close(descriptor(&self.ring));
        if let Some(mut buffer_ring) = self.buffer_ring.take()
            && self.quiesce(&mut buffer_ring)
            && self.ring.submitter().unregister_buf_ring(GROUP).is_ok()
        {
            // SAFETY: the kernel forgot it, no request is left, and nothing of it is lent as it was here.
            unsafe { buffer_ring.free() };
            return;
        }
        // Dropped by another thread than the one that turned it, or within a turn: the kernel may still read and write.
        std::mem::forget(std::mem::take(&mut self.sends));
    }
}

fn descriptor(ring: &IoUring) -> BorrowedFd<'_> {
    // SAFETY: the ring keeps it open as long as it is borrowed.
    unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) }
}

fn number(fd: impl AsFd) -> Fd {
    Fd(fd.as_fd().as_raw_fd())
}

/// The chunk of a stamped receive. Without one the result becomes `ENOBUFS`: the driver receives directly, to see
/// whether the stream has ended. A buffer may have had room for the header only (then no bytes come), or not even for
/// that (`EFAULT`).
fn stamped<'r>(buffer_ring: &'r mut BufferRing, entry: &Entry, result: &mut Result<u32, Errno>) -> With<'r> {
    // A completion without a buffer belongs to a poll, which only reports that something is there.
    if let Ok(len) = *result
        && buffer_ring.position(entry).is_some()
    {
        if let Some(chunk) = buffer_ring.take_stamped(entry, len) {
            return With::Chunk(chunk);
        }
        *result = Err(Errno::NOBUFS);
    } else if *result == Err(Errno::FAULT) {
        *result = Err(Errno::NOBUFS);
    }
    With::Nothing
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

#[cfg(test)]
mod tests {
    use super::super::Sizes;
    use super::super::buffer_ring::BufferRing;
    use super::super::entry::Entry;
    use super::{Ring, Source, With};
    use crate::Token;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// A ring, if this machine has io_uring. The tests of the driver report it if not.
    fn ring() -> Option<(Ring, BufferRing)> {
        let sizes = Sizes { submissions: 8, completions: 8, buffers: 2, buffer: 4096, headroom: 64 };
        let mut ring = Ring::new(&sizes).ok()?;
        let buffers = ring.lend_inbox()?;
        Some((ring, buffers))
    }

    /// A completion of 5 bytes in the first buffer.
    fn completion() -> Entry {
        let token = Token { index: 0, generation: 0 };
        Entry { data: Source::Receive(token).data(), result: 5, flags: 1 }
    }

    #[test]
    fn buffers_of_another_ring_are_refused() {
        let (Some((mut ring, mut own)), Some((mut other, mut foreign))) = (ring(), ring()) else { return };
        let token = Token { index: 0, generation: 0 };
        ring.arrived.extend([completion(), completion()]);
        let mut refused = |act: &mut dyn FnMut(&mut Ring, &mut BufferRing)| {
            catch_unwind(AssertUnwindSafe(|| act(&mut ring, &mut foreign))).is_err()
        };
        assert!(refused(&mut |ring, foreign| drop(ring.next(foreign))));
        assert!(refused(&mut |ring, foreign| ring.rewind(foreign)));
        assert!(refused(&mut |ring, foreign| {
            let mut chunk = foreign.take(&completion(), 5).unwrap();
            ring.join(token, &mut chunk, 4096);
        }));
        // `return_inbox` begins with this check. The memory that it refuses is never freed, so it is not called here.
        assert!(refused(&mut |ring, foreign| ring.check(foreign)));
        assert_eq!(ring.ready(), 2, "refused calls have changed nothing");
        assert!(matches!(ring.next(&mut own).unwrap().with, With::Chunk(_)));
        ring.return_inbox(own);
        other.return_inbox(foreign);
    }

    #[test]
    fn stamps_are_not_read_out_of_receives_without() {
        let Some((mut ring, own)) = ring() else { return };
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        ring.receive(&socket, Token { index: 0, generation: 0 });
        assert!(catch_unwind(AssertUnwindSafe(|| ring.stamp())).is_err());
        ring.return_inbox(own);
    }
}
