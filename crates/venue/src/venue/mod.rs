//! The venue: connections with their subscriptions, limits that ban, and planted faults.
//!
//! `core` is the state, with connections and their ends. `answering` answers requests, `trading` moves the market and publishes
//! it, `rest` answers plain HTTP.

mod access;
mod answering;
mod core;
mod event;
mod rest;
mod trading;

pub use self::core::Venue;
pub use access::{Access, Refusal};
pub use event::{Answer, End, Fault, Mark, Out, Payload, Planted, Traded};
