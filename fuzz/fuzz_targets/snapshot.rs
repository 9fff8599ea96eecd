#![no_main]

#[path = "../../crates/tls-rustls/tests/fuzz/snapshot.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
