//! WebSocket without I/O: RFC 6455 and RFC 7692, server and client.
//!
//! [`handshake`] upgrades an HTTP connection to WebSocket. From then on an [`Encoder`] turns messages into bytes and a
//! [`Decoder`] turns bytes into messages. Nothing here reads a socket, a clock or a random number, and nothing is
//! global. Bytes, buffers and masking keys are arguments, so tests can run everything in memory, byte by byte.
//!
//! The caller sends the answers that RFC 6455 requires, and keeps every deadline. [`Event::Ping`], [`Event::Close`] and
//! [`Error`] say which answer is due.
//!
//! ```
//! # mod tautline { pub use tautline_ws::Kind; pub mod layers { pub use {tautline_buf as buf, tautline_ws as ws}; } }
//! use tautline::layers::buf::{Buf, Pool};
//! use tautline::layers::ws::{Decoder, Encoder, Event, Role};
//! use tautline::Kind;
//!
//! let mut pool = Pool::new(1 << 20);
//! let (mut client, mut server) = (Encoder::new(Role::Client), Decoder::new(Role::Server, 1 << 20));
//! let mut wire = Buf::new();
//! let key = || [0x37, 0xfa, 0x21, 0x3d]; // in production, the output of a cryptographic generator
//! client.message(Kind::Text, "grüß Gott".as_bytes(), false, key, &mut wire, &mut pool)?;
//! client.ping(b"alive?", key, &mut wire)?;
//!
//! while !wire.is_empty() {
//!     let decoded = server.decode(wire.filled_mut(), &mut pool)?;
//!     let used = decoded.used;
//!     match decoded.event {
//!         Some(Event::Message(message)) => assert_eq!(message.text(), Some("grüß Gott")),
//!         Some(Event::Ping(payload)) => assert_eq!(payload, b"alive?"),
//!         other => panic!("{other:?}"),
//!     }
//!     wire.take(used);
//! }
//! # Ok::<(), tautline_ws::Error>(())
//! ```
#![deny(unsafe_code)]

mod close;
mod close_code;
mod decode;
pub mod deflate;
mod encode;
mod error;
pub mod extension;
mod fields;
mod frame;
pub mod handshake;
#[expect(unsafe_code, reason = "vectors are loaded from and stored to raw pointers")]
pub mod mask;
mod message;
mod prepared;
mod retry_after;
mod role;
mod utf8;

pub use close::Close;
pub use close_code::CloseCode;
pub use decode::{Decoded, Decoder, DecoderState, FrameState, MessageState};
pub use encode::{Encoder, EncoderState, Fragment};
pub use error::Error;
pub use frame::{Header, Kind, Opcode};
pub use message::{Event, Message};
pub use prepared::Prepared;
pub use retry_after::RetryAfter;
pub use role::Role;
