#![no_main]

#[path = "../../crates/ws/tests/fuzz/state.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
