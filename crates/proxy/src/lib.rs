//! The parts of `taut proxy`: a front for HTTP and WebSocket backends.
//!
//! A plan says all that a proxy does: its listeners, routes and backends. It is made from a file or from flags and never changes.
//! A reload replaces it whole.

#![forbid(unsafe_code)]

pub mod balance;
mod certificates;
pub mod config;
mod decision;
pub mod edge;
pub mod forward;
pub mod health;
mod identity;
mod live;
pub mod messages;
pub mod plan;
mod prefix;
pub mod rates;
mod resolved;
pub mod resolving;
pub mod route;
pub mod sources;
pub mod tally;

pub use certificates::{CertificateNames, CertificatePaths, Clients};
pub use decision::Decision;
pub use live::Live;
pub use plan::Plan;
pub use prefix::Prefix;
pub use resolved::Resolved;
