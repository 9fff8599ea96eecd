//! TLS engines and sessions over caller-owned buffers.
//!
//! An [`Engine`] is a TLS library with one configuration; a [`Session`] is one connection of it, sans I/O: ciphertext
//! comes in as a slice, what must be sent is appended to a [`Buf`](tautline_window::Buf), and waiting is a value. The
//! caller owns every buffer. Configuration ([`ServerConfig`], [`ClientConfig`]) is the same for every engine.
//!
//! [`plain`] is the null engine: no TLS at all, for `ws://` and for measuring what TLS costs.
//!
//! A handshake over a blocking stream. What the peer sent behind it stays in `wire`, for [`Session::open`]:
//! ```
//! use std::io::{self, Read, Write};
//! use tautline_tls::{Engine as _, Handshake, Session, plain};
//! use tautline_window::Buf;
//!
//! fn shake_hands(session: &mut impl Session, stream: &mut (impl Read + Write), wire: &mut Buf) -> io::Result<()> {
//!     let mut out = Buf::new();
//!     loop {
//!         let result = session.handshake(wire.filled_mut(), &mut out);
//!         stream.write_all(out.filled())?; // after an error too: the alert
//!         out.clear();
//!         let (used, handshake) = result.map_err(io::Error::other)?;
//!         wire.take(used);
//!         if handshake == Handshake::Complete {
//!             return Ok(());
//!         }
//!         let read = stream.read(wire.reserve(16 << 10))?;
//!         if read == 0 {
//!             return Err(io::ErrorKind::UnexpectedEof.into());
//!         }
//!         wire.commit(read);
//!     }
//! }
//!
//! let mut session = plain::Engine.accept().map_err(io::Error::other)?;
//! shake_hands(&mut session, &mut io::Cursor::new(Vec::new()), &mut Buf::new())?;
//! # Ok::<(), io::Error>(())
//! ```
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
