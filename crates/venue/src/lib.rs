//! A simulated market, and a venue that publishes it: without threads, clocks or sockets.
//!
//! [`Market`] is the made-up feed of one pair that suites measure. A [`Venue`] has the same bursts, and speaks as Binance spot,
//! Coinbase Advanced Trade or Kraken do: subscriptions, snapshots, numbers, checksums, limits that ban. If it is told so, it
//! also loses and swaps messages, forgets subscriptions and ends connections. Everything follows from a seed.
//!
//! Its messages are written from the venues' documents, and share no code with the crate that reads them (`tautline-feed`).
//! `taut serve --app venue` serves it, and the tests of `tautline-feed` run it in virtual time.
#![forbid(unsafe_code)]

mod book;
mod market;
mod pace;
mod request;
mod sbe;
mod setup;
mod venue;
mod window;
mod wire;

pub use book::{Book, Change, Quote, State};
pub use market::{Event, Market};
pub use setup::{Kind, Setup};
pub use venue::{Access, Answer, End, Fault, Mark, Out, Payload, Planted, Refusal, Traded, Venue};
