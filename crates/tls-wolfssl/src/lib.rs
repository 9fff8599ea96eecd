//! wolfSSL as an engine of Tautline.
//!
//! wolfSSL is under the GNU General Public License, version 3 (or a commercial one of its makers'). The code of this crate is
//! not, but a program that is built with the feature `wolfssl` contains the library, and may be given away under the terms of
//! that licence alone. So nothing turns the feature on but whoever asks for it by name; `engines` does not.
//!
//! The engine is that of `tautline_tls_libssl`, over a table of functions that is filled here: the shim of the OpenSSL family on
//! wolfSSL's interface to match, with its own I/O callbacks, errors and tickets.
#![cfg_attr(
    feature = "wolfssl",
    doc = r#"
```
# fn main() -> Result<(), tautline_tls::Error> {
use tautline_tls::{ClientConfig, Engine as _, Roots};
use tautline_tls_libssl::Engine;

let config = ClientConfig { roots: Roots::DangerNone, ..ClientConfig::default() };
let engine = Engine::new(tautline_tls_wolfssl::FLAVOUR, None, Some(&config))?;
assert_eq!(engine.name(), "wolfssl");
# Ok(())
# }
```
"#
)]

#[cfg(feature = "wolfssl")]
mod sys;

#[cfg(feature = "wolfssl")]
pub use sys::FLAVOUR;
