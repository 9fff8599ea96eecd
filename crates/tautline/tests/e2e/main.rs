//! End-to-end tests: servers, clients and hostile peers over loopback.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of this runs inside tests")]

#[path = "../common/mod.rs"]
mod common;

mod brokers;
mod client;
mod hostile;
mod http;
mod life;
mod messages;
mod pinned;
mod slow;
mod stages;
mod topics;
