//! permessage-deflate (RFC 7692): compression of whole messages.
//!
//! A [`DeflateConfig`] is one side's wish. The handshake negotiates [`DeflateParams`] from the wishes of both sides.
//! They make a [`Deflater`] for messages to send, and an [`Inflater`] for received ones.
//!
//! # Memory
//! A compressor of levels 1 to 3 (`fast`) holds its window, at most 24 KiB more, and a table of 16 KiB. One of the other
//! levels is zlib's: 380 kB with the largest window and 250 kB with the smallest. A decompressor holds 48 kB with any
//! window. All begin without memory and get it for the first compressed message.
//!
//! Without context takeover they give it back after each message, so that an idle connection holds none. A thread keeps
//! what a few messages need, so that the next one finds it in the cache. With takeover, the decompressor keeps it until the connection ends, since the peer relies on it.
//! The compressor keeps it until [`Deflater::release`].

mod bits;
mod block;
mod config;
mod deflater;
mod fast;
mod huffman;
mod inflater;
mod lengths;
mod matcher;
mod params;
mod shared_deflater;
mod window;

pub use config::DeflateConfig;
pub use deflater::Deflater;
pub use inflater::Inflater;
pub use params::DeflateParams;
pub(crate) use params::{Declined, answer, check, offer};
pub use shared_deflater::SharedDeflater;

#[cfg(test)]
mod tests;
