//! The bodies of the fuzz targets in `fuzz/`, shared with the test that replays their corpus.

pub(crate) mod client_handshake;
pub(crate) mod deflate;
pub(crate) mod frame_decode;
pub(crate) mod inflate;
mod naive_inflate;
pub(crate) mod request_body;
pub(crate) mod server_handshake;
pub(crate) mod state;
