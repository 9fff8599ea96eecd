//! Parts that measurements share: errors, the kernel's counts of CPU time, pinned threads, sockets and started loops.
//!
//! The lab and the replicas of published designs stand on it, so that neither is compiled after the other.
#![forbid(unsafe_code)]

pub mod cpu;
pub mod engine;
mod error;
pub mod loops;
mod named;
pub mod poll;
mod random;
mod span;
pub mod turned;

pub use error::Error;
pub use random::SplitMix;
pub use span::Span;
