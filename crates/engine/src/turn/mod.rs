//! The turn of a shard: what it does with each event, in which order, and for how long.
//!
//! It owns all connections ([`reactor`]), the part that serves one at a time ([`core`]), and the bounds of a visit ([`visit`]) and
//! of a turn ([`resting`]). Every event reaches the application through [`enter`]. A driver calls it, and
//! [`Shard`](crate::Shard) does.

pub(crate) mod clock;
pub(crate) mod core;
pub(crate) mod drain;
pub(crate) mod enter;
pub(crate) mod expiry;
pub(crate) mod links;
pub(crate) mod panics;
pub(crate) mod reactor;
pub(crate) mod resting;
pub(crate) mod run;
pub(crate) mod settle;
pub(crate) mod shared;
pub(crate) mod simulated;
pub(crate) mod slow;
pub(crate) mod stall;
pub(crate) mod timer;
pub(crate) mod timers;
pub(crate) mod timing;
pub(crate) mod visit;
