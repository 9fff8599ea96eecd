//! wolfSSL as an engine of Tautline.
//!
//! wolfSSL is under the GNU General Public License, version 3, or a commercial licence of its makers. The code of this
//! crate is not. But a program built with the feature `wolfssl` contains the library, and may be distributed under the
//! terms of the GPL alone. So only a feature of this name turns it on; `engines` does not.
//!
//! The engine is that of `tautline_tls_libssl`, over a table of functions that a shim fills here. The shim is that of the
//! OpenSSL family on wolfSSL's compatible interface, with I/O callbacks, errors and tickets of its own.
#![cfg_attr(
    feature = "wolfssl",
    doc = r#"
```
# fn main() -> Result<(), tautline_tls::Error> {
use tautline_tls::{ClientConfig, Engine as _, Roots};
use tautline_tls_libssl::Engine;

let config = ClientConfig::default().with_roots(Roots::DangerNone);
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
