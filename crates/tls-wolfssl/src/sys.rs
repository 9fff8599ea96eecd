//! The table that the build script links.

use tautline_tls_libssl::{Flavour, Outside, Table};

unsafe extern "C" {
    static tautline_wolfssl: Table;
}

// SAFETY: the shim in `csrc` defines this table as its TL_TABLE, and is written to that contract.
static LIBRARY: Outside = unsafe { Outside::new(&raw const tautline_wolfssl, "wolfssl", "wolfSSL") };

/// wolfSSL, for `tautline_tls_libssl::Engine::new`.
pub const FLAVOUR: Flavour = Flavour::Outside(&LIBRARY);
