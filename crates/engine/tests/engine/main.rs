//! Loops and the sans-I/O connection, over drivers that tests control.
#![expect(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "all of this runs inside tests")]

#[path = "../bench/mod.rs"]
mod bench;
mod budget;
mod corpus;
#[path = "../fake/mod.rs"]
mod fake;
mod handshakes;
mod later;
mod machines;
mod moving;
mod outgoing;
mod pauses;
mod publishing;
mod raw;
mod reach;
mod slow;
mod stalls;
