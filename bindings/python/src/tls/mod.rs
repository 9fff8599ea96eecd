//! TLS for the transports of asyncio, without a loop of ours: [`Engine`] makes a [`Session`] for each connection.

mod engine;
mod info;
mod options;
mod session;
mod state;

pub(crate) use engine::Engine;
pub(crate) use info::tls_dict;
pub(crate) use options::TlsOptions;
pub(crate) use session::Session;
