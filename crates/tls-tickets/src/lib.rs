//! The keys of session tickets, over time and over hosts: which one seals now, and which ones open.
//!
//! What a ticket looks like is its engine's business. An engine brings a type of its own that is made of [`Material`] and
//! seals and opens ([`Key`]); [`Ticketer`] keeps three of them, or as many for each secret of a fleet, for all shards at once
//! and without a lock.
#![forbid(unsafe_code)]

mod keys;
mod material;
mod ticketer;

#[cfg(test)]
mod tests;

pub use material::{Key, Material, Random};
pub use ticketer::{Ticketer, wanted};
