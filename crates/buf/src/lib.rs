//! Byte buffers that the layers hand to each other.
//!
//! Every layer has one shape: state, input bytes and an output [`Buf`]. The *engine* owns every buffer and lends it for
//! one call. The layers below it keep none.
//!
//! A [`Pool`] holds a shard's unused buffers by size. Idle connections therefore hold no buffer, busy ones get memory
//! that is still in the cache, and bytes that wait for a peer get memory that fits them.
//!
//! This crate needs no `unsafe`: all memory of a [`Buf`] is initialised, so its free part is a plain `&mut [u8]`.
//!
//! ```
//! use tautline_buf::Buf;
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
mod copy;
pub mod fields;
pub mod kernel_tls;
mod pool;

pub use buf::Buf;
pub use copy::copy_in_pieces;
pub use pool::Pool;
