//! permessage-deflate (RFC 7692): compression of whole messages.
//!
//! [`DeflateConfig`] says what is wished for, the handshake makes [`DeflateParams`] of it and of what the peer wishes,
//! and from these come a [`Deflater`] for messages that are sent and an [`Inflater`] for those that are received.
//!
//! # Memory
//! A compressor holds 380 kB with the full window, 250 kB with the smallest; a decompressor holds 48 kB whatever the
//! window. Both begin without memory and get it with the first compressed message. Without context takeover they let it
//! go at the end of each message, so that an idle connection holds none; getting it back costs about 10 microseconds.
//! With takeover the decompressor keeps it until the connection ends, because the peer counts on it, and the compressor
//! until [`Deflater::release`].

mod config;
mod deflater;
mod inflater;
mod params;
mod press;
mod window;

pub use config::DeflateConfig;
pub use deflater::Deflater;
pub use inflater::Inflater;
pub use params::DeflateParams;
pub(crate) use params::{Declined, answer, check, offer};
pub use press::Press;

/// What ends a flushed run of DEFLATE blocks; not sent (RFC 7692, section 7.2.1).
const TAIL: [u8; 4] = [0x00, 0x00, 0xff, 0xff];

#[cfg(test)]
mod tests;
