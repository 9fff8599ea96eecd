//! Tautline for C, and for every language that can call C: `libtautline.so`, `libtautline.a` and `tautline.h`.
//!
//! The functions `taut_tls_…` run TLS over the caller's memory: one call for each step of a handshake, for each run of
//! records to be opened, and for each piece of data to be sealed. The library does no I/O, starts no thread for a
//! session, and keeps no pointer of the caller's between two calls. `docs/c.md` explains the interface.
//!
//! This crate adapts [`tautline_tls::Session`] and the engines of [`tautline`]. It adds the two small buffers that hold
//! the bytes for which the caller's memory was too small, and counts their use. All unsafe code is in [`sys`].
#![deny(unsafe_code)]

mod codes;
mod config;
mod ends;
mod engine;
mod failure;
mod settings;
mod slots;
#[expect(unsafe_code, reason = "the border to C")]
pub mod sys;
mod tls;
mod ws;
