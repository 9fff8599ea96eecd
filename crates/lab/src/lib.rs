//! Measuring: load generators, suites, and what makes their numbers mean something.
//!
//! A result is a [`Line`]: a suite, a [`Case`], a [`Metric`], and one value per round. Rounds interleave their cases
//! ([`rounds`]), values are medians with bootstrap intervals ([`stats`]), the server's CPU time is what the scheduler
//! counted ([`cpu`]), the [`Machine`] stands in every result, and figures of earlier reports stand beside ours
//! ([`published`]). What everything is judged by is in [`limit`]: a TCP echo with nothing in it that could be left out.
#![forbid(unsafe_code)]

pub mod baselines;
pub mod cpu;
mod error;
mod histogram;
pub mod limit;
pub mod load;
mod machine;
pub mod market;
mod measured;
mod payload;
pub mod published;
pub mod records;
pub mod report;
mod result;
pub mod rounds;
pub mod stats;
pub mod suites;
pub mod table;
pub mod windows;

pub use error::Error;
pub use histogram::Latencies;
pub use machine::Machine;
pub use measured::{Measured, Meter};
pub use result::{Case, Line, Metric, Protocol, Target, write_json};
