//! What tests of every layer share: certificates, in-memory pairs of sessions, faults, and the suite that every TLS
//! engine must pass.
//!
//! [`certificate`] is also what makes development certificates for the `taut` program.
#![forbid(unsafe_code)]

pub mod certificate;
pub mod conformance;
mod fault;
pub mod hello;
mod logged;
pub mod old;
pub mod pair;
mod port;
mod random;
pub mod rustls_peer;
pub mod wild;

pub use fault::{Fault, record_ranges};
pub use logged::warnings;
pub use port::ClosedPort;
pub use random::Random;
