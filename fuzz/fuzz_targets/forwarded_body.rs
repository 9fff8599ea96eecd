#![no_main]

#[path = "../../crates/proxy/tests/fuzz/forwarded_body.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
