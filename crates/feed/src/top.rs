//! The best levels of a book, for other threads.

use crate::book::{Book, Quote};
use crate::message::Side;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};

/// The levels of each side that a [`Top`] has at most.
pub const TOP_LEVELS: usize = 10;

/// A copy of the best levels of a book, with its number and its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Top {
    /// The bids, the best first; a quantity of 0 is no level.
    pub bids: [Quote; TOP_LEVELS],
    /// The offers, the best first.
    pub asks: [Quote; TOP_LEVELS],
    /// Whether the book is that of the venue. If not, it is being rebuilt, and the levels are the last ones known.
    pub is_live: bool,
    /// The number of copies that were published before.
    pub version: u64,
}

/// Publishes the best levels of a book. The one writer never waits, and readers take no lock.
///
/// A sequence number around plain atomics (a seqlock): a reader that meets a write reads again.
///
/// ```
/// use tautline_feed::{Book, Scale, Side, TopWriter};
///
/// let (mut writer, reader) = TopWriter::new();
/// let mut book = Book::new(Scale::new(2, 2), 100);
/// book.set(Side::Bid, 99_00, 5_00)?;
/// writer.publish(&book);
/// std::thread::spawn(move || assert_eq!(reader.read().bids[0].price, 99_00)).join().unwrap();
/// # Ok::<(), tautline_feed::Fault>(())
/// ```
#[derive(Debug)]
pub struct TopWriter {
    shared: Arc<Shared>,
    version: u64,
}

/// Reads what a [`TopWriter`] has published. Clones read the same.
#[derive(Clone, Debug)]
pub struct TopReader {
    shared: Arc<Shared>,
}

/// Price and quantity of each level of both sides.
const NUMBERS: usize = TOP_LEVELS * 4;

/// Aligned so that no other data share its cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Shared {
    /// Odd while the writer writes.
    sequence: AtomicU64,
    is_live: AtomicU64,
    numbers: [AtomicI64; NUMBERS],
}

impl TopWriter {
    /// A writer that has published no levels, and its reader.
    #[must_use]
    pub fn new() -> (Self, TopReader) {
        let numbers = [const { AtomicI64::new(0) }; NUMBERS];
        let shared = Arc::new(Shared { sequence: AtomicU64::new(0), is_live: AtomicU64::new(0), numbers });
        (Self { shared: shared.clone(), version: 0 }, TopReader { shared })
    }

    /// Publishes the best levels of a book that is up to date.
    pub fn publish(&mut self, book: &Book) {
        self.write(|shared| {
            for (side, numbers) in [Side::Bid, Side::Ask].into_iter().zip(shared.numbers.chunks(TOP_LEVELS * 2)) {
                let mut levels = book.levels(side);
                for pair in numbers.chunks(2) {
                    let quote = levels.next().unwrap_or_default();
                    pair[0].store(quote.price, Ordering::Relaxed);
                    pair[1].store(quote.quantity, Ordering::Relaxed);
                }
            }
            shared.is_live.store(1, Ordering::Relaxed);
        });
    }

    /// Publishes that the book is being rebuilt.
    pub fn publish_rebuilding(&mut self) {
        self.write(|shared| shared.is_live.store(0, Ordering::Relaxed));
    }

    fn write(&mut self, write: impl FnOnce(&Shared)) {
        self.version += 1;
        self.shared.sequence.store(self.version * 2 - 1, Ordering::Relaxed);
        // No reader sees a number of this version and the sequence of the one before.
        fence(Ordering::Release);
        write(&self.shared);
        self.shared.sequence.store(self.version * 2, Ordering::Release);
    }
}

impl TopReader {
    /// The levels that were published last.
    #[must_use]
    pub fn read(&self) -> Top {
        loop {
            let before = self.shared.sequence.load(Ordering::Acquire);
            let mut top = Top { version: before / 2, ..Top::default() };
            let mut numbers = self.shared.numbers.iter().map(|number| number.load(Ordering::Relaxed));
            for quote in top.bids.iter_mut().chain(&mut top.asks) {
                quote.price = numbers.next().unwrap_or_default();
                quote.quantity = numbers.next().unwrap_or_default();
            }
            top.is_live = self.shared.is_live.load(Ordering::Relaxed) != 0;
            // All numbers were read before the sequence is read again.
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.shared.sequence.load(Ordering::Relaxed) == before {
                return top;
            }
            core::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{TOP_LEVELS, TopWriter};
    use crate::book::{Book, Quote, Scale};
    use crate::message::Side;

    #[test]
    fn a_reader_never_sees_parts_of_two_versions() {
        let (mut writer, reader) = TopWriter::new();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let reader = reader.clone();
                std::thread::spawn(move || {
                    let (mut last, mut seen) = (0, 0_u64);
                    while last < 50_000 {
                        let top = reader.read();
                        assert!(top.version >= last);
                        seen += u64::from(top.version != last);
                        last = top.version;
                        let quantity = i64::try_from(top.version).unwrap();
                        let rest = top.bids.iter().chain(&top.asks);
                        assert!(rest.clone().all(|quote| quote.quantity == quantity), "{top:?}");
                        assert_eq!(top.is_live, top.version != 0);
                    }
                    seen
                })
            })
            .collect();
        let mut book = Book::new(Scale::new(0, 0), 100);
        for version in 1..=50_000 {
            for level in 0..TOP_LEVELS as i64 {
                book.set(Side::Bid, 100 - level, version).unwrap();
                book.set(Side::Ask, 101 + level, version).unwrap();
            }
            writer.publish(&book);
        }
        assert!(readers.into_iter().all(|reader| reader.join().unwrap() > 0));
    }

    #[test]
    fn a_book_that_is_rebuilt_keeps_its_last_levels() {
        let (mut writer, reader) = TopWriter::new();
        assert!(!reader.read().is_live);
        let mut book = Book::new(Scale::new(0, 0), 100);
        book.set(Side::Ask, 7, 3).unwrap();
        writer.publish(&book);
        writer.publish_rebuilding();
        let top = reader.read();
        assert_eq!((top.is_live, top.version, top.asks[0]), (false, 2, Quote { price: 7, quantity: 3 }));
        assert_eq!(top.asks[1].quantity, 0);
    }
}
