//! Paths of records between buffers: how ciphertext and plaintext pass from a TLS library to its caller.
//!
//! Paths of other programs (memory BIOs, the readers and writers of rustls) stand beside those of our engines. The AEAD
//! alone, in the framing of TLS 1.3, is the limit. Every path is an [`End`], so all do the same work: records in memory
//! ([`Memory`]), both directions of a connection at once ([`Duplex`]), many small reads beside large ones ([`Frames`]),
//! and requests over TLS ([`Gets`]).

mod bare;
mod buffered;
mod duplex;
mod end;
mod frames;
mod get;
#[cfg(feature = "libssl")]
mod libssl;
mod link;
mod make;
mod maker;
mod memory;
#[cfg(test)]
mod tests;
mod variant;

pub use duplex::{Duplex, DuplexRates};
pub use end::{End, EngineEnd};
pub use frames::Frames;
pub use get::{GetRates, Gets};
pub use maker::{Maker, Side, handshake};
pub use memory::{Direction, Memory};
pub use variant::{Strategy, Variant};
