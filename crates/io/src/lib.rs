//! Drivers: how bytes reach the wire.
//!
//! A [`Driver`] owns the sockets of one shard. It is completion-shaped, so that readiness (epoll), completions
//! (io_uring) and userspace stacks fit behind one trait: the driver calls a [`Sink`] back, and lends it the bytes that
//! arrived for that call only; the sink asks the driver to connect, send, pause, shut down and close.
//!
//! [`epoll`] is the driver that runs on every Linux.
#![forbid(unsafe_code)]

mod address;
mod driver;
pub mod epoll;
pub mod machine;
mod socket;

pub use address::Address;
pub use driver::{Driver, End, ListenOptions, Listener, Received, Sent, Sink, Token, Waker};
