//! Events for the application.

use crate::Time;
use crate::book::Book;
use crate::fault::Fault;
use crate::ids::{LinkId, SymbolId};
use crate::message::{Channel, Trade};
use crate::venue::DecodeError;
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::time::Duration;
use tautline::{ConnectError, MessageTimes, SendTimes};

/// The application's part: it gets trades, books and notices, during the calls of a [`Feed`](crate::Feed).
pub trait Listener {
    /// The first copy of a trade.
    fn on_trade(&mut self, symbol: SymbolId, trade: &Trade<'_>, now: Time) {
        let _ = (symbol, trade, now);
    }

    /// A book has changed, and is that of the venue.
    fn on_book(&mut self, symbol: SymbolId, book: &Book, now: Time) {
        let _ = (symbol, book, now);
    }

    /// A message of a connection has been handled: all that it brought was passed. Only a [`Connector`](crate::Connector) calls
    /// it, with the message's times if its client measures stages.
    fn on_handled(&mut self, times: Option<&MessageTimes>) {
        let _ = times;
    }

    /// A message of [`Feed::send_timed`](crate::Feed::send_timed) has left, or its time is not known. Only a [`Connector`](crate::Connector) calls it, if its
    /// client measures stages.
    fn on_sent(&mut self, times: &SendTimes) {
        let _ = times;
    }

    /// A connection could not be opened. [`Notice::Disconnected`] follows. Only a [`Connector`](crate::Connector) calls it.
    fn on_connect_failed(&mut self, link: LinkId, error: &ConnectError) {
        let _ = (link, error);
    }

    /// Something else has happened.
    fn on_notice(&mut self, notice: Notice<'_>, now: Time) {
        let _ = (notice, now);
    }
}

/// An event beside trades and books.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Notice<'a> {
    /// A book is no longer that of the venue. Do not use it until [`Live`](Self::Live).
    Rebuilding {
        /// Its symbol.
        symbol: SymbolId,
        /// The reason.
        fault: Fault,
    },
    /// A copy of a book, on one of several connections, is being rebuilt. The book itself goes on with another copy.
    CopyRebuilding {
        /// Its symbol.
        symbol: SymbolId,
        /// The connection.
        link: LinkId,
        /// The reason.
        fault: Fault,
    },
    /// A book is that of the venue, for the first time or again.
    Live {
        /// Its symbol.
        symbol: SymbolId,
    },
    /// Numbers of trades have not come on any connection in time.
    MissingTrades {
        /// Their symbol.
        symbol: SymbolId,
        /// The numbers.
        numbers: RangeInclusive<u64>,
    },
    /// Another connection was first with a trade, or with a numbered update of a book.
    Second {
        /// Its symbol.
        symbol: SymbolId,
        /// Its channel.
        channel: Channel,
        /// The connection that was first.
        first: LinkId,
        /// The connection of this copy.
        second: LinkId,
        /// The time between the copies.
        behind: Duration,
    },
    /// A connection has lost messages: those between the two numbers.
    MissingMessages {
        /// The connection.
        link: LinkId,
        /// The number that had to follow.
        expected: u64,
        /// The number that came.
        got: u64,
    },
    /// A stream has been silent for long. It is subscribed again.
    Stale {
        /// Its symbol.
        symbol: SymbolId,
        /// Its channel.
        channel: Channel,
        /// The connection.
        link: LinkId,
        /// The time without a message.
        silent: Duration,
    },
    /// The venue has not confirmed a subscription in time. It is requested again.
    Unconfirmed {
        /// Its symbol.
        symbol: SymbolId,
        /// Its channel.
        channel: Channel,
        /// The connection.
        link: LinkId,
    },
    /// The venue has rejected a subscription. It is requested again later.
    Rejected {
        /// The symbol, if the venue names one.
        symbol: Option<SymbolId>,
        /// The connection.
        link: LinkId,
        /// The venue's reason: its first 200 characters.
        reason: &'a str,
    },
    /// A message is not as the venue documents.
    Undecodable {
        /// The connection.
        link: LinkId,
        /// The place and the expected value.
        error: DecodeError,
        /// The message.
        message: &'a [u8],
    },
    /// A snapshot could not be fetched or read. It is requested again later.
    SnapshotFailed {
        /// Its symbol.
        symbol: SymbolId,
        /// The reason.
        reason: &'a str,
    },
    /// Events are missing in the recording. A [`Connector`](crate::Connector) tells it when the first ones are lost, and their
    /// whole number when it ends. A [`Player`](crate::Player) tells it where they are missing.
    Unrecorded {
        /// The number of events.
        events: u64,
        /// The last error of a write. A replay does not know it, and there is none if the disk was too slow.
        error: Option<ErrorKind>,
    },
    /// A connection is open.
    Connected {
        /// The connection.
        link: LinkId,
    },
    /// A connection could not be opened, or has ended without the feed's doing.
    Disconnected {
        /// The connection.
        link: LinkId,
    },
    /// A connection has been silent for longer than its venue allows, and is replaced.
    Silent {
        /// The connection.
        link: LinkId,
    },
    /// A connection is replaced by another, which delivers before this one ends.
    Replacing {
        /// The connection.
        link: LinkId,
    },
    /// The other connection delivers all streams.
    Replaced {
        /// The old connection, which ends.
        link: LinkId,
        /// The new one.
        by: LinkId,
    },
}
