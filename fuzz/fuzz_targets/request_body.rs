#![no_main]

#[path = "../../crates/ws/tests/fuzz/request_body.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
