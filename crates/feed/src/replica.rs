//! A copy of a venue's book: joins snapshots with changes, and notices if changes are missing.

use crate::Time;
use crate::book::Book;
use crate::fault::Fault;
use crate::message::{Depth, Level};
use std::collections::VecDeque;

/// Most levels of changes that wait for a snapshot or for missing changes.
const MOST_LEVELS: usize = 200_000;
/// Old changes in a row after which the venue has begun its numbers anew. A connection that is late brings fewer.
const MOST_OLD: u32 = 128;
/// Snapshots in a row that are older than the changes, after which the changes are not believed.
const MOST_TOO_OLD: u32 = 4;

/// How a venue lets its clients notice that changes are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sequence {
    /// Changes name the numbers of their updates, which go on for the symbol on all connections. A snapshot names the last one.
    Updates,
    /// Each connection numbers its messages. Its subscription begins with a snapshot.
    Messages,
    /// Nothing is numbered, but each change has a checksum of the book. Its subscription begins with a snapshot.
    Checksums,
}

/// The result of a snapshot or a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The book has changed, and is up to date.
    Applied,
    /// It has all of that already, or it waits for a snapshot and has no use for changes.
    Ignored,
    /// It is kept until what is missing has come.
    Held,
    /// The snapshot ends before the changes that are kept begin: a later one is needed. After a few such snapshots in a row, the
    /// changes are dropped, and numbers begin anew.
    TooOld,
    /// The book cannot be trusted: it waits for a snapshot now.
    Broken(Fault),
}

/// The state of a [`Replica`].
///
/// ```text
///            snapshot                 number missing
///   Empty ─────────────► Live ◄─────────────────────► Behind
///     ▲                   │      came, or snapshot       │
///     └───────────────────┴──────── fault ───────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A snapshot is needed.
    Empty,
    /// The book is that of the venue.
    Live,
    /// The book is that of update `last`, and later ones are missing since then. Only with [`Sequence::Updates`].
    Behind { since: Time },
}

/// A copy of a book.
#[derive(Debug)]
pub(crate) struct Replica {
    book: Book,
    sequence: Sequence,
    /// Whether the scale grows with the numbers that come.
    learns: bool,
    checksum: Option<fn(&Book) -> u32>,
    state: State,
    /// The last update in the book, with [`Sequence::Updates`].
    last: u64,
    /// Changes that wait, by their first number.
    held: VecDeque<Held>,
    held_levels: usize,
    /// Old changes in a row.
    old: u32,
    /// Snapshots that were too old, in a row.
    too_old: u32,
}

#[derive(Debug)]
struct Held {
    first: u64,
    last: u64,
    levels: Box<[Level]>,
}

impl Replica {
    pub(crate) fn new(book: Book, sequence: Sequence, learns: bool, checksum: Option<fn(&Book) -> u32>) -> Self {
        let held = VecDeque::new();
        Self {
            book,
            sequence,
            learns,
            checksum,
            state: State::Empty,
            last: 0,
            held,
            held_levels: 0,
            old: 0,
            too_old: 0,
        }
    }

    /// The book, if it is up to date.
    pub(crate) fn book(&self) -> Option<&Book> {
        (self.state == State::Live).then_some(&self.book)
    }

    pub(crate) fn is_live(&self) -> bool {
        self.state == State::Live
    }

    /// Whether only a snapshot helps.
    pub(crate) fn is_empty(&self) -> bool {
        self.state == State::Empty
    }

    /// Since when updates are missing.
    pub(crate) const fn behind_since(&self) -> Option<Time> {
        match self.state {
            State::Behind { since } => Some(since),
            _ => None,
        }
    }

    /// The update that has to come next, and the one that has come instead.
    pub(crate) fn gap(&self) -> Fault {
        let got = self.held.front().map_or(0, |held| held.first);
        if got == 0 { Fault::Lost } else { Fault::Gap { expected: self.last.saturating_add(1), got } }
    }

    /// No connection brings changes any more.
    pub(crate) fn detach(&mut self, now: Time) {
        if self.state == State::Live {
            match self.sequence {
                Sequence::Updates => self.state = State::Behind { since: now },
                Sequence::Messages | Sequence::Checksums => self.reset(),
            }
        }
    }

    /// Gives the book up: a snapshot is needed. Changes that wait are kept.
    pub(crate) fn reset(&mut self) {
        self.book.clear();
        self.state = State::Empty;
    }

    /// Gives the book up, and all numbers so far: the next ones are the first.
    fn restart(&mut self) {
        self.reset();
        self.forget();
        (self.last, self.old, self.too_old) = (0, 0, 0);
    }

    fn forget(&mut self) {
        self.held.clear();
        self.held_levels = 0;
    }

    /// A change is older than the book.
    fn on_old(&mut self, depth: &Depth<'_>, expected: u64) -> Outcome {
        self.old += 1;
        if self.old < MOST_OLD {
            return Outcome::Ignored;
        }
        self.restart();
        self.hold(depth);
        Outcome::Broken(Fault::Backwards { expected, got: depth.last })
    }

    /// A snapshot or a change has come.
    #[inline]
    pub(crate) fn on_depth(&mut self, depth: &Depth<'_>, now: Time) -> Outcome {
        if depth.is_snapshot {
            return self.on_snapshot(depth, now);
        }
        if self.sequence != Sequence::Updates {
            return if self.state == State::Live { self.apply(depth.levels, depth.checksum) } else { Outcome::Ignored };
        }
        let next = self.last.saturating_add(1);
        if self.state != State::Empty && depth.last < next {
            return self.on_old(depth, next);
        }
        self.old = 0;
        match self.state {
            State::Empty => self.hold(depth),
            _ if depth.first > next => {
                if self.state == State::Live {
                    self.state = State::Behind { since: now };
                }
                self.hold(depth)
            }
            State::Live => {
                self.last = depth.last;
                self.apply(depth.levels, depth.checksum)
            }
            State::Behind { .. } => {
                self.last = depth.last;
                match self.apply(depth.levels, depth.checksum) {
                    Outcome::Applied => self.catch_up(now),
                    broken => broken,
                }
            }
        }
    }

    fn on_snapshot(&mut self, depth: &Depth<'_>, now: Time) -> Outcome {
        if self.sequence == Sequence::Updates {
            if self.state == State::Live && depth.last <= self.last {
                return Outcome::Ignored;
            }
            // The oldest change that the snapshot lacks has to be its successor.
            let too_old = self.state != State::Empty && depth.last < self.last
                || self
                    .held
                    .iter()
                    .find(|held| held.last > depth.last)
                    .is_some_and(|held| held.first > depth.last.saturating_add(1));
            if too_old {
                self.too_old += 1;
                if self.too_old == MOST_TOO_OLD {
                    self.restart();
                }
                return Outcome::TooOld;
            }
        }
        self.learn(depth.levels);
        self.book.clear();
        self.last = depth.last;
        match self.apply(depth.levels, depth.checksum) {
            Outcome::Applied if self.sequence == Sequence::Updates => self.catch_up(now),
            Outcome::Applied => {
                self.state = State::Live;
                Outcome::Applied
            }
            broken => broken,
        }
    }

    /// Gives the book the decimals of a snapshot.
    fn learn(&mut self, levels: &[Level]) {
        if self.learns {
            let scale = levels.iter().fold(self.book.scale(), |scale, level| scale.widened(level));
            if scale != self.book.scale() {
                self.book.rescale(scale);
            }
        }
    }

    /// Applies the changes that waited and follow now.
    fn catch_up(&mut self, now: Time) -> Outcome {
        while let Some(held) = self.held.pop_front() {
            if held.first > self.last.saturating_add(1) {
                // It is no later than the gap before: its time goes on.
                if !matches!(self.state, State::Behind { .. }) {
                    self.state = State::Behind { since: now };
                }
                self.held.push_front(held);
                return Outcome::Held;
            }
            self.held_levels -= held.levels.len();
            if held.last > self.last {
                self.last = held.last;
                if let Outcome::Broken(fault) = self.apply(&held.levels, None) {
                    return Outcome::Broken(fault);
                }
            }
        }
        self.state = State::Live;
        self.too_old = 0;
        Outcome::Applied
    }

    fn apply(&mut self, levels: &[Level], checksum: Option<u32>) -> Outcome {
        let mut result = self.book.apply(levels);
        if let (Ok(()), Some(venue), Some(checksum)) = (result, checksum, self.checksum) {
            let ours = checksum(&self.book);
            if ours != venue {
                result = Err(Fault::Checksum { venue, ours });
            }
        }
        match result {
            Ok(()) => Outcome::Applied,
            Err(fault) => {
                if fault == Fault::Inexact {
                    self.learn(levels);
                }
                self.reset();
                Outcome::Broken(fault)
            }
        }
    }

    /// Keeps a change until those before it have come.
    fn hold(&mut self, depth: &Depth<'_>) -> Outcome {
        let at = self.held.iter().rposition(|held| held.first <= depth.first).map_or(0, |at| at + 1);
        if at > 0 && self.held[at - 1].last >= depth.last {
            return Outcome::Ignored;
        }
        self.held_levels += depth.levels.len();
        self.held.insert(at, Held { first: depth.first, last: depth.last, levels: depth.levels.into() });
        if self.held_levels + self.held.len() > MOST_LEVELS {
            self.forget();
            self.reset();
            return Outcome::Broken(Fault::Overflow);
        }
        Outcome::Held
    }
}

#[cfg(test)]
mod tests;
