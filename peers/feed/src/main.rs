//! Measures decoders of market messages, ours and others', on the same bytes, and checks that they read the same.
//!
//! `cargo run --release --manifest-path peers/feed/Cargo.toml --target-dir target/peers-feed`. With the name of a decoder as
//! its argument, it measures the decoders with that name only.

mod json;
mod messages;
mod record;
mod sbe;
mod timing;

fn main() {
    json::trades();
    json::depths();
    sbe::all();
    record::all();
}
