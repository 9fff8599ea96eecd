//! The queue of commands from other threads to a shard. `tests/interleavings` runs it under a scheduler.

use crate::threads::sync::{AtomicBool, AtomicUsize, Ordering, Receiver, Sender, channel};
use std::sync::Arc;

/// Most commands that wait for a shard, and most bytes of their messages. Further ones are rejected. A message of any size may
/// wait alone.
#[derive(Clone, Copy)]
pub(crate) struct Capacity {
    pub(crate) commands: usize,
    pub(crate) bytes: usize,
}

pub(crate) const CAPACITY: Capacity = Capacity { commands: 65_536, bytes: 64 << 20 };

/// A thing whose bytes count while it waits.
pub(crate) trait Weigh {
    fn bytes(&self) -> usize;

    /// The part of the bytes that counts with the queue, and nowhere else.
    fn own(&self) -> usize {
        0
    }
}

/// The reason why a command was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// Too many commands wait.
    Full,
    /// Commands with too many bytes wait.
    TooManyBytes,
    /// The shard has stopped.
    Stopped,
}

/// A new queue.
///
/// It is an unbounded channel with counters: a bounded channel would allocate its whole capacity in every shard.
pub(crate) fn command_queue<C: Weigh>(capacity: Capacity) -> (CommandSender<C>, CommandReceiver<C>) {
    let (sender, receiver) = channel();
    let waiting = Arc::new(Waiting::default());
    let receiver = CommandReceiver { receiver, waiting: waiting.clone(), capacity };
    (CommandSender { sender, waiting, capacity }, receiver)
}

/// The end of other threads.
pub(crate) struct CommandSender<C> {
    sender: Sender<C>,
    waiting: Arc<Waiting>,
    capacity: Capacity,
}

/// The shard's end.
pub(crate) struct CommandReceiver<C: Weigh> {
    receiver: Receiver<C>,
    waiting: Arc<Waiting>,
    capacity: Capacity,
}

/// The numbers of commands that wait.
struct Waiting {
    commands: AtomicUsize,
    /// Bytes of their messages.
    bytes: AtomicUsize,
    /// The part of them that counts here.
    own: AtomicUsize,
    /// Whether a wake is under way, so that further commands need none.
    waking: AtomicBool,
    stopped: AtomicBool,
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            commands: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            own: AtomicUsize::new(0),
            waking: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }
}

impl Waiting {
    fn remove(&self, bytes: usize) {
        self.commands.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Published messages have nothing of their own here, and cost no further write.
    fn add_own(&self, own: usize) {
        if own > 0 {
            self.own.fetch_add(own, Ordering::Relaxed);
        }
    }

    fn remove_own(&self, own: usize) {
        if own > 0 {
            self.own.fetch_sub(own, Ordering::Relaxed);
        }
    }
}

impl<C: Weigh> CommandSender<C> {
    /// Sends a command. Returns whether the shard has to be woken.
    pub(crate) fn send(&self, command: C) -> Result<bool, Rejected> {
        let bytes = command.bytes();
        let commands = self.waiting.commands.fetch_add(1, Ordering::Relaxed);
        let before = self.waiting.bytes.fetch_add(bytes, Ordering::Relaxed);
        let rejected = if commands >= self.capacity.commands {
            Rejected::Full
        } else if before > 0 && before.saturating_add(bytes) > self.capacity.bytes {
            Rejected::TooManyBytes
        } else {
            return self.give(command);
        };
        self.waiting.remove(bytes);
        Err(rejected)
    }

    /// Sends a command, also if too many wait. Returns whether the shard has to be woken.
    pub(crate) fn force(&self, command: C) -> Result<bool, Rejected> {
        self.waiting.commands.fetch_add(1, Ordering::Relaxed);
        self.waiting.bytes.fetch_add(command.bytes(), Ordering::Relaxed);
        self.give(command)
    }

    /// Sends a command that `waiting` counts already.
    fn give(&self, command: C) -> Result<bool, Rejected> {
        let (bytes, own) = (command.bytes(), command.own());
        self.waiting.add_own(own);
        if self.sender.send(command).is_err() {
            self.waiting.remove(bytes);
            self.waiting.remove_own(own);
            return Err(Rejected::Stopped);
        }
        Ok(!self.waiting.waking.swap(true, Ordering::AcqRel))
    }

    /// The number of commands that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.commands.load(Ordering::Relaxed)
    }

    /// The memory of commands that wait, in bytes.
    pub(crate) fn memory(&self) -> usize {
        // The channel keeps a word of state beside each.
        let places = self.waiting() * (size_of::<C>() + size_of::<usize>());
        places + self.waiting.own.load(Ordering::Relaxed)
    }

    /// Whether the shard takes commands.
    pub(crate) fn is_open(&self) -> bool {
        !self.waiting.stopped.load(Ordering::Acquire)
    }
}

impl<C: Weigh> CommandReceiver<C> {
    /// The shard is awake and will look at all commands: later ones need a wake again.
    pub(crate) fn woken(&self) {
        self.waiting.waking.swap(false, Ordering::AcqRel);
    }

    pub(crate) fn next(&self) -> Option<C> {
        let command = self.receiver.try_recv().ok()?;
        self.waiting.remove(command.bytes());
        self.waiting.remove_own(command.own());
        Some(command)
    }
}

/// Empties the queue, so that later senders get [`Rejected::Stopped`] and not [`Rejected::Full`].
impl<C: Weigh> Drop for CommandReceiver<C> {
    fn drop(&mut self) {
        self.waiting.stopped.store(true, Ordering::Release);
        // Bounded, since other threads may keep sending meanwhile.
        for _ in 0..self.capacity.commands {
            if self.next().is_none() {
                return;
            }
        }
    }
}
