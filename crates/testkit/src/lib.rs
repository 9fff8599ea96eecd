//! Shared tools of the tests: certificates, in-memory pairs of sessions, faults, and the conformance suite that every
//! TLS engine must pass.
#![forbid(unsafe_code)]

pub mod conformance;
mod fault;
pub mod hello;
mod logged;
pub mod pair;
mod port;
mod random;
pub mod raw_peer;
pub mod raw_peer_tls12;
pub mod rustls_peer;

pub use tautline_dev_cert as certificate;

pub use fault::{Fault, record_ranges};
pub use logged::{log_lines, warnings};
pub use port::ClosedPort;
pub use random::Random;
