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
    let level = format!("-O{}", tools::opt_level(3));
    let name = format!("boringssl-{version}{level}");
    let folder = tools::build_once(&name, &["build/boringssl.rs"], |dir| build(&sources, &level, dir))?;
    let shim = shim("boringssl", &[sources.join("include")])?;
    shim.link(&shim.compile()?, &[folder.join("libssl.a"), folder.join("libcrypto.a")])?;
    println!("cargo::rustc-link-lib=stdc++");
    Ok(())
}

fn build(sources: &Path, level: &str, dir: &Path) -> Result<(), String> {
    let objects = dir.join("build");
    // Its own flags bring debug information, which nobody would see behind the shim.
    let flags = ["C", "CXX"].map(|one| format!("-DCMAKE_{one}_FLAGS_RELEASE={level} -g0 -DNDEBUG"));
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(sources).arg("-B").arg(&objects).arg("-DCMAKE_BUILD_TYPE=Release").args(flags);
    run(configure.args(["-DCMAKE_POSITION_INDEPENDENT_CODE=ON", "-DBUILD_TESTING=OFF"]))?;
    let mut build = Command::new("cmake");
    build.arg("--build").arg(&objects).args(["--target", "ssl", "crypto", "--parallel", &tools::jobs()]);
    run(&mut build)?;
    for archive in ["libssl.a", "libcrypto.a"] {
        let built = objects.join(archive);
        std::fs::rename(&built, dir.join(archive)).map_err(|error| format!("{}: {error}", built.display()))?;
    }
    // The objects are not needed any more.
    let _ = std::fs::remove_dir_all(objects);
    Ok(())
}
