//! Both engines on rustls.
#![expect(clippy::panic, clippy::unwrap_used, reason = "all of this runs inside tests")]

mod anchors;
mod challenges;
mod client_rules;
mod compression;
mod corpus;
mod engines;
mod headers;
mod snapshot;
mod streams;
mod suites;
mod tickets;
