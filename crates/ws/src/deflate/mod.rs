//! permessage-deflate (RFC 7692): compression of whole messages.
//!
//! A [`DeflateConfig`] is one side's wish. The handshake negotiates [`DeflateParams`] from the wishes of both sides.
//! They make a [`Deflater`] for messages to send, and an [`Inflater`] for received ones.
//!
//! # Memory
//! A compressor holds 380 kB with the largest window and 250 kB with the smallest. A decompressor holds 48 kB with any
//! window. Both begin without memory and allocate it for the first compressed message.
//!
//! Without context takeover they free it after each message, so that an idle connection holds none. Allocating it again
//! takes about 10 us. With takeover, the decompressor keeps it until the connection ends, since the peer relies on it.
//! The compressor keeps it until [`Deflater::release`].

mod config;
mod deflater;
mod inflater;
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
