//! A local certificate authority: certificates for development and tests.
//!
//! No client trusts such an authority by default, so its certificates are of no use on the Internet.
//!
//! ```
//! use tautline_dev_cert::{Authority, Leaf};
//!
//! let authority = Authority::new("Example")?;
//! let certificate = authority.issue(&Leaf::new(&["localhost", "127.0.0.1"]))?;
//! assert!(certificate.chain.starts_with(b"-----BEGIN CERTIFICATE-----"));
//! # Ok::<(), tautline_dev_cert::Error>(())
//! ```
#![forbid(unsafe_code)]

mod certificate;
mod error;

pub use certificate::{Authority, KeyKind, Leaf, Usage, Validity};
pub use error::Error;
