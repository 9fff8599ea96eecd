//! Mbed TLS 3.6 as an engine of Tautline: small, and slow where others have assembly.
//!
//! The engine is that of `tautline_tls_libssl`, over a table of functions that a shim fills here. TLS 1.2 and 1.3; X25519,
//! P-256 and P-384; ECDSA and RSA certificates (the library has no Ed25519, and no ML-KEM). Records of TLS 1.3 are decrypted
//! where they lie. The library knows no KeyUpdate, so the shim adds it.
//!
//! Shards share what is the library's own (randomness, ephemeral keys, blinding of RSA) under its locks.
#![cfg_attr(
    feature = "mbedtls",
    doc = r#"
```
# fn main() -> Result<(), tautline_tls::Error> {
use tautline_tls::{ClientConfig, Engine as _, Roots};
use tautline_tls_libssl::Engine;

let config = ClientConfig { roots: Roots::DangerNone, ..ClientConfig::default() };
let engine = Engine::new(tautline_tls_mbedtls::FLAVOUR, None, Some(&config))?;
assert_eq!(engine.name(), "mbedtls");
# Ok(())
# }
```
"#
)]

#[cfg(feature = "mbedtls")]
mod sys;

#[cfg(feature = "mbedtls")]
pub use sys::FLAVOUR;
