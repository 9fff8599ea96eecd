//! Connections that the shard opens: names, addresses, proxies, attempts and reconnection.
//!
//! [`target`] is what a caller asks for, [`dialing`] makes the attempts, and [`outcome`] reports how they ended. The turn calls
//! it with time and with the results of the driver, and the close when a connection was lost.

pub(crate) mod address_memory;
pub(crate) mod dialing;
pub(crate) mod dials;
pub(crate) mod outcome;
pub(crate) mod resolver;
pub(crate) mod target;
pub(crate) mod times;
