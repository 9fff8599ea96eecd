//! The border between loops and Python: what both sides share of a connection, and the queues in both directions.

use crate::ended::Ended;
use crate::failure::Failure;
use crate::fork;
use crate::lock::lock;
use crate::windows::Window;
use pyo3::Py;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::any::Any;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tautline::{ConnId, Kind, ShardHandle, Target};

/// Bytes from which on a message is not copied for a batch.
pub(crate) const LARGE: usize = 8 << 10;

/// Memory that a batch keeps for the next one in any case.
const KEEP: usize = 1 << 20;
/// Memory that a batch keeps at most. A loop has four batches: two for each direction.
const KEEP_MOST: usize = 16 << 20;

/// The events that wait for Python: those of all connections of one event loop, in order.
pub(crate) struct Inbox {
    pending: Mutex<Batch>,
    wake: OwnedFd,
    /// Whether `wake` is readable already, so that further events need no system call.
    woken: AtomicBool,
    /// Whether nobody will take events any more.
    closed: AtomicBool,
}

/// Events, and the payloads of all of them, one behind the other.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) events: Vec<Event>,
    pub(crate) bytes: Vec<u8>,
    /// Bytes that a batch lately had.
    lately: usize,
}

/// One event of the connection with this key.
pub(crate) struct Event {
    pub(crate) key: u64,
    pub(crate) news: News,
}

/// The kinds of events. A `len` is that of the payload in [`Batch::bytes`].
pub(crate) enum News {
    /// A whole message.
    Message { kind: Kind, len: usize },
    /// A whole message that is an object already.
    Whole(Py<PyBytes>, Kind),
    /// A pong.
    Pong { len: usize },
    /// A ping of the loop's own was answered after this number of seconds.
    Latency(f64),
    /// The peer has taken enough: more may be sent.
    Room,
    /// A client asks to connect.
    Request(Box<dyn Any + Send>),
    /// The opening handshake is complete.
    Open(Box<dyn Any + Send>),
    /// An open connection has ended.
    Closed(Box<Ended>),
    /// An attempt to connect failed.
    Failed(Box<Failure>),
    /// A loop of a server has ended.
    Stopped,
}

impl Batch {
    /// Makes the batch empty, and gives unusually much memory back.
    pub(crate) fn clear(&mut self) {
        self.events.clear();
        empty(&mut self.bytes, &mut self.lately);
        self.events.shrink_to(KEEP / size_of::<Event>());
    }
}

/// Empties the payloads of a batch. Memory that batches of late needed is kept, for the kernel takes long to clear it anew.
///
/// `lately` is the size of the largest batch, an eighth less for each smaller one since. A vector grows by doubling, so
/// twice that is kept.
fn empty(bytes: &mut Vec<u8>, lately: &mut usize) {
    *lately = bytes.len().max(*lately - *lately / 8);
    bytes.clear();
    bytes.shrink_to((2 * *lately).clamp(KEEP, KEEP_MOST));
}

impl Inbox {
    pub(crate) fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { pending: Mutex::default(), wake, woken: AtomicBool::new(false), closed: AtomicBool::new(false) })
    }

    /// Appends an event. True if it is the first of a batch: the caller must then [`wake`](Self::wake) at the end of its turn.
    pub(crate) fn push(&self, key: u64, news: News, payload: &[u8]) -> bool {
        if self.closed.load(Ordering::Acquire) {
            return false;
        }
        let mut pending = lock(&self.pending);
        pending.bytes.extend_from_slice(payload);
        pending.events.push(Event { key, news });
        pending.events.len() == 1
    }

    /// Wakes Python.
    pub(crate) fn wake(&self) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            // It fails only at a count of 2^64 - 2, where the descriptor is readable anyway.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }

    /// Takes all events in exchange for an empty batch.
    pub(crate) fn take(&self, batch: &mut Batch) {
        if self.woken.load(Ordering::Acquire) {
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
            // Cleared before the exchange, so that an event behind it wakes again.
            self.woken.swap(false, Ordering::AcqRel);
        }
        std::mem::swap(&mut *lock(&self.pending), batch);
    }

    /// Waits until an event is there, at most this time. False if none came.
    pub(crate) fn wait(&self, longest: Option<Duration>) -> io::Result<bool> {
        let longest = longest.and_then(|longest| Timespec::try_from(longest).ok());
        let mut fds = [PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN)];
        match poll(&mut fds, longest.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Drops all events from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let dropped = std::mem::take(&mut *lock(&self.pending));
        drop(dropped);
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.wake.as_raw_fd()
    }
}

/// A loop that an event loop's thread turns.
pub(crate) trait Turn {
    /// A descriptor that is readable when a turn has something to do.
    fn descriptor(&self) -> io::Result<RawFd>;
    /// Handles what waits. `timed_out` if the time that [`alarm`](Self::alarm) gave has passed.
    fn turn(&mut self, timed_out: bool) -> io::Result<()>;
    /// Carries out the operations of Python.
    fn obey(&mut self);
    /// Sends a message from where it lies, behind the operations that wait.
    fn send(&mut self, to: &Shared, kind: Kind, payload: &[u8]);
    /// Whether the next turn is due at once.
    fn has_more(&mut self) -> bool;
    /// The time until the next turn, if it is sooner than the one that was given last. Reports the end, too.
    fn alarm(&mut self) -> Option<Duration>;
}

/// Finds the loop of this thread that takes the operations of an outbox.
type Find = fn(&Outbox) -> Option<LocalLoop>;

/// A loop of this thread.
pub(crate) type LocalLoop = Rc<RefCell<dyn Turn>>;

/// Wakes a loop of another thread.
type Wake = fn(&ShardHandle);

/// Operations of Python for one loop, in order.
pub(crate) struct Outbox {
    pending: Mutex<Orders>,
    shard: OnceLock<(ShardHandle, Wake)>,
    /// Finds the loop, if it is one of an event loop's thread.
    find: OnceLock<Find>,
    /// The process that has the loop.
    generation: u32,
}

/// Operations, and the payloads of all of them, one behind the other.
#[derive(Default)]
pub(crate) struct Orders {
    pub(crate) list: Vec<Order>,
    pub(crate) bytes: Vec<u8>,
    /// Bytes that a batch lately had.
    lately: usize,
}

/// One operation. A `len` is that of the payload in [`Orders::bytes`].
pub(crate) enum Order {
    Send {
        to: Arc<Shared>,
        kind: Kind,
        len: usize,
    },
    /// A large message, which is sent from the memory of its object.
    SendWhole {
        to: Arc<Shared>,
        kind: Kind,
        payload: PyBackedBytes,
    },
    Fragment {
        to: Arc<Shared>,
        kind: Kind,
        len: usize,
        last: bool,
    },
    Broadcast {
        to: Vec<ConnId>,
        kind: Kind,
        len: usize,
    },
    Ping {
        to: Arc<Shared>,
        len: usize,
    },
    /// Closes with a code, and a reason in UTF-8.
    Close {
        to: Arc<Shared>,
        code: u16,
        len: usize,
    },
    /// Reads from the peer again.
    Resume {
        to: Arc<Shared>,
    },
    /// Asks for [`News::Room`](News::Room).
    Room {
        to: Arc<Shared>,
        low: usize,
    },
    Dial {
        target: Box<Target>,
        shared: Arc<Shared>,
        /// The windows that it may keep between messages.
        window: Option<Window>,
    },
    /// Stops accepting, closes all connections and ends the loop.
    Drain {
        code: u16,
        len: usize,
        deadline: Duration,
    },
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            pending: Mutex::default(),
            shard: OnceLock::new(),
            find: OnceLock::new(),
            generation: fork::generation(),
        }
    }
}

impl Orders {
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        empty(&mut self.bytes, &mut self.lately);
        self.list.shrink_to(KEEP / size_of::<Order>());
    }
}

impl Outbox {
    /// Sets the loop that takes the operations, and the function that wakes it.
    pub(crate) fn connect(&self, shard: ShardHandle, wake: fn(&ShardHandle)) {
        // A loop has one outbox, and connects it once.
        let _ = self.shard.set((shard, wake));
    }

    /// Like [`connect`](Self::connect), for a loop of this thread.
    pub(crate) fn connect_here(&self, shard: ShardHandle, wake: Wake, find: Find) {
        let _ = self.find.set(find);
        self.connect(shard, wake);
    }

    /// Whether the loop is one of an event loop's thread.
    pub(crate) fn is_local(&self) -> bool {
        self.find.get().is_some()
    }

    /// The process that has the loop.
    pub(crate) const fn generation(&self) -> u32 {
        self.generation
    }

    /// Appends an operation. True if it is the first since the loop has taken all, so that a [`flush`](Self::flush) must follow.
    pub(crate) fn push(&self, order: Order, payload: &[u8]) -> bool {
        let mut pending = lock(&self.pending);
        pending.bytes.extend_from_slice(payload);
        pending.list.push(order);
        pending.list.len() == 1
    }

    /// Has the loop carry out the operations that wait, if any: now if it is one of this thread. False if it has ended.
    pub(crate) fn flush(&self) -> bool {
        let Some((shard, _)) = self.shard.get() else { return true };
        if !lock(&self.pending).list.is_empty() && !self.obeyed() {
            self.wake();
        }
        shard.is_running()
    }

    /// Has a loop of this thread send a message at once. False if there is none, or if it is in a turn.
    pub(crate) fn sends(&self, to: &Shared, kind: Kind, payload: &[u8]) -> bool {
        let local = self.find.get().and_then(|find| find(self));
        let Some(local) = local else { return false };
        let Ok(mut local) = local.try_borrow_mut() else { return false };
        local.send(to, kind, payload);
        true
    }

    /// Has a loop of this thread carry out what waits. False if there is none, or if it is in a turn.
    fn obeyed(&self) -> bool {
        let local = self.find.get().and_then(|find| find(self));
        let Some(local) = local else { return false };
        let Ok(mut local) = local.try_borrow_mut() else { return false };
        local.obey();
        true
    }

    /// Wakes the loop.
    pub(crate) fn wake(&self) {
        if let Some((shard, wake)) = self.shard.get() {
            wake(shard);
        }
    }

    /// Appends an operation, and wakes the loop at once.
    pub(crate) fn order(&self, order: Order, payload: &[u8]) -> bool {
        self.push(order, payload);
        self.flush()
    }

    /// Takes all operations in exchange for an empty list.
    pub(crate) fn take(&self, orders: &mut Orders) {
        std::mem::swap(&mut *lock(&self.pending), orders);
    }
}

/// The state of one connection that its loop and Python share.
pub(crate) struct Shared {
    /// Its number among all connections of the process.
    pub(crate) key: u64,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) outbox: Arc<Outbox>,
    /// Messages that wait for Python between which reading pauses and resumes.
    pub(crate) queue: Marks,
    /// Its number in its loop, once it is open.
    pub(crate) id: OnceLock<ConnId>,
    /// Messages that arrived and that Python has not taken.
    waiting: AtomicUsize,
    paused: AtomicBool,
    /// Bytes that Python sent and the loop has not taken.
    pub(crate) unsent: AtomicUsize,
    /// Bytes that wait in the loop, as of its last look.
    pub(crate) buffered: AtomicUsize,
}

/// Marks of a queue: at `high` its input pauses, at `low` it resumes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    pub(crate) high: usize,
    pub(crate) low: usize,
}

impl Shared {
    pub(crate) fn new(inbox: Arc<Inbox>, outbox: Arc<Outbox>, queue: Marks) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(Self {
            key: NEXT.fetch_add(1, Ordering::Relaxed),
            inbox,
            outbox,
            queue,
            id: OnceLock::new(),
            waiting: AtomicUsize::new(0),
            paused: AtomicBool::new(false),
            unsent: AtomicUsize::new(0),
            buffered: AtomicUsize::new(0),
        })
    }

    /// A message is about to wait for Python. True if reading must pause.
    pub(crate) fn add_waiting(&self) -> bool {
        if self.waiting.fetch_add(1, Ordering::SeqCst) + 1 < self.queue.high || self.paused.swap(true, Ordering::SeqCst)
        {
            return false;
        }
        // Python may have taken messages before it could see that reading is paused.
        let resumed =
            self.waiting.load(Ordering::SeqCst) <= self.queue.low && self.paused.swap(false, Ordering::SeqCst);
        !resumed
    }

    /// Whether reading pauses, because too many messages wait for Python.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst)
    }

    /// Python took a message. True if reading must resume.
    pub(crate) fn remove_waiting(&self) -> bool {
        let rest = self.waiting.fetch_sub(1, Ordering::SeqCst) - 1;
        rest <= self.queue.low && self.paused.load(Ordering::SeqCst) && self.paused.swap(false, Ordering::SeqCst)
    }

    /// Bytes that were sent and that the kernel has not taken.
    pub(crate) fn backlog(&self) -> usize {
        self.unsent.load(Ordering::Relaxed) + self.buffered.load(Ordering::Relaxed)
    }
}

/// The state of a connection in its loop.
#[derive(Default)]
pub(crate) struct Peer {
    pub(crate) shared: Option<Arc<Shared>>,
    /// Python waits until at most this many bytes wait.
    pub(crate) room_below: Option<usize>,
    /// The ping of the loop's own that is not answered.
    pub(crate) pinged: Option<Pinged>,
    /// The ping was not answered, so that it was closed.
    pub(crate) timed_out: bool,
    /// The windows that it may keep between messages.
    pub(crate) window: Option<Window>,
}

/// A ping of the loop's own.
#[derive(Clone, Copy)]
pub(crate) struct Pinged {
    pub(crate) payload: [u8; 4],
    pub(crate) at: Instant,
}

impl Peer {
    pub(crate) fn new(shared: Option<Arc<Shared>>, window: Option<Window>) -> Self {
        Self { shared, window, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::{Batch, Inbox, KEEP, KEEP_MOST, Marks, Outbox, Shared};
    use std::sync::Arc;

    #[test]
    fn a_batch_keeps_the_memory_that_batches_of_late_needed() {
        let mut batch = Batch::default();
        let mut fill = |len: usize| {
            let before = batch.bytes.capacity();
            batch.bytes.extend(std::iter::repeat_n(0, len));
            let grew = batch.bytes.capacity() > before;
            batch.clear();
            (grew, batch.bytes.capacity())
        };
        assert!(fill(6 << 20).0);
        for len in [6 << 20, 5 << 20, 100, 6 << 20] {
            assert!(!fill(len).0, "{len}");
        }
        for _ in 0..30 {
            fill(100);
        }
        assert_eq!(fill(100).1, KEEP);
        assert_eq!(fill(KEEP_MOST * 2).1, KEEP_MOST);
    }

    #[test]
    fn reading_pauses_at_the_high_mark_and_resumes_at_the_low_one() {
        let inbox = Arc::new(Inbox::new().unwrap());
        let shared = Shared::new(inbox, Arc::default(), Marks { high: 4, low: 1 });
        let paused: Vec<bool> = (0..6).map(|_| shared.add_waiting()).collect();
        assert_eq!(paused, [false, false, false, true, false, false]);
        let resumed: Vec<bool> = (0..6).map(|_| shared.remove_waiting()).collect();
        assert_eq!(resumed, [false, false, false, false, true, false]);
        let _: &Outbox = &shared.outbox;
    }
}
