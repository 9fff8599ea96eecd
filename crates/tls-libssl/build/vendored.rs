//! OpenSSL from its sources.

use std::path::PathBuf;
use tautline_tls_build as tools;

/// Builds OpenSSL unless that is done, and returns its prefix.
pub(crate) fn openssl() -> Result<PathBuf, String> {
    let name = format!("openssl-{}", openssl_src::version().replace('+', "-"));
    let dir = tools::build_once(&name, &["build/vendored.rs"], |dir| {
        openssl_src::Build::new().out_dir(dir).build();
        // The objects are not needed any more.
        let _ = std::fs::remove_dir_all(dir.join("build"));
        Ok(())
    })?;
    Ok(dir.join("install"))
}
