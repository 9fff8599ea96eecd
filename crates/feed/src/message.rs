//! Messages of venues, decoded.

use crate::number::Fixed;

/// A side of a book.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Buyers.
    Bid,
    /// Sellers.
    Ask,
}

/// The kind of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// Every trade.
    Trades,
    /// The book by price levels (L2): a snapshot, then changes.
    Book,
}

/// A trade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trade<'a> {
    /// The venue's name of the symbol.
    pub symbol: &'a str,
    /// The venue's number of the trade.
    pub number: u64,
    /// Its price.
    pub price: Fixed,
    /// Its quantity.
    pub quantity: Fixed,
    /// The side of the one who took the price.
    pub taker: Side,
    /// The venue's time, in nanoseconds since 1970; 0 if it names none.
    pub time: u64,
}

/// The quantity that a price level has now. No quantity removes the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Its side.
    pub side: Side,
    /// Its price.
    pub price: Fixed,
    /// Its quantity.
    pub quantity: Fixed,
}

/// A snapshot of a book, or changes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth<'a> {
    /// The venue's name of the symbol.
    pub symbol: &'a str,
    /// Whether it replaces the book.
    pub is_snapshot: bool,
    /// The first number of the updates that it contains; 0 if the venue does not number them.
    pub first: u64,
    /// The last number of them.
    pub last: u64,
    /// The checksum of the book behind it.
    pub checksum: Option<u32>,
    /// The venue's time, in nanoseconds since 1970; 0 if it names none.
    pub time: u64,
    /// Levels, in the venue's order.
    pub levels: &'a [Level],
}

/// A part of a venue's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message<'a> {
    /// The message's number on its connection. It comes before the message's other parts.
    Number(u64),
    /// A trade.
    Trade(Trade<'a>),
    /// A snapshot or changes of a book.
    Depth(Depth<'a>),
    /// The venue has confirmed a request, with all of its streams.
    ConfirmedRequest(u64),
    /// The venue has confirmed one stream.
    ConfirmedStream {
        /// Its channel.
        channel: Channel,
        /// The venue's name of its symbol.
        symbol: &'a str,
    },
    /// The venue has rejected a request, or the part of it that concerns one symbol.
    Rejected {
        /// The request's number, if the venue names it.
        request: Option<u64>,
        /// The venue's name of the symbol, if it names one.
        symbol: Option<&'a str>,
        /// The venue's reason.
        reason: &'a str,
    },
    /// The venue wants to hear this text.
    Ping {
        /// The text to send.
        answer: &'a str,
    },
    /// The venue will end the connection soon.
    Ending,
    /// The message only shows that the connection lives, or is of no interest.
    Alive,
}

impl Message<'_> {
    /// Whether no number can follow that of the message.
    pub(crate) fn is_at_end(&self) -> bool {
        match self {
            Self::Number(number) => *number == u64::MAX,
            Self::Trade(trade) => trade.number == u64::MAX,
            Self::Depth(depth) => depth.first.max(depth.last) == u64::MAX,
            _ => false,
        }
    }
}
