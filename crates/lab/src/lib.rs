//! Load generators, benchmark suites, and the statistics behind their figures.
//!
//! A result is a [`Line`]: a suite, a [`Case`], a [`Metric`], and one value per round. Rounds interleave their cases
//! (`rounds`). Values are medians with bootstrap intervals (`stats`). The kernel's scheduler counts the server's CPU
//! time ([`cpu`]). Every result names its [`Machine`], and figures of earlier reports stand beside it (`published`).
//! The reference for all servers is [`limit`], a minimal echo over bare TCP.
#![forbid(unsafe_code)]

pub mod app;
pub mod baselines;
mod case;
mod compare;
pub mod cpu;
mod driver_kind;
mod engine;
mod error;
mod histogram;
pub mod limit;
pub mod load;
pub mod loops;
mod machine;
pub mod market;
mod measured;
mod metric;
mod named;
mod payload;
mod poll;
mod published;
mod random;
mod records;
pub mod report;
mod result;
mod results;
mod rounds;
mod stats;
pub mod suites;
pub mod table;
mod windows;

pub use case::{Case, Protocol};
pub use compare::{Comparison, compare};
pub use driver_kind::DriverKind;
pub use error::Error;
pub use histogram::Latencies;
pub use machine::Machine;
pub(crate) use measured::Meter;
pub use measured::{Measured, Span};
pub use metric::Metric;
pub use payload::Content;
pub use result::{Line, Target};
pub use results::{Results, write_json, write_machine, write_outcome};
