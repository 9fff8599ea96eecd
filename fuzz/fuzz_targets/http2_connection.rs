#![no_main]

#[path = "../../crates/http2/tests/fuzz/http2_connection.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
