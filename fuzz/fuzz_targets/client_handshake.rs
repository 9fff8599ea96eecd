#![no_main]

#[path = "../../crates/ws/tests/fuzz/client_handshake.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
