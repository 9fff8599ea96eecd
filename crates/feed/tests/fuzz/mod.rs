//! The bodies of the fuzz targets in `fuzz/`, shared with the tests that replay their corpora and feed them random bytes.

pub(crate) mod json;
pub(crate) mod number;
