//! WebSocket without I/O: RFC 6455 and RFC 7692, server and client.
#![deny(unsafe_code)]

mod close;
mod decode;
pub mod deflate;
mod encode;
mod error;
pub mod extension;
mod frame;
pub mod handshake;
#[expect(unsafe_code, reason = "vectors are loaded from and stored to raw pointers")]
pub mod mask;
mod message;
mod prepared;
mod utf8;

pub use close::{Close, CloseCode};
pub use decode::{Decoded, Decoder};
pub use encode::{Encoder, Fragment};
pub use error::Error;
pub use frame::{Header, Kind, Opcode};
pub use message::{Event, Message};
pub use prepared::Prepared;

/// Which end of the connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Accepted the connection; receives masked frames and sends unmasked ones.
    Server,
    /// Opened the connection; sends masked frames and receives unmasked ones.
    Client,
}
