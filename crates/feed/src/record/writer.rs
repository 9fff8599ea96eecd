use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};

use super::block::PREAMBLE;
use super::chunk::Chunk;
use super::sealer::Sealer;
use super::status::Shared;

/// A place for a recording: a file, or something else that grows at its end.
pub trait Storage: Send {
    /// Writes all bytes at the end.
    ///
    /// # Errors
    /// If some could not be written. Others may have been.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Cuts what is longer than a number of bytes, so that the next bytes are written there.
    ///
    /// # Errors
    /// If that is not possible. Then the next bytes come behind what a failed write has left, which a reader passes.
    fn cut(&mut self, len: u64) -> io::Result<()>;

    /// Waits until everything is on the disk.
    ///
    /// # Errors
    /// If it is not.
    fn sync(&mut self) -> io::Result<()>;
}

impl Storage for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)?;
        io::Seek::seek(self, io::SeekFrom::Start(len)).map(drop)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// The part of a recorder that has a thread of its own.
pub(super) struct Writer {
    storage: Box<dyn Storage>,
    sealer: Sealer,
    shared: Arc<Shared>,
    /// Bytes of the storage up to the end of the last whole block.
    len: u64,
    /// Lost events that the recording does not tell of yet.
    untold: u64,
    out: Vec<u8>,
}

impl Writer {
    /// Writes the first bytes of a recording.
    pub(super) fn begin(mut storage: Box<dyn Storage>, sealer: Sealer, shared: Arc<Shared>) -> io::Result<Self> {
        storage.append(&PREAMBLE)?;
        let len = PREAMBLE.len() as u64;
        shared.wrote(0, len);
        Ok(Self { storage, sealer, shared, len, untold: 0, out: Vec::new() })
    }

    /// Writes chunks until no more can come, and gives them back empty. `most` is the memory that an empty one keeps.
    pub(super) fn run(mut self, full: &Receiver<Chunk>, empty: &Sender<Chunk>, most: usize) {
        while let Ok(mut chunk) = full.recv() {
            self.write(&chunk);
            chunk.clear(most);
            // The recorder may be gone already.
            let _ = empty.try_send(chunk);
        }
        if let Err(error) = self.storage.sync() {
            self.shared.failed(&error);
        }
    }

    fn write(&mut self, chunk: &Chunk) {
        let events = u64::from(chunk.events());
        match self.append(chunk) {
            Ok(bytes) => {
                self.len += bytes;
                self.untold = 0;
                self.shared.wrote(events, bytes);
            }
            Err(error) => {
                self.untold += events;
                self.shared.lost(events);
                self.shared.failed(&error);
                // A part of the block may be there. If it cannot be cut off, a reader reports it as damaged and goes on.
                if let Err(error) = self.storage.cut(self.len) {
                    self.shared.failed(&error);
                }
            }
        }
    }

    /// Writes a block, behind one that tells of lost events.
    fn append(&mut self, chunk: &Chunk) -> io::Result<u64> {
        self.out.clear();
        if self.untold > 0 {
            let mut gap = Chunk::default();
            gap.push_lost(chunk.first(), self.untold);
            self.sealer.seal(&gap, &mut self.out)?;
        }
        self.sealer.seal(chunk, &mut self.out)?;
        self.storage.append(&self.out)?;
        Ok(self.out.len() as u64)
    }
}
