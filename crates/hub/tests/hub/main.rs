//! Hubs and their clients.
#![expect(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "all of this runs inside tests")]

mod abuse;
mod amplifiers;
mod corpus;
#[path = "../helpers/mod.rs"]
mod helpers;
mod hub;
