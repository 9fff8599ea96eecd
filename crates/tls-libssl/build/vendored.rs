//! OpenSSL from its sources.

use std::path::PathBuf;
use tautline_tls_build as tools;

/// Builds OpenSSL where that is not done yet and gives its prefix.
pub(crate) fn openssl() -> Result<PathBuf, String> {
    let name = format!("openssl-{}", openssl_src::version().replace('+', "-"));
    let dir = tools::folder(&name, &["build/vendored.rs"], |dir| {
        openssl_src::Build::new().out_dir(dir).build();
        // Nobody needs the objects any more.
        let _ = std::fs::remove_dir_all(dir.join("build"));
        Ok(())
    })?;
    Ok(dir.join("install"))
}
