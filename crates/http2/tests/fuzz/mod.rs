//! The bodies of the fuzz targets in `fuzz/`, shared with the test that replays their corpus.

pub(crate) mod http2_connection;
