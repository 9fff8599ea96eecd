#![no_main]

#[path = "../../crates/engine/tests/fake/mod.rs"]
mod fake;

#[path = "../../crates/engine/tests/fuzz/saved_connection.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = body::run(data);
});
