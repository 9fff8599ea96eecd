//! One whole connection without I/O: TLS, the opening handshake, frames and deadlines.
//!
//! A [`Connection`] is for a runtime of your own. It reads no socket and no clock, and wakes nobody.
//!
//! | the caller | the connection |
//! |---|---|
//! | reads from its socket into [`window`](Connection::window) | opens records in place, decodes frames in place |
//! | takes events by [`next`](Connection::next) | answers pings and close frames by itself |
//! | writes [`output`](Connection::output), says how much was [`written`](Connection::written) or if it is [`blocked`](Connection::blocked) | seals all that was sent since the last time together |
//! | calls [`on_time`](Connection::on_time) at [`next_deadline`](Connection::next_deadline) | sends pings, and ends what takes too long |
//!
//! The bytes of an event lie where they were decrypted, until the next call of [`next`](Connection::next). Buffers come
//! from a [`Context`], which all connections of a thread share. So a connection that is [at rest](Connection::rest)
//! holds no buffer.
//!
//! A [`Shard`](crate::Shard) has the same layers, with callbacks, topics and a driver of sockets around them.

mod context;
mod event;
mod input;
mod state;
mod steps;
#[cfg(test)]
mod tests;

pub use context::Context;
pub use event::{Event, Opened, Payload, Unsent};
pub use state::{Connection, Output};
