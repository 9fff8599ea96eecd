//! Our own TLS 1.3 records, behind the handshake of a TLS library.
//!
//! A library that exports the traffic secrets of an established connection can have its records opened and sealed here.
//! Records are opened in place in the caller's buffer and sealed straight from the caller's slices, without a copy or
//! an allocation per record.
//!
//! A [`Session`] wraps a session of a [`Library`], and takes its records over as soon as the library exports its
//! secrets. [`Records`] does all that TLS requires after the handshake: limits, alerts, key updates, padding.
//!
//! The AEAD is that of AWS-LC or of ring, whichever is faster on this processor ([`AeadChoice`]). Every tag is verified
//! before a byte is handed out. A connection keeps keys, IVs, sequence numbers and secrets, 0.3 KiB in all. Contexts of
//! the AEAD are cached per thread, for busy connections only (`contexts.rs`). Keys, secrets and contexts are wiped on
//! drop.
//!
//! An established session can be [exported](Session::export) as plain data, a [`Snapshot`], and imported elsewhere.
#![forbid(unsafe_code)]

pub mod aead;
mod chunks;
mod compact_tls_info;
mod contexts;
mod gather;
mod keys;
mod phases;
mod records;
mod schedule;
mod session;
mod snapshot;

pub use aead::AeadChoice;
pub use compact_tls_info::CompactTlsInfo;
pub use gather::gather;
pub use keys::Keys;
pub use phases::Phases;
pub use records::{Records, TICKETS, TICKETS_RESUMED, Tickets};
pub use schedule::{Secret, Suite};
pub use session::{Library, Session};
pub use snapshot::{Role, Snapshot, Traffic};
