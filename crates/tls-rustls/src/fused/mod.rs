//! rustls' handshake with our own TLS 1.3 records.
//!
//! After a TLS 1.3 handshake rustls exports its keys (`dangerous_into_kernel_connection`, made for kernel TLS), and
//! [`tautline_tls_records`] opens and seals records in place. Key updates need the traffic secrets, which come through
//! rustls' key log. So a server keeps nothing of rustls' for an open connection. A client keeps rustls' ticket handling
//! until it has tickets.
//!
//! An open session can be [exported](Session::export) as plain data, a [`Snapshot`], and continue elsewhere.
//!
//! Connections that negotiate TLS 1.2 keep rustls' records. There is no early data.

mod engine;
mod handshake;

pub use engine::{Engine, Session};
pub use handshake::Handshaking;
pub use tautline_tls_records::{Role, Snapshot, Suite, Traffic};
