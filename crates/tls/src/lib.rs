//! TLS engines and sessions over caller-owned buffers.
//!
//! An [`Engine`] is a TLS library with one configuration. A [`Session`] is one of its connections, sans I/O: ciphertext
//! comes in as a slice, and bytes to send are appended to a [`Buf`](tautline_buf::Buf). A call never waits
//! for the peer: its result, such as [`Handshake::Pending`], says that more bytes are needed. The caller owns every
//! buffer. All engines take the same configuration: [`ServerConfig`] and [`ClientConfig`].
//!
//! [`plain`] is the null engine: no TLS, for `ws://` and for measuring the cost of TLS.
//!
//! This example runs a handshake over a blocking stream. Bytes that the peer sent after its handshake stay in `wire`,
//! for [`Session::open`]:
//! ```
//! use std::io::{self, Read, Write};
//! use tautline_tls::{Engine as _, Handshake, Session, plain};
//! use tautline_buf::Buf;
//!
//! fn handshake(session: &mut impl Session, stream: &mut (impl Read + Write), wire: &mut Buf) -> io::Result<()> {
//!     let mut out = Buf::new();
//!     loop {
//!         let result = session.handshake(wire.filled_mut(), &mut out);
//!         stream.write_all(out.filled())?; // also after an error, for the alert
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
//! handshake(&mut session, &mut io::Cursor::new(Vec::new()), &mut Buf::new())?;
//! # Ok::<(), io::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod alert;
mod answer;
mod boxed;
mod capabilities;
pub mod carrying;
mod certificate;
pub mod chain;
mod challenges;
mod client_auth;
mod config;
pub mod der;
mod engine;
mod error;
pub mod fields;
pub mod hello;
mod helpers;
mod kind;
pub mod mixed;
mod named;
pub mod names;
pub mod ocsp;
pub mod pem;
pub mod plain;
pub mod record;
mod registry;
mod sessions;
mod signed;
mod tickets;
mod verify;

pub use answer::Answer;
pub use capabilities::Capabilities;
pub use certificate::Certificate;
pub use challenges::{ACME_TLS, Challenges};
pub use client_auth::{ClientAuth, ClientRule};
pub use config::{ClientConfig, KeyExchange, Roots, ServerConfig, Versions, key_log_flaw};
pub use engine::{Content, Engine, Handshake, KeyCost, NO_EXPORTER, Opened, Place, Plain, Session, Signing, TlsInfo};
pub use error::Error;
pub use helpers::Helpers;
pub use kind::EngineKind;
pub use named::trust_named;
pub use registry::{CipherSuite, NamedGroup, ProtocolVersion};
pub use sessions::Sessions;
pub use tickets::{TicketKeySource, TicketSecret, Tickets};
pub use verify::{PeerCertificates, Verify};
