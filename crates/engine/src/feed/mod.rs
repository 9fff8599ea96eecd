//! Parts for clients of feeds: the first copy of several feeds, and the latest value of each key.
//!
//! None of them knows a feed's protocol. The application reads a sequence number or a key from each message. All of them have
//! bounded memory, and count what they leave out.
//!
//! | several feeds send the same data | type |
//! |---|---|
//! | its messages are numbered | [`Arbiter`] |
//! | its messages have unique keys | [`FirstOfKey`] |
//!
//! [`latest`] passes values to a consumer on another thread, which is slower than the feed.

mod arbiter;
mod first_of_key;
mod latest;

pub use arbiter::{Arbiter, Copies, Copy};
pub use first_of_key::FirstOfKey;
pub use latest::{Conflation, Latest, LatestReceiver, Update, latest};
