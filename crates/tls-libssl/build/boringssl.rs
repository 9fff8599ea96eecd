//! BoringSSL from the sources in `boring-sys`.
//!
//! That package itself is not built. It does not say where its library lies, so the symbols could not be hidden.

use crate::shim::shim;
use std::path::Path;
use std::process::Command;
use tautline_tls_build::{self as tools, run};

/// Builds BoringSSL and links it.
pub(crate) fn library() -> Result<(), String> {
    let (version, sources) = tools::find_package("boring-sys")?;
    let sources = sources.join("deps/boringssl");
    let folder =
        tools::build_once(&format!("boringssl-{version}"), &["build/boringssl.rs"], |dir| build(&sources, dir))?;
    let shim = shim("boringssl", &[sources.join("include")])?;
    shim.link(&shim.compile()?, &[folder.join("libssl.a"), folder.join("libcrypto.a")])?;
    println!("cargo::rustc-link-lib=stdc++");
    Ok(())
}

fn build(sources: &Path, dir: &Path) -> Result<(), String> {
    let objects = dir.join("build");
    run(Command::new("cmake").arg("-S").arg(sources).arg("-B").arg(&objects).args([
        "-DCMAKE_BUILD_TYPE=Release",
        "-DCMAKE_POSITION_INDEPENDENT_CODE=ON",
        "-DBUILD_TESTING=OFF",
    ]))?;
    let jobs = std::env::var("NUM_JOBS").unwrap_or_else(|_| "2".to_owned());
    run(Command::new("cmake").arg("--build").arg(&objects).args(["--target", "ssl", "crypto", "--parallel", &jobs]))?;
    for archive in ["libssl.a", "libcrypto.a"] {
        let built = objects.join(archive);
        std::fs::rename(&built, dir.join(archive)).map_err(|error| format!("{}: {error}", built.display()))?;
    }
    // The objects are not needed any more.
    let _ = std::fs::remove_dir_all(objects);
    Ok(())
}
