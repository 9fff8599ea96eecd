//! What tests of every layer share: certificates, in-memory pairs of sessions, fault injection.
//!
//! [`certificate`] is also what makes development certificates for the `taut` program.
#![forbid(unsafe_code)]

pub mod certificate;
