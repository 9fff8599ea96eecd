//! OpenSSL, AWS-LC, BoringSSL and LibreSSL as engines of Tautline, several in one program.
//!
//! Each library is a feature; without any there is no engine here. `Engine::new` takes a `Flavour`, which says which
//! library, and the same configuration as every engine. TLS 1.2 and 1.3 are negotiated, X25519MLKEM768 offered where the
//! library has it.
//!
//! A library reads from and writes to the caller's buffers, without memory of its own in between: its BIO is a window on
//! the one record that is being worked on, and on the free part of the buffer that collects what must be sent. What the
//! library copies out of a record is written to where the record lay, which is always room enough.
//!
//! In `fused` the library shakes hands only, and records are opened and sealed in place by `tautline-tls-records`.
//!
//! One thing differs from other engines: while the beginning of a handshake message of the peer's is there and its end is
//! not (no library splits them after the handshake), OpenSSL does not seal. What is sealed meanwhile is held back, up to
//! 64 KiB, and follows when the message is complete.
#![cfg_attr(
    any_library,
    doc = r#"
```
# fn main() -> Result<(), tautline_tls::Error> {
use tautline_tls::{ClientConfig, Engine as _, Handshake, Roots, Session as _};
use tautline_tls_libssl::{Engine, Flavour};
use tautline_window::Buf;

let config = ClientConfig { roots: Roots::DangerNone, ..ClientConfig::default() };
for &flavour in Flavour::ALL {
    let mut session = Engine::new(flavour, None, Some(&config))?.connect("localhost")?;
    let mut out = Buf::new();
    assert_eq!(session.handshake(&mut [], &mut out)?, (0, Handshake::Pending));
    assert_eq!(out.filled()[..2], [22, 3]); // a ClientHello, to be sent
}
# Ok(())
# }
```
"#
)]

#[cfg(any_library)]
mod certificate;
#[cfg(any_library)]
mod config;
#[cfg(any_library)]
mod engine;
#[cfg(any_library)]
mod error;
#[cfg(any_library)]
mod facts;
#[cfg(any_library)]
mod flavour;
#[cfg(any_library)]
pub mod fused;
#[cfg(any_library)]
mod host;
#[cfg(any_library)]
mod serving;
#[cfg(any_library)]
mod session;
#[cfg(any_library)]
mod sessions;
#[cfg(any_library)]
mod signers;
#[cfg(any_library)]
mod sys;
#[cfg(any_library)]
// Linked for the libcrypto in it, which the table of AWS-LC's libssl needs.
#[cfg(feature = "aws-lc")]
use aws_lc_sys as _;

#[cfg(any_library)]
pub use engine::Engine;
#[cfg(any_library)]
pub use flavour::Flavour;
#[cfg(any_library)]
pub use session::Session;
#[cfg(feature = "outside")]
pub use sys::{Outside, Table};
