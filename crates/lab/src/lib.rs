//! Load generators, benchmark suites, and the statistics behind their figures.
//!
//! A result is a [`Line`]: a suite, a [`Case`], a [`Metric`], and one value per round. Rounds interleave their cases
//! (`rounds`). Values are medians with bootstrap intervals (`stats`). The kernel's scheduler counts the server's CPU
//! time ([`cpu`]). Every result names its [`Machine`], and figures of earlier reports stand beside it (`published`).
//! The reference for all servers is [`limit`], a minimal echo over bare TCP.
#![forbid(unsafe_code)]

pub mod app;
mod by_report;
mod carrier_tls;
mod case;
mod compare;
mod driver_kind;
pub mod feed_worker;
mod histogram;
#[cfg(feature = "http2")]
mod http2;
pub mod limit;
pub mod load;
mod machine;
mod measured;
mod metric;
mod payload;
mod published;
mod records;
pub mod report;
mod result;
mod results;
mod rounds;
mod stats;
pub mod suites;
pub mod table;

pub use by_report::ByReport;
pub use carrier_tls::CarrierTls;
pub use case::{Case, Protocol};
pub use compare::{Comparison, compare};
pub use driver_kind::DriverKind;
pub use histogram::Latencies;
#[cfg(feature = "http2")]
pub use http2::over_http2;
pub use machine::Machine;
pub use measured::Measured;
pub(crate) use measured::Meter;
pub use metric::Metric;
pub use payload::Content;
pub use result::{Line, Target};
pub use results::{Results, write_json, write_machine, write_outcome};
pub use tautline_measure::{Error, Span, cpu, loops};
