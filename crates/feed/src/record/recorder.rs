use core::time::Duration;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::chunk::Chunk;
use super::event::Event;
use super::sealer::Sealer;
use super::status::{Shared, Status};
use super::writer::{Storage, Writer};

/// How a [`Recorder`] records.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Recording {
    /// Bytes of events in a block: 256 KiB. A larger event has a block of its own.
    pub block: usize,
    /// Blocks that may wait for the disk: 32. With the largest messages, each of them may hold 16 MiB.
    pub waiting: usize,
    /// The longest time between the events of a block: 200 ms. A crash of the program costs them.
    pub interval: Duration,
    /// The level of zstd: 1, its fastest.
    pub level: i32,
}

impl Default for Recording {
    fn default() -> Self {
        Self { block: 256 << 10, waiting: 32, interval: Duration::from_millis(200), level: 1 }
    }
}

/// Records events to a file, without waiting for the disk.
///
/// One thread has the recorder. It copies an event into the block of the moment, whose memory exists already, and passes whole
/// blocks to a thread that compresses and writes them. If that thread is more than [`Recording::waiting`] blocks behind, events are
/// lost and counted, and so are those of a block that cannot be written. The recording itself tells of them when it goes on.
#[derive(Debug)]
pub struct Recorder {
    chunk: Chunk,
    block: usize,
    interval: u64,
    /// Whole blocks on their way to the thread. It is gone when the recorder ends.
    full: Option<Sender<Chunk>>,
    empty: Receiver<Chunk>,
    shared: Arc<Shared>,
    /// Lost events that the recording does not tell of yet.
    untold: u64,
    thread: Option<JoinHandle<()>>,
}

impl Recorder {
    /// Begins a recording in a new file.
    ///
    /// # Errors
    /// If the file exists already or cannot be written, or no thread can be started.
    pub fn create(path: impl AsRef<Path>, recording: &Recording) -> io::Result<Self> {
        Self::with(Box::new(File::create_new(path)?), recording)
    }

    /// Begins a recording in a storage, which is empty.
    ///
    /// # Errors
    /// If the storage takes no byte, or no thread can be started.
    pub fn with(storage: Box<dyn Storage>, recording: &Recording) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let writer = Writer::begin(storage, Sealer::new(recording.level)?, shared.clone())?;
        let (block, waiting) = (recording.block, recording.waiting.max(1));
        // All chunks fit either queue, so nobody ever waits to send one: those that wait, the recorder's, and the writer's.
        let (full, to_write) = bounded(waiting + 2);
        let (to_fill, empty) = bounded(waiting + 2);
        for _ in 0..=waiting {
            let _ = to_fill.try_send(Chunk::with_capacity(block));
        }
        let thread = thread::Builder::new().name("recorder".to_owned());
        let thread = thread.spawn(move || writer.run(&to_write, &to_fill, block))?;
        Ok(Self {
            chunk: Chunk::with_capacity(block),
            block,
            interval: recording.interval.as_nanos().try_into().unwrap_or(u64::MAX),
            full: Some(full),
            empty,
            shared,
            untold: 0,
            thread: Some(thread),
        })
    }

    /// Records an event. Its bytes are copied.
    pub fn record(&mut self, event: Event<'_>) {
        let is_old = self.chunk.events() > 0 && event.at.saturating_sub(self.chunk.first()) > self.interval;
        if self.chunk.is_full_for(&event, self.block) {
            if !self.pass() {
                return self.lose();
            }
        } else if is_old {
            // Without an empty block, the old one goes on.
            self.pass();
        }
        if self.untold > 0 {
            self.chunk.push_lost(event.at, self.untold);
            self.untold = 0;
        }
        if self.chunk.push(&event).is_err() {
            self.lose();
        }
    }

    /// Passes the events of the moment to be written, if there are any. Without new events, nothing else does: call it from time
    /// to time, or when a feed rests.
    pub fn flush(&mut self) {
        if self.chunk.events() > 0 {
            // If too many blocks wait already, these events wait with them.
            self.pass();
        }
    }

    /// The numbers of written and lost events so far. Events that wait to be written are in neither.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Ends the recording, when all events are written and on the disk.
    ///
    /// # Errors
    /// If the thread that writes has panicked.
    pub fn finish(mut self) -> io::Result<Status> {
        self.end()?;
        Ok(self.shared.status())
    }

    /// Passes the chunk to be written and takes an empty one, if there is one.
    fn pass(&mut self) -> bool {
        let (Ok(empty), Some(full)) = (self.empty.try_recv(), &self.full) else { return false };
        let chunk = core::mem::replace(&mut self.chunk, empty);
        if let Err(refused) = full.try_send(chunk) {
            self.gone(&refused.into_inner());
        }
        true
    }

    fn lose(&mut self) {
        self.untold += 1;
        self.shared.lost(1);
    }

    /// Counts events whose writer has panicked.
    fn gone(&self, chunk: &Chunk) {
        self.shared.lost(chunk.events().into());
        self.shared.failed(&io::ErrorKind::BrokenPipe.into());
    }

    fn end(&mut self) -> io::Result<()> {
        if let Some(full) = self.full.take() {
            let mut chunk = core::mem::take(&mut self.chunk);
            if self.untold > 0 {
                chunk.push_lost(chunk.last(), self.untold);
                self.untold = 0;
            }
            if let Err(refused) = full.try_send(chunk) {
                self.gone(&refused.into_inner());
            }
        }
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(_)) => Err(io::Error::other("the thread that writes the recording has panicked")),
            _ => Ok(()),
        }
    }
}

impl Drop for Recorder {
    /// Writes what is left, like [`finish`](Self::finish).
    fn drop(&mut self) {
        // The status has told of errors, to those who asked.
        let _ = self.end();
    }
}
