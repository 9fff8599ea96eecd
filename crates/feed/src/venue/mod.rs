//! Venues: what their documentation says, as data and small functions.

mod binance;
mod coinbase;
mod kraken;
mod time;

pub use binance::Binance;
pub use coinbase::Coinbase;
pub use kraken::Kraken;

use crate::book::{Book, Scale};
use crate::json::JsonError;
use crate::message::{Channel, Level, Message};
use crate::plain_error::plain_error;
use crate::rate::Rate;
use crate::replica::Sequence;
use std::fmt;
use std::time::Duration;

/// A venue: its limits, its requests and its messages. One file implements it.
///
/// Implementations have no state of a connection. All names of symbols are the venue's own, as its messages have them.
pub trait Venue: fmt::Debug + Send {
    /// The facts that the venue documents.
    fn facts(&self) -> &Facts;

    /// Where connections go.
    fn url(&self) -> String;

    /// Texts to send at once when a connection is open.
    fn greetings(&self) -> &[&str] {
        &[]
    }

    /// Writes a request for streams of one channel into `out`, which is empty.
    fn write_request(&self, request: &Request<'_>, out: &mut String);

    /// Decodes a message, and calls `sink` with each of its parts. `levels` is scratch memory.
    ///
    /// # Errors
    /// If a field is missing or wrong. Parts before it may have been reported.
    fn decode(
        &self,
        message: &[u8],
        levels: &mut Vec<Level>,
        sink: &mut dyn FnMut(Message<'_>),
    ) -> Result<(), DecodeError>;

    /// The URL of a snapshot, if the venue has them only there.
    fn snapshot_url(&self, symbol: &str) -> Option<String> {
        let _ = symbol;
        None
    }

    /// Decodes the answer to a request of [`snapshot_url`](Self::snapshot_url), as a [`Message::Depth`].
    ///
    /// # Errors
    /// If a field is missing or wrong.
    fn decode_snapshot(
        &self,
        symbol: &str,
        body: &[u8],
        levels: &mut Vec<Level>,
        sink: &mut dyn FnMut(Message<'_>),
    ) -> Result<(), DecodeError> {
        let _ = (symbol, body, levels, sink);
        Ok(())
    }

    /// The checksum that the venue sends for a book in this state.
    fn checksum(&self) -> Option<fn(&Book) -> u32> {
        None
    }
}

/// Facts that a venue documents.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Facts {
    /// The venue's name.
    pub name: &'static str,
    /// The documents that the facts are from, with their dates.
    pub documents: &'static str,
    /// Most streams of a connection.
    pub streams: usize,
    /// Most streams of a request.
    pub batch: usize,
    /// Messages that a connection may send.
    pub sends: Rate,
    /// Messages that all connections of an address may send together.
    pub sends_of_address: Option<Rate>,
    /// Connections that an address may open.
    pub connects: Rate,
    /// Snapshots that an address may request.
    pub snapshots: Rate,
    /// When the venue ends a connection.
    pub life: Option<Duration>,
    /// The longest time without any message on a connection that lives.
    pub silence: Option<Duration>,
    /// A text to send in intervals.
    pub keep_alive: Option<(Duration, &'static str)>,
    /// How missing changes are noticed.
    pub sequence: Sequence,
    /// Whether numbers of trades that are left out are missing. They are unique otherwise.
    pub contiguous_trades: bool,
    /// Decimals of prices and quantities, if the venue writes all with the same; else they are learned from snapshots.
    pub scale: Option<Scale>,
    /// Levels of each side that the venue keeps up to date.
    pub depth: usize,
}

/// A request for streams.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Request<'a> {
    /// Subscribe, or unsubscribe.
    pub subscribes: bool,
    /// The request's number.
    pub id: u64,
    /// The streams' channel.
    pub channel: Channel,
    /// The venue's names of their symbols.
    pub symbols: &'a [&'a str],
}

impl<'a> Request<'a> {
    /// A request, for tests of a venue.
    #[must_use]
    pub const fn new(subscribes: bool, id: u64, channel: Channel, symbols: &'a [&'a str]) -> Self {
        Self { subscribes, id, channel, symbols }
    }

    /// The elements of a JSON array: what `name` makes of each symbol.
    fn list(&self, name: impl Fn(&str) -> String) -> String {
        let names: Vec<String> = self.symbols.iter().map(|symbol| format!(r#""{}""#, name(symbol))).collect();
        names.join(",")
    }
}

/// A message of a venue cannot be read: it is not as documented.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// It is no JSON, or has a field of another type.
    Json(JsonError),
    /// It lacks a field, or has an unknown value in it.
    Field(&'static str),
    /// It has the number 2^64 - 1, which none can follow.
    LastNumber,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(f, "the venue's message is not as documented: {error}"),
            Self::Field(name) => write!(f, "the venue's message has no proper `{name}`"),
            Self::LastNumber => write!(f, "the venue's message has the number {}, which none can follow", u64::MAX),
        }
    }
}

plain_error!(DecodeError);

impl From<JsonError> for DecodeError {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}
