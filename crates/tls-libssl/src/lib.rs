//! OpenSSL, AWS-LC, BoringSSL and LibreSSL as engines of Tautline, several in one program.
//!
//! Each library is a feature; without any there is no engine here. `Engine::new` takes a `Flavour`, which selects the
//! library, and the same configuration as every engine. TLS 1.2 and 1.3 are negotiated. X25519MLKEM768 is offered if the
//! library has it.
//!
//! A library reads from and writes to the caller's buffers, without memory of its own in between. Its BIO reads the one
//! record of the current call and writes to the free part of the output buffer. The plaintext of a record is written to
//! the place of its ciphertext, which is always long enough.
//!
//! In `fused` the library only handshakes; `tautline-tls-records` opens and seals records in place.
//!
//! One thing differs from other engines: OpenSSL does not seal while a handshake message of the peer is incomplete. (No
//! library splits such messages after the handshake.) Up to 64 KiB of plaintext are then held back, and sealed when the
//! message is complete.
#![cfg_attr(
    any_library,
    doc = r#"
```
# fn main() -> Result<(), tautline_tls::Error> {
use tautline_tls::{ClientConfig, Engine as _, Handshake, Roots, Session as _};
use tautline_tls_libssl::{Engine, Flavour};
use tautline_buf::Buf;

let config = ClientConfig::default().with_roots(Roots::DangerNone);
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
mod capabilities;
#[cfg(any_library)]
mod certificate;
#[cfg(any_library)]
mod client;
#[cfg(any_library)]
mod config;
#[cfg(any_library)]
mod engine;
#[cfg(any_library)]
mod error;
#[cfg(any_library)]
mod flavour;
#[cfg(any_library)]
pub mod fused;
#[cfg(any_library)]
mod groups;
#[cfg(any_library)]
mod host;
#[cfg(any_library)]
mod kind;
#[cfg(any_library)]
#[cfg(any_library)]
mod session;
#[cfg(any_library)]
mod sessions;
#[cfg(any_library)]
mod signers;
#[cfg(any_library)]
mod sys;
#[cfg(any_library)]
// Linked for its libcrypto, which AWS-LC's libssl needs.
#[cfg(feature = "aws-lc")]
use aws_lc_sys as _;

#[cfg(any_library)]
pub use engine::Engine;
#[cfg(any_library)]
pub use flavour::Flavour;
#[cfg(any_library)]
pub use kind::Fused;
#[cfg(any_library)]
pub use session::Session;
#[cfg(feature = "external")]
pub use sys::{External, Table};
#[cfg(feature = "external")]
pub use tautline_tls::Capabilities;
