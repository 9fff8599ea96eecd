//! Replicas of designs that others have published, and of paths of other programs. They exist only to be measured.
//!
//! [`models`] are servers with other threading models. [`windows`] are paths of records between a TLS library and its
//! caller.
#![forbid(unsafe_code)]

pub mod models;
pub mod windows;
