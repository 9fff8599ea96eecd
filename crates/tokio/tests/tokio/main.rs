//! The crate for tokio with its peers.
#![expect(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "all of this runs inside tests"
)]

mod cancel;
mod http2;
mod names;
mod reconnecting;
mod tasks;
mod web;
