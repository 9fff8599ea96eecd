//! rustls as an engine of Tautline.
//!
//! [`Engine`] runs rustls over its unbuffered interface: the library's handshake and the library's records. It negotiates
//! TLS 1.2 and 1.3, offers X25519MLKEM768, and prefers AES-128-GCM where the machine has AES instructions. The
//! cryptography is aws-lc-rs, always; the process-wide default provider is neither read nor set.
//!
//! [`fused::Engine`] takes the keys over after a TLS 1.3 handshake and opens and seals records itself, in place.
//!
//! ```
//! # fn main() -> Result<(), tautline_tls::Error> {
//! use tautline_tls::{ClientConfig, Engine as _, Handshake, Roots, Session as _};
//! use tautline_window::Buf;
//!
//! let config = ClientConfig { roots: Roots::DangerNone, ..ClientConfig::default() };
//! let mut session = tautline_tls_rustls::Engine::client(&config)?.connect("localhost")?;
//! let mut out = Buf::new();
//! assert_eq!(session.handshake(&mut [], &mut out)?, (0, Handshake::Pending));
//! assert_eq!(out.filled()[..2], [22, 3]); // a ClientHello, to be sent
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod certificate;
mod config;
mod connection;
mod cost;
mod engine;
mod error;
pub mod fused;
mod hello;
mod memory;
mod provider;
mod resolver;
mod serving;
mod session;
mod staple;
mod ticket;
mod trust;

use tautline_tls::record;

pub use engine::Engine;
pub use session::Session;
