#![no_main]

#[path = "../../crates/ws/tests/fuzz"]
mod fuzz {
    pub(crate) mod deflate;
    mod naive_inflate;
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::deflate::run(data));
