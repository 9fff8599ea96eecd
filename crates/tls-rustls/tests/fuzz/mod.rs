//! The bodies of fuzz targets in `fuzz/`, shared with the test that replays their corpus.

pub(crate) mod snapshot;
pub(crate) mod tls_records;
