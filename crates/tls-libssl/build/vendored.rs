//! OpenSSL from its sources.

use crate::cache;
use std::path::PathBuf;

/// Builds OpenSSL where that is not done yet and gives its prefix.
pub(crate) fn openssl() -> Result<PathBuf, String> {
    let name = format!("openssl-{}", openssl_src::version().replace('+', "-"));
    let dir = cache::folder(&name, |dir| {
        openssl_src::Build::new().out_dir(dir).build();
        // Nobody needs the objects any more.
        let _ = std::fs::remove_dir_all(dir.join("build"));
        Ok(())
    })?;
    Ok(dir.join("install"))
}
