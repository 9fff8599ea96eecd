//! Market feeds: from a venue's connections to books and trades that can be relied on.
//!
//! A [`Feed`] follows the streams of one [`Venue`]. It subscribes within the venue's budgets, replaces connections before they end,
//! drops second copies, and keeps books by price levels that are those of the venue or say that they are being rebuilt. It has no
//! thread, clock or socket: events and times go in, and [actions](Action) come out. [`Connector`] runs it on the loop of a
//! [`tautline::Client`].
//!
//! ```
//! use std::time::Duration;
//! use tautline_feed::{Action, Binance, Channel, Feed, FeedConfig, Listener, SymbolId, Time, Trade};
//!
//! struct Print;
//!
//! impl Listener for Print {
//!     fn on_trade(&mut self, _: SymbolId, trade: &Trade<'_>, _: Time) {
//!         println!("{} at {:?}", trade.symbol, trade.price);
//!     }
//! }
//!
//! let mut feed = Feed::new(Binance::new(), FeedConfig::default());
//! let symbol = feed.declare("BTCUSDT", None);
//! feed.subscribe(symbol, Channel::Trades, Time::ZERO);
//! feed.handle_timeout(Time::ZERO, &mut Print);
//! let Some(Action::Connect { link, url }) = feed.poll_action() else { panic!("it connects first") };
//! assert_eq!(url, "wss://stream.binance.com:9443/ws");
//! feed.opened(link, Duration::from_millis(80), &mut Print);
//! let Some(Action::Send { text, .. }) = feed.poll_action() else { panic!("and then subscribes") };
//! assert_eq!(text, r#"{"method":"SUBSCRIBE","params":["btcusdt@trade"],"id":1}"#);
//! ```
//!
//! Parts of it are of use for other feeds, too:
//!
//! | task | type |
//! |---|---|
//! | the first copy of several feeds, by numbers | [`Arbiter`] |
//! | the first copy of several feeds, by unique keys | [`FirstOfKey`] |
//! | the latest value of each key, for a slower thread | [`latest`] |
//! | the best levels of a book, for another thread without a lock | [`TopWriter`] |
//! | limits on messages | [`Bucket`] |
//! | prices and fields of JSON | [`number`], [`json`] |
//! | binary messages, by a venue's schema | [`sbe`] |
//! | recordings and their replay | [`record`] |
#![forbid(unsafe_code)]

mod action;
mod arbiter;
mod book;
mod client;
mod config;
mod fault;
mod feed;
mod fetch;
mod first_of_key;
mod ids;
mod journal;
pub mod json;
mod latest;
mod message;
mod names;
mod notice;
pub mod number;
mod outbox;
mod plain_error;
mod player;
mod race;
mod rate;
pub mod record;
mod replica;
pub mod sbe;
mod tape;
mod top;
mod venue;

pub use action::Action;
pub use arbiter::{Arbiter, Copies, Copy};
pub use book::{Book, Quote, Scale};
pub use client::Connector;
pub use config::FeedConfig;
pub use fault::Fault;
pub use feed::Feed;
pub use fetch::Fetch;
pub use first_of_key::FirstOfKey;
pub use ids::{FetchId, LinkId, SymbolId};
pub use latest::{Conflation, Latest, LatestReceiver, Update, latest};
pub use message::{Channel, Depth, Level, Message, Side, Trade};
pub use notice::{Listener, Notice};
pub use outbox::{Class, Full};
pub use player::Player;
pub use rate::{Bucket, Rate};
pub use replica::Sequence;
pub use top::{TOP_LEVELS, Top, TopReader, TopWriter};
pub use venue::{Binance, Coinbase, DecodeError, Facts, Kraken, Request, Venue};

/// A moment: the time since one that the caller chooses. It never goes back.
pub type Time = std::time::Duration;

/// Runs the code in the document as a test.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../docs/feeds.md")]
    mod feeds {}
}
