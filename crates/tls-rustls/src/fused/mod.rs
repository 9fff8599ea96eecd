//! rustls' handshake, our own TLS 1.3 records.
//!
//! After a TLS 1.3 handshake rustls hands its keys over (`dangerous_into_kernel_connection`, made for kernel TLS), and
//! the session opens and seals records itself: in place in the caller's buffer, straight from the caller's slices,
//! without a copy or an allocation per record. rustls still derives new keys and keeps a client's tickets. Everything
//! else that a TLS implementation owes after the handshake is in `records.rs`: limits, alerts, key updates, padding.
//!
//! The AEAD is aws-lc-rs' `LessSafeKey`; no tag is ever skipped, and no byte that did not authenticate is handed out.
//! Connections that agree on TLS 1.2 stay with rustls' records. There is no early data.

mod engine;
mod keys;
mod records;
mod session;

pub use engine::Engine;
pub use session::Session;
