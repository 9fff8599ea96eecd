//! A book by price levels, in fixed point.

use crate::fault::Fault;
use crate::message::{Level, Side};
use crate::number::Fixed;

/// The decimals of a symbol's prices and quantities: a tick is 10<sup>-price</sup>, a lot 10<sup>-quantity</sup>.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Decimals of prices.
    pub price: u8,
    /// Decimals of quantities.
    pub quantity: u8,
}

impl Scale {
    /// This many decimals.
    #[must_use]
    pub const fn new(price: u8, quantity: u8) -> Self {
        Self { price, quantity }
    }

    /// The scale that both this one's numbers and those of `level` fit.
    pub(crate) fn widened(self, level: &Level) -> Self {
        let decimals = |number: Fixed| u8::try_from(-i16::from(number.exponent)).unwrap_or(0);
        Self { price: self.price.max(decimals(level.price)), quantity: self.quantity.max(decimals(level.quantity)) }
    }
}

/// A price and the quantity at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quote {
    /// The price, in ticks of the [`Scale`].
    pub price: i64,
    /// The quantity, in lots of the [`Scale`].
    pub quantity: i64,
}

/// A book of one symbol. The best bid and the best offer are the ends of two arrays.
///
/// ```
/// use tautline_feed::{Book, Quote, Scale, Side};
///
/// let mut book = Book::new(Scale::new(2, 0), 1000);
/// book.set(Side::Bid, 99_50, 7)?;
/// book.set(Side::Bid, 99_40, 1)?;
/// book.set(Side::Ask, 100_00, 3)?;
/// book.settle()?;
/// assert_eq!(book.best(Side::Bid), Some(Quote { price: 99_50, quantity: 7 }));
/// assert_eq!(book.levels(Side::Bid).count(), 2);
/// # Ok::<(), tautline_feed::Fault>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Book {
    bids: Ladder,
    asks: Ladder,
    scale: Scale,
    /// Most levels of a side.
    depth: usize,
}

impl Book {
    /// An empty book that keeps the `depth` best levels of each side, at least one.
    #[must_use]
    pub const fn new(scale: Scale, depth: usize) -> Self {
        let depth = if depth == 0 { 1 } else { depth };
        Self { bids: Ladder::new(1), asks: Ladder::new(-1), scale, depth }
    }

    /// The decimals of its prices and quantities.
    #[must_use]
    pub const fn scale(&self) -> Scale {
        self.scale
    }

    /// The best level of a side.
    #[must_use]
    #[inline]
    pub fn best(&self, side: Side) -> Option<Quote> {
        let ladder = self.side(side);
        ladder.levels.last().map(|quote| ladder.plain(*quote))
    }

    /// The levels of a side, the best first.
    #[must_use]
    pub fn levels(&self, side: Side) -> impl DoubleEndedIterator<Item = Quote> + ExactSizeIterator + '_ {
        let ladder = self.side(side);
        ladder.levels.iter().rev().map(|quote| ladder.plain(*quote))
    }

    /// Sets the quantity of a level; 0 removes it. [`settle`](Self::settle) follows after the last change of a message.
    ///
    /// # Errors
    /// [`Fault::Negative`]. The level is unchanged.
    pub fn set(&mut self, side: Side, price: i64, quantity: i64) -> Result<(), Fault> {
        if price < 0 || quantity < 0 {
            return Err(Fault::Negative { price, quantity });
        }
        let ladder = match side {
            Side::Bid => &mut self.bids,
            Side::Ask => &mut self.asks,
        };
        ladder.set(price, quantity);
        // While a message is applied, a side may have twice the levels: those behind the depth are cut off afterwards.
        if ladder.levels.len() > self.depth.saturating_mul(2) {
            ladder.cut(self.depth);
        }
        Ok(())
    }

    /// Cuts both sides to the depth, and checks that they do not cross.
    ///
    /// # Errors
    /// [`Fault::Crossed`].
    pub fn settle(&mut self) -> Result<(), Fault> {
        self.bids.cut(self.depth);
        self.asks.cut(self.depth);
        match (self.best(Side::Bid), self.best(Side::Ask)) {
            (Some(bid), Some(ask)) if bid.price >= ask.price => Err(Fault::Crossed { bid: bid.price, ask: ask.price }),
            _ => Ok(()),
        }
    }

    /// Applies the levels of a message.
    ///
    /// # Errors
    /// The first level's fault. The book is then between two states, and has to be [cleared](Self::clear).
    pub fn apply(&mut self, levels: &[Level]) -> Result<(), Fault> {
        for level in levels {
            let price = level.price.at(self.scale.price).ok_or(Fault::Inexact)?;
            let quantity = level.quantity.at(self.scale.quantity).ok_or(Fault::Inexact)?;
            self.set(level.side, price, quantity)?;
        }
        self.settle()
    }

    /// Removes all levels. Their memory stays.
    pub fn clear(&mut self) {
        self.bids.levels.clear();
        self.asks.levels.clear();
    }

    /// Clears the book, and gives it another scale.
    pub(crate) fn rescale(&mut self, scale: Scale) {
        self.clear();
        self.scale = scale;
    }

    const fn side(&self, side: Side) -> &Ladder {
        match side {
            Side::Bid => &self.bids,
            Side::Ask => &self.asks,
        }
    }
}

/// One side. The best level is the last, where most changes happen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ladder {
    /// Prices times `sign`, ascending.
    levels: Vec<Quote>,
    sign: i64,
}

/// Levels from the best that are compared one by one before the others are halved.
const NEAR: usize = 8;

impl Ladder {
    const fn new(sign: i64) -> Self {
        Self { levels: Vec::new(), sign }
    }

    const fn plain(&self, quote: Quote) -> Quote {
        Quote { price: quote.price * self.sign, quantity: quote.quantity }
    }

    /// The number of levels whose key is below `key`.
    fn below(&self, key: i64) -> usize {
        let far = self.levels.len().saturating_sub(NEAR);
        let (rest, near) = self.levels.split_at(far);
        for (at, quote) in near.iter().enumerate().rev() {
            if quote.price < key {
                return far + at + 1;
            }
        }
        rest.partition_point(|quote| quote.price < key)
    }

    fn set(&mut self, price: i64, quantity: i64) {
        let key = price * self.sign;
        let at = self.below(key);
        match self.levels.get_mut(at) {
            Some(quote) if quote.price == key => {
                if quantity == 0 {
                    self.levels.remove(at);
                } else {
                    quote.quantity = quantity;
                }
            }
            // A level that is not there may be removed: the venue removes it behind our depth.
            _ if quantity == 0 => {}
            _ => self.levels.insert(at, Quote { price: key, quantity }),
        }
    }

    fn cut(&mut self, depth: usize) {
        let excess = self.levels.len().saturating_sub(depth);
        if excess > 0 {
            self.levels.drain(..excess);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Book, Quote, Scale};
    use crate::fault::Fault;
    use crate::message::{Level, Side};
    use crate::number::Fixed;
    use std::collections::BTreeMap;

    #[test]
    fn agrees_with_two_sorted_maps() {
        let depth = 40;
        let mut random = 7_u64;
        let mut below = |n: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % n
        };
        let mut book = Book::new(Scale::new(0, 0), depth);
        let (mut bids, mut asks) = (BTreeMap::new(), BTreeMap::new());
        for _ in 0..20_000 {
            for _ in 0..=below(4) {
                let (bid, quantity) = (below(2) == 0, below(3) as i64);
                let price = if bid { 1000 - below(80) as i64 } else { 1001 + below(80) as i64 };
                let (side, map) = if bid { (Side::Bid, &mut bids) } else { (Side::Ask, &mut asks) };
                book.set(side, price, quantity).unwrap();
                if quantity == 0 {
                    map.remove(&price)
                } else {
                    map.insert(price, quantity)
                };
            }
            book.settle().unwrap();
            while bids.len() > depth {
                bids.pop_first();
            }
            while asks.len() > depth {
                asks.pop_last();
            }
            let quote = |(price, quantity): (&i64, &i64)| Quote { price: *price, quantity: *quantity };
            assert!(book.levels(Side::Bid).eq(bids.iter().rev().map(quote)));
            assert!(book.levels(Side::Ask).eq(asks.iter().map(quote)));
            assert_eq!(book.best(Side::Bid), bids.last_key_value().map(quote));
        }
    }

    #[test]
    fn impossible_books_are_errors() {
        let mut book = Book::new(Scale::new(1, 0), 10);
        assert_eq!(book.set(Side::Bid, 5, -1), Err(Fault::Negative { price: 5, quantity: -1 }));
        assert_eq!(book.set(Side::Bid, -5, 1), Err(Fault::Negative { price: -5, quantity: 1 }));
        let fixed = |mantissa, exponent| Fixed { mantissa, exponent };
        let level = |price| Level { side: Side::Bid, price, quantity: fixed(1, 0) };
        assert_eq!(book.apply(&[level(fixed(125, -2))]), Err(Fault::Inexact));
        assert_eq!(book.apply(&[level(fixed(i64::MAX, 0))]), Err(Fault::Inexact));
        book.set(Side::Ask, 100, 1).unwrap();
        assert_eq!(book.apply(&[level(fixed(100, -1))]), Err(Fault::Crossed { bid: 100, ask: 100 }));
        book.clear();
        assert_eq!(book.settle(), Ok(()));
    }

    #[test]
    fn a_message_cannot_grow_a_side_without_bound() {
        let mut book = Book::new(Scale::new(0, 0), 10);
        for price in 0..100_000 {
            book.set(Side::Bid, price, 1).unwrap();
            assert!(book.levels(Side::Bid).len() <= 20);
        }
        book.settle().unwrap();
        assert!(book.levels(Side::Bid).map(|quote| quote.price).eq((99_990..100_000).rev()));
    }
}
