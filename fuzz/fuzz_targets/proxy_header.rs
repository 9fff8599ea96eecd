#![no_main]

#[path = "../../crates/conn/tests/fuzz/proxy_header.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
