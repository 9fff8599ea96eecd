//! Message mode: a route whose WebSockets end at the proxy, on both sides.
//!
//! ```text
//!  client ⇄ server's end of a WebSocket ── whole messages ──► client's end of another ⇄ server
//! ```
//! The loop's own endpoints read and write frames, answer pings, send their own, compress, and close. This module has the rest:
//! [`Settings`] are a route's keys, [`Offer`] is the opening handshake of both sides, [`End`] a connection's part in its pair,
//! [`told`] the table from the end of one side to the close frame for the other. [`Messages`] has the rates ([`Rate`]) that all pairs
//! of a route share. The handler that passes messages on is in `edge`.

mod end;
mod ending;
mod offer;
mod rate;
mod settings;

pub(crate) use end::Rules;
pub use end::{End, Slower};
pub use ending::{Party, told};
pub use offer::Offer;
pub use rate::{Excess, Rate, Sources};
pub use settings::{Messages, Rates, Settings, Slow};
