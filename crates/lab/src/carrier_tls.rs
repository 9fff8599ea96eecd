//! The TLS of a connection with HTTP/2, for those who see only its streams.

use std::sync::{Arc, Mutex};
use tautline::TlsInfo;

/// The TLS of the last connection with HTTP/2. Its streams have none to their loop.
pub type CarrierTls = Arc<Mutex<TlsInfo>>;
