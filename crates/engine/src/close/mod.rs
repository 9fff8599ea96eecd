//! The end of a connection, and of all connections of a shard.
//!
//! The crate `conn` says what the peer is told, and reckons the deadlines. The turn and the link call [`ending`], which alone moves a
//! connection to its end. [`draining`] does that to all of them.

pub(crate) mod carrier_ends;
pub(crate) mod draining;
pub(crate) mod ending;
pub(crate) mod restart;
pub(crate) mod schedule;
