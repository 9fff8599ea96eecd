//! The table that the build script links.

use tautline_tls_libssl::{Capabilities, External, Flavour, Table};

unsafe extern "C" {
    static tautline_wolfssl: Table;
}

static CAPABILITIES: Capabilities = {
    let mut can = Capabilities::new("wolfssl", "wolfSSL (GPLv3)").with_feature("wolfssl").with_session_memory(33_600);
    can.own_verifier = false;
    can.exporter = false;
    can.challenges = false;
    can.stapling = false;
    can.ed25519 = false;
    can.several_keys = false;
    can
};

// SAFETY: the shim in `csrc` defines this table as its TL_TABLE and keeps its contract.
static LIBRARY: External = unsafe { External::new(&raw const tautline_wolfssl, "wolfSSL", &CAPABILITIES) };

/// wolfSSL, for `tautline_tls_libssl::Engine::new`.
pub const FLAVOUR: Flavour = Flavour::External(&LIBRARY);
