//! The shim of this crate.

use std::path::PathBuf;
use tautline_tls_build::Shim;

const SOURCES: [&str; 6] =
    ["csrc/connection.c", "csrc/context.c", "csrc/memory.c", "csrc/staple.c", "csrc/table.c", "csrc/tickets.c"];

/// The shim for the library `name`, whose headers lie in `include`.
pub(crate) fn shim(name: &str, include: &[PathBuf]) -> Result<Shim, String> {
    Shim::new(&format!("tautline_libssl_{name}"), &SOURCES, include)
}
