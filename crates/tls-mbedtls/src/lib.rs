//! Mbed TLS 3.6 as an engine of Tautline. It is small, and slow on processors for which other libraries have assembly.
//!
//! The engine is that of `tautline_tls_libssl`, over a table of functions that a shim fills here. It has TLS 1.2 and 1.3;
//! X25519, P-256 and P-384; ECDSA and RSA certificates. The library has neither Ed25519 nor ML-KEM. It opens records of
//! TLS 1.3 in place. It lacks KeyUpdate, which the shim adds.
//!
//! Shards share the library's global state (randomness, ephemeral keys, RSA blinding) under its locks.
#![cfg_attr(
    feature = "mbedtls",
    doc = r#"
```
# fn main() -> Result<(), tautline_tls::Error> {
use tautline_tls::{ClientConfig, Engine as _, Roots};
use tautline_tls_libssl::Engine;

let config = ClientConfig::default().with_roots(Roots::DangerNone);
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
