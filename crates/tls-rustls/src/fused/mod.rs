//! rustls' handshake, our own TLS 1.3 records.
//!
//! After a TLS 1.3 handshake rustls hands its keys over (`dangerous_into_kernel_connection`, made for kernel TLS), and
//! [`tautline_tls_records`] opens and seals records in place. The traffic secrets, for key updates, come through the log of
//! keys that rustls has, so that a server keeps nothing of rustls' for a connection that stands; a client keeps what takes
//! tickets until it has some.
//!
//! An established session can be [exported](Session::export) as plain data, a [`Snapshot`], and go on elsewhere.
//!
//! Connections that agree on TLS 1.2 stay with rustls' records. There is no early data.

mod engine;
mod handshake;
mod tap;

pub use engine::Engine;
pub use handshake::Handshaking;
pub(crate) use tap::install as tap_keys;
pub use tautline_tls_records::{Role, Snapshot, Suite, Traffic};

/// One connection: rustls' handshake, then our own records.
pub type Session = tautline_tls_records::Session<Handshaking>;
