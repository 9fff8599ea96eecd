//! The old process's record of the connections that it has sent ahead, while it goes on with them.
//!
//! Most of a move is done before the loops stop: the new process gets sockets and first states, and later states of connections
//! that have changed. A loop does that in slices between its turns. So only the changes since the last round are left for the
//! pause.

use super::channel::{Channel, misbehaves};
use super::kind::Kind;
use crate::erased::ThreadLoop;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use tautline_buf::fields::{put, put_len, take, take_len};
use tautline_engine::Movers;
use zeroize::Zeroizing;

/// Slots that a slice looks at. Saving a connection takes some microseconds.
const SLICE: usize = 256;
/// Most sockets of a slice, or one more: the new process works on a frame while the loop here serves.
const SOCKETS: usize = 64;
/// Bytes after which a frame is sent.
const ENOUGH: usize = 32 << 10;
/// Longest connection that is sent ahead. The frame then fits into the socket, so the loop does not wait for the new process.
const LONGEST: usize = 64 << 10;

/// The connections that one loop has sent ahead, by their numbers. Two that move together have one number.
#[derive(Default)]
pub(super) struct Ledger {
    sent: Vec<Sent>,
    numbers: HashMap<Movers, u32>,
    hasher: RandomState,
    content: Zeroizing<Vec<u8>>,
}

struct Sent {
    movers: Movers,
    /// Of the state that the new process has: the state itself holds keys.
    digest: u64,
    /// They were there in the end.
    stays: bool,
}

/// The comparison of a connection with the record.
pub(super) enum Entry {
    /// The new process does not have it.
    New,
    /// The new process has it as it is.
    Same,
    /// The new process has an earlier state of the connection with this number.
    Changed(u32),
}

/// The result of a slice.
pub(super) struct Slice {
    /// The slot to go on with.
    pub(super) next: Option<usize>,
    /// States that were sent. The new process answers if there are any.
    pub(super) sent: usize,
}

impl Ledger {
    /// Sends connections from the slot `from` on: all of them in the first round, and then those that have changed.
    pub(super) fn send_slice(
        &mut self,
        channel: &mut Channel,
        shard: &mut dyn ThreadLoop,
        from: usize,
        first: bool,
    ) -> io::Result<Slice> {
        if self.content.capacity() == 0 {
            // It never grows, so that it leaves no copy of a key behind.
            self.content.reserve_exact(ENOUGH + LONGEST + 8);
        }
        self.content.clear();
        let mut sockets: Vec<BorrowedFd<'_>> = Vec::new();
        let (mut seen, mut sent) = (0, 0);
        let next = shard.save_ahead(from, &mut |movers| {
            seen += 1;
            if let Some((movers, of_them, saved)) = movers
                && saved.len() <= LONGEST
            {
                let entry = self.entry(movers, saved);
                match entry {
                    Entry::New if first => {
                        self.add(movers, saved);
                        sockets.extend(of_them);
                        sent += 1;
                    }
                    Entry::Changed(number) => {
                        put_change(number, saved, &mut self.content);
                        sent += 1;
                    }
                    Entry::New | Entry::Same => {}
                }
            }
            let enough = seen == SLICE || sockets.len() >= SOCKETS || self.content.len() >= ENOUGH;
            Ok(if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if sent > 0 {
            let kind = if first { Kind::Ahead } else { Kind::AheadAgain };
            channel.send(kind, &self.content, &sockets)?;
        }
        Ok(Slice { next, sent })
    }

    fn add(&mut self, movers: Movers, saved: &[u8]) {
        put(saved, &mut self.content);
        self.numbers.insert(movers, u32::try_from(self.sent.len()).unwrap_or(u32::MAX));
        self.sent.push(Sent { movers, digest: self.hasher.hash_one(saved), stays: false });
    }

    /// Compares connections with the record, and notes their present state. A connection that has come to move with another, or
    /// no more, is a new one.
    pub(super) fn entry(&mut self, movers: Movers, saved: &[u8]) -> Entry {
        let Some(&number) = self.numbers.get(&movers) else { return Entry::New };
        let Some(sent) = self.sent.get_mut(number as usize) else { return Entry::New };
        sent.stays = true;
        let digest = self.hasher.hash_one(saved);
        if std::mem::replace(&mut sent.digest, digest) == digest { Entry::Same } else { Entry::Changed(number) }
    }

    /// The number of connections that were sent.
    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }

    /// Begins the last round, in which nothing moves.
    pub(super) fn begin_last_round(&mut self) {
        self.sent.iter_mut().for_each(|sent| sent.stays = false);
    }

    /// The connections by their numbers, after the last round: `None` for those that are gone, or cannot move any more.
    pub(super) fn into_movers(self) -> Vec<Option<Movers>> {
        self.sent.into_iter().map(|sent| sent.stays.then_some(sent.movers)).collect()
    }
}

/// Later states on their way, many in a frame.
pub(super) struct Changes {
    content: Zeroizing<Vec<u8>>,
}

impl Changes {
    pub(super) fn new() -> Self {
        Self { content: Zeroizing::new(Vec::with_capacity(ENOUGH)) }
    }

    /// Adds the last state of a connection, and sends the frame if it is full.
    pub(super) fn add(&mut self, channel: &mut Channel, number: u32, saved: &[u8]) -> io::Result<()> {
        if self.content.len() + saved.len() + 8 > ENOUGH {
            self.send(channel)?;
        }
        if saved.len() + 8 > ENOUGH {
            // A large one goes alone. The buffer never grows, so that it leaves no copy of a key behind.
            let mut alone = Zeroizing::new(Vec::with_capacity(saved.len() + 8));
            put_change(number, saved, &mut alone);
            return channel.send(Kind::Changed, &alone, &[]);
        }
        put_change(number, saved, &mut self.content);
        Ok(())
    }

    /// Sends all that wait.
    pub(super) fn send(&mut self, channel: &mut Channel) -> io::Result<()> {
        if !self.content.is_empty() {
            channel.send(Kind::Changed, &self.content, &[])?;
            self.content.clear();
        }
        Ok(())
    }
}

fn put_change(number: u32, saved: &[u8], out: &mut Vec<u8>) {
    put_len(number as usize, out);
    put(saved, out);
}

/// The states in a frame, with the numbers of their connections.
pub(super) fn open_changes(content: &[u8], mut each: impl FnMut(usize, &[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut rest = content;
    while !rest.is_empty() {
        let number = take_len(&mut rest).ok_or_else(misbehaves)?;
        each(number, take(&mut rest).ok_or_else(misbehaves)?)?;
    }
    Ok(())
}
