//! TLS 1.3 records of our own, behind a library's handshake.
//!
//! Whoever gives away the traffic secrets of an established connection can have its records opened and sealed here: in
//! place in the caller's buffer, straight from the caller's slices, without a copy or an allocation per record. [`Session`]
//! is a session of a [`Library`] that does so as soon as it can. Everything that a TLS implementation owes after the
//! handshake is in [`Records`]: limits, alerts, key updates, padding.
//!
//! The AEAD is aws-lc-rs' `LessSafeKey`; no tag is ever skipped, and no byte that did not authenticate is handed out. A
//! connection keeps keys, IVs, sequence numbers and secrets, 0.3 KiB in all; contexts of the AEAD are kept for busy ones
//! only, by thread (`contexts.rs`). Keys and secrets are wiped when they are done with.
//!
//! An established session can be [exported](Session::export) as plain data, a [`Snapshot`], and go on elsewhere.
#![forbid(unsafe_code)]

mod agreed;
mod alert;
mod chunks;
mod contexts;
mod gather;
mod keys;
mod records;
mod schedule;
mod session;
mod snapshot;

pub use agreed::Agreed;
pub use alert::{DECODE_ERROR, ILLEGAL_PARAMETER};
pub use gather::gather;
pub use keys::Keys;
pub use records::{Records, TICKETS, TICKETS_RESUMED, Tickets};
pub use schedule::{Secret, Suite};
pub use session::{Library, Session};
pub use snapshot::{Role, Snapshot, Traffic};
