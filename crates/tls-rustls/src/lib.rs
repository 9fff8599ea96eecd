//! rustls as an engine of Tautline.
//!
//! [`Engine`] runs rustls over its unbuffered interface: handshake and records are rustls'. It negotiates TLS 1.2 and 1.3
//! and offers X25519MLKEM768. It prefers AES-128-GCM if the processor has AES instructions. The cryptography is always
//! aws-lc-rs; the process-wide default provider is neither read nor set.
//!
//! [`fused::Engine`] takes over the keys after a TLS 1.3 handshake, and opens and seals records itself, in place.
//!
//! ```
//! # fn main() -> Result<(), tautline_tls::Error> {
//! use tautline_tls::{ClientConfig, Engine as _, Handshake, Roots, Session as _};
//! use tautline_buf::Buf;
//!
//! let config = ClientConfig::default().with_roots(Roots::DangerNone);
//! let mut session = tautline_tls_rustls::Engine::client(&config)?.connect("localhost")?;
//! let mut out = Buf::new();
//! assert_eq!(session.handshake(&mut [], &mut out)?, (0, Handshake::Pending));
//! assert_eq!(out.filled()[..2], [22, 3]); // a ClientHello, to be sent
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod anchors;
mod capabilities;
mod certificate;
mod challenge;
mod client_rules;
mod compression;
mod config;
mod connection;
mod cost;
mod engine;
mod error;
pub mod fused;
mod guard;
mod key_log;
mod kind;
mod platform;
mod provider;
mod resolver;
mod resumption;
mod secret_log;
mod server_configs;
mod session;
mod staple;
mod ticket;
mod trust;

#[doc(hidden)]
pub use anchors::Anchors;
pub use certificate::check;
pub use engine::Engine;
pub use kind::{Fused, Rustls};
pub use session::Session;
