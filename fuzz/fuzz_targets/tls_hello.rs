#![no_main]

#[path = "../../crates/tls/tests/fuzz/hello.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
