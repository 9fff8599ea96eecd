#![no_main]

#[path = "../../crates/feed/tests/fuzz/sbe.rs"]
mod body;
#[path = "../../crates/feed/tests/sbe/mod.rs"]
mod sbe;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
