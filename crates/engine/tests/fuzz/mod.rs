//! The bodies of the fuzz targets in `fuzz/`, shared with the test that replays their corpus.

pub(crate) mod client_connection;
pub(crate) mod retry_after;
pub(crate) mod saved_connection;
pub(crate) mod server_connection;
