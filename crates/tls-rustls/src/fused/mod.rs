//! rustls' handshake, our own TLS 1.3 records.
//!
//! After a TLS 1.3 handshake rustls hands its keys over (`dangerous_into_kernel_connection`, made for kernel TLS), and
//! the session opens and seals records itself: in place in the caller's buffer, straight from the caller's slices,
//! without a copy or an allocation per record. The traffic secrets, for key updates, come through the log of keys that
//! rustls has, so that a server keeps nothing of rustls' for a connection that stands; a client keeps what takes tickets
//! until it has some. Everything else that a TLS implementation owes after the handshake is in `records.rs`: limits,
//! alerts, key updates, padding.
//!
//! The AEAD is aws-lc-rs' `LessSafeKey`; no tag is ever skipped, and no byte that did not authenticate is handed out. A
//! connection keeps keys, IVs, sequence numbers and secrets, 0.3 KiB in all; contexts of the AEAD are kept for busy ones
//! only, by thread (`contexts.rs`). Keys and secrets are wiped when they are done with.
//!
//! An established session can be [exported](Session::export) as plain data, a [`Snapshot`], and go on elsewhere.
//!
//! Connections that agree on TLS 1.2 stay with rustls' records. There is no early data.

mod chunks;
mod contexts;
mod engine;
mod keys;
mod records;
mod schedule;
mod session;
mod snapshot;
mod tap;

pub use engine::Engine;
pub use schedule::Suite;
pub use session::Session;
pub use snapshot::{Role, Snapshot, Traffic};
pub(crate) use tap::install as tap_keys;
