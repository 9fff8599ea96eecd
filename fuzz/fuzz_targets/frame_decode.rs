#![no_main]

#[path = "../../crates/ws/tests/fuzz/frame_decode.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
