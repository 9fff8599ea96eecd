//! The turn loop: what Tautline does with bytes between the driver and the application.
//!
//! A [`Shard`] is one thread's loop. It owns its driver, TLS sessions, buffers, timers and topics, and shares nothing on
//! the message path. The application is a [`Handler`]; it is lent a [`Conn`] for each call, and everything it sends in
//! one turn leaves each connection in one system call.
//!
//! ```text
//! inbound   driver ──bytes──► tls.open ──plaintext──► ws.decode ──message──► Handler::on_message
//! outbound  driver ◄──bytes── tls.seal ◄──frames───── ws.encode ◄──payload── Conn::send
//! ```
//! Only this crate calls the layers; they never call each other. Most users want the crate `tautline`, which adds
//! threads, certificates and names to this.
#![deny(unsafe_code)]

mod closed;
mod config;
mod conn;
mod dial;
mod dialing;
mod ending;
#[cfg(test)]
#[path = "../tests/fake/mod.rs"]
mod fake;
mod handler;
mod input;
mod kernel;
mod link;
mod message;
mod nursery;
mod offload;
mod outbound;
pub mod probe;
mod proxy;
mod queue;
mod remote;
mod shard;
mod shared;
mod timer;
mod topic;
mod upgrade;

pub use closed::{Cause, Closed, ConnectError, Deadline};
pub use config::{Config, Deadlines, Limits, Offload, Records, SlowConsumer};
pub use conn::{Conn, ConnId, DialId};
pub use dial::{Reconnect, Target};
pub use handler::{Chunk, Handler, Opening, Reply, Request};
pub use message::{Delivery, Outgoing};
pub use offload::{HandshakePool, RecordPool};
pub use proxy::{Proxy, ProxyKind};
pub use remote::{Remote, RemoteError};
pub use shard::Shard;
pub use shared::Counters;
