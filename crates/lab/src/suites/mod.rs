//! The suites: groups of measurements, with their tables and targets.
//!
//! The server of each composition is a separate process on one CPU, and the load is this process on another. All servers
//! of a suite run all the time, and rounds take turns between them.

mod advice;
mod bindings;
mod bulk;
mod certificates;
mod check;
mod crowd_size;
mod deflate;
mod echo;
mod echo_case;
mod edge;
mod engines;
mod feed;
mod fleet;
mod group;
mod guest;
mod handshake;
mod handshake_case;
mod http2;
mod idle;
mod key;
mod kind;
mod lab;
mod latency;
mod limits;
mod million;
mod namespaces;
mod offload;
mod outcome;
mod overview;
mod pairs;
mod peer;
mod peers;
mod recipe;
mod records;
mod row;
mod running;
mod scaling;
mod server;
mod signature;
mod stages;
mod storm;
mod suite;
#[cfg(test)]
mod tests;
mod tokio;
mod windows;
mod wire;
mod worker;

pub use crowd_size::CrowdSize;
pub use engines::{ENGINES, drivers};
pub use lab::{Effort, Lab};
pub use outcome::Outcome;
pub use peers::{PeerCheck, check_peers};
pub(crate) use server::unique;
pub use suite::Suite;

use certificates::Certificates;
use check::Check;
use key::Key;
use kind::{Execution, Extra, Kind, Topology, Traffic};
use row::{Metrics, Row, Subject};
use server::{Process, Servers, Site};
