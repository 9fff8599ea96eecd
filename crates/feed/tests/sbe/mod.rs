//! Views of the schemas of the tests, as `cargo run --example sbe_views` prints them.
#![expect(dead_code, unreachable_pub, reason = "generated code is for all users of a schema")]

#[rustfmt::skip]
pub(crate) mod big;
#[rustfmt::skip]
pub(crate) mod market;
