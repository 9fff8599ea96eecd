#![no_main]

#[path = "../../crates/hub/tests/fuzz/requests.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
