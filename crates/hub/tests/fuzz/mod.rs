//! The body of the fuzz target in `fuzz/`, shared with the test that replays its corpus.

pub(crate) mod requests;
