//! TLS engines and sessions over caller-owned buffers.
//!
//! An [`Engine`] is a TLS library with one configuration; a [`Session`] is one connection of it, sans I/O: ciphertext
//! comes in as a slice, what must be sent is appended to a [`Buf`](tautline_window::Buf), and waiting is a value. The
//! caller owns every buffer. Configuration ([`ServerConfig`], [`ClientConfig`]) is the same for every engine.
//!
//! [`plain`] is the null engine: no TLS at all, for `ws://` and for measuring what TLS costs.
#![forbid(unsafe_code)]

pub mod alert;
mod answer;
mod capabilities;
mod config;
mod engine;
mod error;
pub mod hello;
pub mod plain;
pub mod record;
pub mod registry;
mod sessions;
mod team;
mod tickets;

pub use answer::Answer;
pub use capabilities::Capabilities;
pub use config::{Certificate, ClientAuth, ClientConfig, KeyExchange, Roots, ServerConfig, Versions};
pub use engine::{Content, Engine, Facts, Handshake, KeyCost, Opened, Session, Signing};
pub use error::Error;
pub use sessions::Sessions;
pub use team::Team;
pub use tickets::{TicketKeySource, TicketSecret, Tickets};
