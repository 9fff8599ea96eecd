//! Reasons why a book cannot be trusted.

use std::fmt;

/// A reason why a book is rebuilt.
///
/// All but [`Lost`](Self::Lost), [`Overflow`](Self::Overflow) and [`Inexact`](Self::Inexact) are the venue's, or the network's between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The connection has ended, or is silent.
    Lost,
    /// Updates are missing.
    Gap {
        /// The number that had to follow.
        expected: u64,
        /// The number that came.
        got: u64,
    },
    /// Updates were old for long: the venue has begun its numbers anew, or has sent one far ahead.
    Backwards {
        /// The number that had to follow.
        expected: u64,
        /// The number that came last.
        got: u64,
    },
    /// The venue's checksum is not that of the book.
    Checksum {
        /// The venue's.
        venue: u32,
        /// That of the book.
        ours: u32,
    },
    /// The best bid is not below the best offer.
    Crossed {
        /// The best bid, in ticks.
        bid: i64,
        /// The best offer, in ticks.
        ask: i64,
    },
    /// A price or a quantity is below zero.
    Negative {
        /// The price, in ticks.
        price: i64,
        /// The quantity, in lots.
        quantity: i64,
    },
    /// A number has more decimals than the symbol's scale, or more digits than 64 bits hold. Declare another scale.
    Inexact,
    /// More updates wait for a snapshot than are kept.
    Overflow,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost => f.write_str("its connection was lost"),
            Self::Gap { expected, got } => write!(f, "update {expected} had to follow, and {got} came"),
            Self::Backwards { expected, got } => {
                write!(f, "the venue's numbers went backwards: update {expected} had to follow, and {got} came")
            }
            Self::Checksum { venue, ours } => write!(f, "the venue's checksum is {venue}, that of the book {ours}"),
            Self::Crossed { bid, ask } => write!(f, "the best bid of {bid} ticks is not below the offer of {ask}"),
            Self::Negative { price, quantity } => write!(f, "a level has {quantity} lots at {price} ticks"),
            Self::Inexact => f.write_str("a number does not fit the symbol's scale: declare another one"),
            Self::Overflow => f.write_str("too many updates came before a snapshot"),
        }
    }
}
