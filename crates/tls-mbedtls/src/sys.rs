//! The table that the build script links.

use tautline_tls_libssl::{Capabilities, External, Flavour, Table};

unsafe extern "C" {
    static tautline_mbedtls: Table;
}

static CAPABILITIES: Capabilities = {
    let mut can = Capabilities::new("mbedtls", "Mbed TLS 3.6").with_feature("mbedtls").with_session_memory(55_300);
    can.own_verifier = false;
    can.exporter = false;
    can.challenges = false;
    can.stapling = false;
    can.post_quantum = false;
    can.ed25519 = false;
    can
};

// SAFETY: the shim in `csrc` defines this table as its TL_TABLE and keeps its contract.
static LIBRARY: External = unsafe { External::new(&raw const tautline_mbedtls, "Mbed TLS", &CAPABILITIES) };

/// Mbed TLS, for `tautline_tls_libssl::Engine::new`.
pub const FLAVOUR: Flavour = Flavour::External(&LIBRARY);
