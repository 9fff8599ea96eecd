//! Feeds, their records and their decoders.
#![expect(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "all of this runs inside tests")]

mod client;
mod corpus;
#[path = "../encoded/mod.rs"]
mod encoded;
#[path = "../fuzz/mod.rs"]
mod fuzz;
#[path = "../fuzz/record.rs"]
mod fuzz_record;
#[path = "../fuzz/sbe.rs"]
mod fuzz_sbe;
mod hostile;
mod properties;
mod record;
mod replayed;
#[path = "../sbe/mod.rs"]
mod sbe;
mod venues;
mod views;
