//! Topics: who subscribes, how publications reach them, and the broker beyond this host.
//!
//! Handlers subscribe and publish through [`Conn`](crate::Conn) and [`ShardContext`](crate::ShardContext). The turn delivers.

pub(crate) mod broker;
pub(crate) mod broker_link;
pub(crate) mod closings;
pub(crate) mod counted;
pub(crate) mod interest;
pub(crate) mod joining;
pub(crate) mod letters;
pub(crate) mod memory_broker;
pub(crate) mod publications;
pub(crate) mod publishing;
pub(crate) mod reach;
pub(crate) mod reaching;
pub(crate) mod receipt;
pub(crate) mod recipients;
pub(crate) mod roster;
pub(crate) mod subscribing;
pub(crate) mod topic;
