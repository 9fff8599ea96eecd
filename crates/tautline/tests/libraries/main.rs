//! All TLS libraries of this build in one program.
#![cfg(feature = "libssl")]

mod key_log;
mod pairs;
mod sockets;
mod spill;

use tautline::TlsEngine;
use tautline::layers::tls_libssl::Flavour;

/// All libraries in C of this build.
fn libraries() -> Vec<Flavour> {
    let flavour = |engine| match engine {
        TlsEngine::Libssl(flavour) => Some(flavour),
        _ => None,
    };
    TlsEngine::all().filter_map(flavour).collect()
}
