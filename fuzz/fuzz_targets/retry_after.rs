#![no_main]

#[path = "../../crates/engine/tests/fake/mod.rs"]
mod fake;

#[path = "../../crates/engine/tests/fuzz/client_connection.rs"]
#[expect(dead_code, reason = "its answer to a request is used, and its target is another one")]
mod client_connection;

#[path = "../../crates/engine/tests/fuzz/retry_after.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
