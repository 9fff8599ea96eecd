//! Measures decoders of market messages, ours and others', on the same bytes, and checks that they read the same.
//!
//! `cargo run --release --manifest-path peers/feed/Cargo.toml --target-dir target/peers-feed`. With the name of a decoder as
//! its argument, it measures the decoders with that name only.
//!
//! Parsers of Python are measured too, as far as the interpreter `FEED_PYTHON` (`python3`) has them: see `requirements.txt`.

mod json;
mod messages;
mod python;
mod record;
mod sbe;
mod sbe_others;
mod timing;

fn main() {
    json::trades();
    json::depths();
    python::all();
    sbe::all();
    record::all();
}
