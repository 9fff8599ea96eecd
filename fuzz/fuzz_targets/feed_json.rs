#![no_main]

#[path = "../../crates/feed/tests/fuzz/json.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
