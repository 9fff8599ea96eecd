//! The book of one symbol, as the venue has it.

use std::collections::{BTreeMap, VecDeque};
use tautline_measure::SplitMix;

/// Price in hundredths and quantity in ten-thousandths.
pub type Quote = (i64, i64);

/// A state of a book: bids and offers, the best first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Bids, from the highest price on.
    pub bids: Vec<Quote>,
    /// Offers, from the lowest price on.
    pub asks: Vec<Quote>,
}

/// The levels that some updates have changed.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// The first update.
    pub first: u64,
    /// The last update.
    pub last: u64,
    /// Bids with their quantities now; 0 if they are gone.
    pub bids: Vec<Quote>,
    /// Offers, likewise.
    pub asks: Vec<Quote>,
}

/// The shape of a book.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Levels of each side that the venue publishes.
    pub(crate) depth: usize,
    /// Levels of each side that change.
    pub(crate) width: u32,
    /// States that are kept.
    pub(crate) kept: usize,
}

/// A book that moves at random.
#[derive(Clone, Debug)]
pub struct Book {
    bids: BTreeMap<i64, i64>,
    asks: BTreeMap<i64, i64>,
    /// Bids are below, offers at or above.
    middle: i64,
    last: u64,
    /// The last states with their updates.
    history: VecDeque<(u64, State)>,
    shape: Shape,
}

/// Depth below which only changes of the best levels are published.
const WHOLE: usize = 100;

impl Book {
    pub(crate) fn new(random: &mut SplitMix, shape: Shape) -> Self {
        let last = random.next() % (1 << 40) + 10;
        let middle = 100_000 + price(random.next() % 10_000_000);
        let (bids, asks, history) = (BTreeMap::new(), BTreeMap::new(), VecDeque::new());
        let mut book = Self { bids, asks, middle, last, history, shape };
        for level in 0..i64::from(shape.width) {
            book.bids.insert(middle - 1 - level, quantity(random));
            book.asks.insert(middle + level, quantity(random));
        }
        book.keep(book.state());
        book
    }

    /// The number of the last update.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// The levels that the venue publishes.
    #[must_use]
    pub fn state(&self) -> State {
        let pairs = |(price, quantity): (&i64, &i64)| (*price, *quantity);
        State {
            bids: self.bids.iter().rev().take(self.shape.depth).map(pairs).collect(),
            asks: self.asks.iter().take(self.shape.depth).map(pairs).collect(),
        }
    }

    /// The state behind an update, if it is kept.
    #[must_use]
    pub fn at(&self, last: u64) -> Option<&State> {
        let place = self.history.binary_search_by_key(&last, |(last, _)| *last).ok()?;
        Some(&self.history[place].1)
    }

    /// An earlier state with its update: the one before `back` others, or the oldest that is kept.
    pub(crate) fn before(&self, back: usize) -> Option<&(u64, State)> {
        self.history.get(self.history.len().saturating_sub(1 + back))
    }

    /// The best price of a side.
    pub(crate) fn best(&self, is_bid: bool) -> i64 {
        let best = if is_bid { self.bids.last_key_value() } else { self.asks.first_key_value() };
        best.map_or(self.middle, |(price, _)| *price)
    }

    /// Some updates.
    pub(crate) fn step(&mut self, random: &mut SplitMix, updates: u64) -> Change {
        let publishes_best = self.shape.depth < WHOLE;
        let before = if publishes_best { self.state() } else { State::default() };
        let mut touched = (Vec::new(), Vec::new());
        for _ in 0..updates {
            let is_gone = random.next().is_multiple_of(3);
            let quantity = if is_gone { 0 } else { quantity(random) };
            let offset = price(random.next() % u64::from(self.shape.width + 3));
            match random.next() % 10 {
                0 if self.middle > 100 => {
                    self.middle -= 1;
                    self.set(true, self.middle, 0, &mut touched);
                    self.set(false, self.middle, quantity, &mut touched);
                }
                1 => {
                    self.set(false, self.middle, 0, &mut touched);
                    self.set(true, self.middle, quantity, &mut touched);
                    self.middle += 1;
                }
                2..=5 => self.set(true, self.middle - 1 - offset, quantity, &mut touched),
                _ => self.set(false, self.middle + offset, quantity, &mut touched),
            }
        }
        let first = self.last + 1;
        self.last += updates;
        if publishes_best {
            // Levels that leave the best ones without being removed are not told.
            let after = self.state();
            let bids = changed(&before.bids, &after.bids, &self.bids);
            let asks = changed(&before.asks, &after.asks, &self.asks);
            self.keep(after);
            return Change { first, last: self.last, bids, asks };
        }
        if self.shape.kept > 0 {
            self.keep(self.state());
        }
        let now = |prices: &[i64], map: &BTreeMap<i64, i64>| {
            prices.iter().map(|price| (*price, map.get(price).copied().unwrap_or(0))).collect()
        };
        Change { first, last: self.last, bids: now(&touched.0, &self.bids), asks: now(&touched.1, &self.asks) }
    }

    fn set(&mut self, is_bid: bool, price: i64, quantity: i64, touched: &mut (Vec<i64>, Vec<i64>)) {
        let (map, prices) = if is_bid { (&mut self.bids, &mut touched.0) } else { (&mut self.asks, &mut touched.1) };
        if quantity == 0 {
            map.remove(&price)
        } else {
            map.insert(price, quantity)
        };
        if !prices.contains(&price) {
            prices.push(price);
        }
    }

    fn keep(&mut self, state: State) {
        self.history.push_back((self.last, state));
        while self.history.len() > self.shape.kept {
            self.history.pop_front();
        }
    }
}

/// A number that is far below the largest price.
fn price(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(0)
}

pub(crate) fn quantity(random: &mut SplitMix) -> i64 {
    1 + price(random.next() % 90_000)
}

fn changed(before: &[Quote], after: &[Quote], map: &BTreeMap<i64, i64>) -> Vec<Quote> {
    let mut changes: Vec<Quote> = after.iter().filter(|quote| !before.contains(quote)).copied().collect();
    changes.extend(before.iter().filter(|(price, _)| !map.contains_key(price)).map(|(price, _)| (*price, 0)));
    changes
}
