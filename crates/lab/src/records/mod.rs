//! Cost of the record path without sockets: messages go from ciphertext to ciphertext in memory.
//!
//! [`Work::echo`] is a server's work for an echoed message without system calls, loop and handler: it opens the record,
//! parses and unmasks the frame, frames the answer and seals it. [`Work::aead`] is the lower bound of that: one call of a
//! provider's AEAD to open as many bytes and one to seal them, in place. Both run on hot memory: a batch of messages fits
//! the second-level cache.

mod aead;
mod batch;
mod path;
mod work;

pub(crate) use work::Work;
