//! Byte buffers that the layers hand to each other.
//!
//! Every layer has one shape: state, input bytes and an output [`Buf`]. The *engine* owns every buffer and lends it for
//! one call; the layers below it keep none. [`Pool`] is where a shard keeps the buffers that no connection needs just
//! now, so that idle connections hold none and busy ones find theirs warm in the cache.
//!
//! There is no `unsafe` here: a [`Buf`] keeps all of its memory initialised, so a layer can be given the free part as a
//! plain `&mut [u8]`.
//!
//! ```
//! use tautline_window::Buf;
//! let mut buf = Buf::with_capacity(16);
//! buf.put(b"hello ");
//! let free = buf.reserve(5);
//! free[..5].copy_from_slice(b"world");
//! buf.commit(5);
//! assert_eq!(buf.filled(), b"hello world");
//! buf.take(6);
//! assert_eq!(buf.filled(), b"world");
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod buf;
pub mod kernel;
mod pool;

pub use buf::Buf;
pub use pool::Pool;
