//! Session ticket keys: their rotation over time, and their derivation on every host of a fleet.
//!
//! An engine defines the layout of its tickets. It brings a key type of its own ([`Key`]), made from [`Material`], that
//! seals and opens them. A [`Ticketer`] holds three such keys, or three for each secret of a fleet, for all shards and
//! without a lock. A [`LiveConfig`] holds the ticketer with the rest of a server's configuration, which a reload replaces.
#![forbid(unsafe_code)]

mod keys;
mod live_config;
mod material;
mod own;
mod ticketer;

#[cfg(test)]
mod tests;

pub use live_config::{Builder, LiveConfig};
pub use material::{Key, Material, Random};
pub use ticketer::{Renewal, Ticketer, wanted};
