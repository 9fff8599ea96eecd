//! The library for C: its tests in full, and its installation.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::cargo::cargo;
use crate::outcome::{Failure, Outcome};
use crate::paths;
use crate::process::{self, run};
use crate::stage::Context;

/// The version of the binary interface, as in the library's soname (`crates/capi/build.rs`).
const SONAME: &str = "libtautline.so.0";

/// Libraries of the system that programs with the static library link too.
const SYSTEM: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";

/// Builds the library, and installs it with its header below `prefix`. `options` are cargo's, such as features.
pub(crate) fn install(context: &Context, prefix: &Path, options: &[&str]) -> Outcome {
    let mut build = cargo(&["build", "--release", "--locked", "-p", "tautline-capi"]);
    run(build.args(options), context.deadline)?;
    let [include, lib] = ["include", "lib"].map(|folder| prefix.join(folder));
    let packages = lib.join("pkgconfig");
    [&include, &packages].into_iter().try_for_each(fs::create_dir_all)?;
    let built = paths::target().join("release");
    let version = env!("CARGO_PKG_VERSION");
    let whole = format!("libtautline.so.{version}");
    fs::copy(paths::root().join("crates/capi/include/tautline.h"), include.join("tautline.h"))?;
    fs::copy(built.join("libtautline_capi.so"), lib.join(&whole))?;
    fs::copy(built.join("libtautline_capi.a"), lib.join("libtautline.a"))?;
    for (link, to) in [(SONAME, whole.as_str()), ("libtautline.so", SONAME)] {
        let link = lib.join(link);
        if link.symlink_metadata().is_ok() {
            fs::remove_file(&link)?;
        }
        symlink(to, link)?;
    }
    fs::write(packages.join("tautline.pc"), package(prefix, version))?;
    println!("installed below {}", prefix.display());
    Ok(())
}

/// The file by which pkg-config knows the library.
fn package(prefix: &Path, version: &str) -> String {
    format!(
        "prefix={}\n\nName: tautline\nDescription: TLS in one call\nVersion: {version}\nCflags: -I${{prefix}}/include\n\
         Libs: -L${{prefix}}/lib -ltautline\nLibs.private: {SYSTEM}\n",
        prefix.display()
    )
}

/// All tests of the library in full length, with C++ and valgrind, and an example against the installed library.
pub(crate) fn test(context: &Context) -> Outcome {
    let mut test = cargo(&["test", "--locked", "--no-fail-fast", "-p", "tautline-capi"]);
    run(test.env("TAUTLINE_WHOLE", "1"), context.deadline)?;
    let prefix = paths::own("c-library");
    install(context, &prefix, &[])?;
    for wanted in [&["--libs"][..], &["--static", "--libs"]] {
        let mut flags = Command::new("pkg-config");
        flags.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).arg("--cflags").args(wanted).arg("tautline");
        let flags = process::output(&mut flags);
        let flags = flags.ok_or_else(|| Failure::Failed("pkg-config does not find the library".to_owned()))?;
        let mut cc = Command::new("cc");
        cc.args(["-std=c99", "-o"]).arg(prefix.join("echo")).arg(paths::root().join("examples/c/echo.c"));
        if wanted.len() == 2 {
            cc.arg("-Wl,-Bstatic");
        }
        cc.args(flags.replace("-ltautline", "-ltautline -Wl,-Bdynamic").split_whitespace());
        run(&mut cc, context.deadline)?;
        let mut echo = Command::new(prefix.join("echo"));
        echo.env("LD_LIBRARY_PATH", prefix.join("lib"));
        // Without arguments it prints its usage, so the library was found.
        if echo.status()?.code() != Some(2) {
            return Err(Failure::Failed("the example does not run with the installed library".to_owned()));
        }
    }
    Ok(())
}
