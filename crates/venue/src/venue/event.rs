//! Everything that comes out of a venue.

use std::time::Duration;

/// An event for the venue's driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Out {
    /// A message to a client.
    Message {
        /// The connection.
        link: u32,
        /// The message.
        payload: Payload,
        /// Its content, for tests.
        mark: Mark,
    },
    /// The venue ends a connection, and has forgotten it.
    Close {
        /// The connection.
        link: u32,
        /// The reason.
        end: End,
    },
}

/// A message's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// JSON.
    Text(String),
    /// Simple Binary Encoding.
    Binary(Vec<u8>),
}

/// The reason for which a venue ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It has reached [`Setup::life`](crate::Setup::life).
    Aged,
    /// By a planted fault.
    Lost,
    /// Its client has exceeded a limit.
    Banned(&'static str),
}

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A book or its changes.
    Depth {
        /// The place of its symbol in [`Setup::symbols`](crate::Setup::symbols).
        symbol: usize,
        /// The last update that it contains.
        last: u64,
        /// Whether it is the whole book.
        is_snapshot: bool,
    },
    /// A trade.
    Trade,
    /// Confirmations, heartbeats, errors.
    Other,
}

/// A fault that a venue has made, and that its client has to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A change of a book was lost.
    Dropped,
    /// A change of a book has changed its place with the next message.
    Swapped,
    /// A checksum was wrong.
    Checksum,
    /// A subscription was lost.
    Forgotten,
}

/// A planted fault.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    /// Its kind.
    pub fault: Fault,
    /// The connection.
    pub link: u32,
    /// The place of the symbol in [`Setup::symbols`](crate::Setup::symbols).
    pub symbol: usize,
    /// Whether the book is concerned.
    pub is_book: bool,
    /// The venue's time.
    pub at: Duration,
    /// The last update that the venue had made then.
    pub last: u64,
}

/// The response to a plain HTTP request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status of HTTP.
    pub status: u16,
    /// JSON.
    pub body: String,
    /// The last update of the snapshot, if it is one.
    pub last: Option<u64>,
}

/// A trade that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traded {
    /// Its number, unique for its symbol.
    pub number: u64,
    /// Its price in hundredths.
    pub price: i64,
    /// Its quantity in ten-thousandths.
    pub quantity: i64,
    /// Whether the one who took the price has bought.
    pub is_buy: bool,
}
