//! TLS of acceptors and connectors. Without the feature `tls` there is none: its types have no values.

#[cfg(feature = "tls")]
mod enabled;
#[cfg(feature = "tls")]
pub(crate) use enabled::{Client, Server};

#[cfg(not(feature = "tls"))]
mod disabled;
#[cfg(not(feature = "tls"))]
pub(crate) use disabled::{Client, Server};
