//! HTTP/2 connections without I/O: RFC 9113, with extended CONNECT for WebSockets (RFC 8441).
//!
//! [`Connection`] reads the plaintext of one connection, and lends the bodies of its streams where they lie. It writes frames to a
//! buffer of the caller. Nothing here reads a socket, a clock or a random number: the time is an argument.
//!
//! Each connection has limits that no peer can pass ([`Limits`]). A peer that passes one ends its connection by a [`Fault`], which
//! the caller sends as GOAWAY.
//!
//! Not here: server push, priorities (frames of RFC 9113, section 5.3.2, and RFC 9218 are read and ignored), and HTTP/2 without TLS
//! by an upgrade.
#![forbid(unsafe_code)]

mod block;
mod code;
mod connection;
mod event;
mod expect;
mod fields;
mod frame;
mod hpack;
mod limits;
mod mux;
mod pace;
mod receive;
mod role;
mod settings;
mod stream;

pub use code::{Code, Fault};
pub use connection::Connection;
pub use event::{Event, Read};
pub use fields::{RequestHead, ResponseHead};
pub use limits::Limits;
pub use mux::Multiplexer;
pub use role::Role;
pub use settings::PeerSettings;
pub use tautline_io::StreamFault;
