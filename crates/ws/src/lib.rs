//! WebSocket without I/O: RFC 6455 and RFC 7692, server and client.
#![deny(unsafe_code)]

mod close;
pub mod deflate;
mod error;
pub mod extension;
pub mod handshake;

pub use close::{Close, CloseCode};
pub use error::Error;

/// Which end of the connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Accepted the connection; receives masked frames and sends unmasked ones.
    Server,
    /// Opened the connection; sends masked frames and receives unmasked ones.
    Client,
}
