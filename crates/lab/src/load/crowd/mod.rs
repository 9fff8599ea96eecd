//! Load by very many connections: threads with a client, a source address and a table of descriptors each.
//!
//! One thread holds as many connections as a table of descriptors has room for. All of them do what the caller orders, one
//! order at a time: open, echo once on each, echo at a rate, or wait for messages to all and for the server's close.

mod order;
mod running;
mod start;
mod tally;
mod worker;

pub use running::RunningCrowd;
pub use start::{Crowd, loops, room};
