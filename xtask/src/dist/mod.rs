//! The program as it is shipped: one static file, the same from every build, and packages with it.

pub(crate) mod deb;

use std::env::{self, consts::ARCH};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::{cargo, executables};
use crate::outcome::{Failure, Outcome};
use crate::paths;
use crate::process::{self, run, succeeds};
use crate::stage::Context;

/// Builds `taut` for musl with the profile `dist`, and returns its path.
pub(crate) fn build(context: &Context) -> Result<PathBuf, Failure> {
    let kept = paths::own("dist").join("taut");
    let built = build_in(context, "first")?;
    fs::copy(built, &kept)?;
    must_be_static(&kept)?;
    let size = fs::metadata(&kept)?.len();
    eprintln!("{}: {:.1} MB, static", kept.display(), size as f64 / 1e6);
    Ok(kept)
}

/// Builds once more, in another folder, and compares the programs.
pub(crate) fn check(context: &Context, program: &Path) -> Outcome {
    let first = fs::read(program)?;
    let second = fs::read(build_in(context, "second")?)?;
    if first != second {
        let at = first.iter().zip(&second).position(|(one, other)| one != other);
        return Err(Failure::Failed(format!("two builds differ: {} and {} bytes, {at:?}", first.len(), second.len())));
    }
    eprintln!("two builds are equal, byte for byte");
    Ok(())
}

/// Builds in a folder below `target/xtask/dist`.
fn build_in(context: &Context, folder: &str) -> Result<PathBuf, Failure> {
    let target = format!("{ARCH}-unknown-linux-musl");
    if !succeeds("musl-gcc", &["--version"]) {
        return Err(Failure::Failed("there is no musl-gcc: install musl-tools".to_owned()));
    }
    run(Command::new("rustup").args(["target", "add", &target]), context.deadline)?;
    let folder = paths::own("dist").join(folder);
    let mut build = cargo(&["build", "--locked", "--profile", "dist", "-p", "tautline-cli", "--target", &target]);
    // Servers in production need them, and other builds need not compile them.
    build.args(["--features", "acme,http2,nats,redis"]).arg("--target-dir").arg(&folder);
    // Neither program has the names of folders of this machine, which panics and assertions print.
    let home = process::output(Command::new("rustc").args(["--print", "sysroot"])).unwrap_or_default();
    let cargo_home =
        env::var("CARGO_HOME").unwrap_or_else(|_| format!("{}/.cargo", env::var("HOME").unwrap_or_default()));
    let names = [
        (folder.display().to_string(), "/target"),
        (paths::root().display().to_string(), "/tautline"),
        (cargo_home, "/cargo"),
        (home.trim().to_owned(), "/rust"),
    ];
    let rust: Vec<String> = names.iter().map(|(from, to)| format!("--remap-path-prefix={from}={to}")).collect();
    let c: Vec<String> = names.iter().map(|(from, to)| format!("-ffile-prefix-map={from}={to}")).collect();
    let variable = target.replace('-', "_");
    build
        .env("CARGO_ENCODED_RUSTFLAGS", rust.join("\u{1f}"))
        .env(format!("CC_{variable}"), "musl-gcc")
        .env(format!("CFLAGS_{variable}"), c.join(" "))
        .env("SOURCE_DATE_EPOCH", "0");
    let [program] = executables(context, build, ["taut"])?;
    Ok(program)
}

/// A static program names no interpreter, the loader of shared libraries.
fn must_be_static(program: &Path) -> Outcome {
    let headers = process::output(Command::new("readelf").arg("-lW").arg(program));
    let headers = headers.ok_or("readelf failed: install binutils")?;
    if headers.contains("INTERP") {
        return Err(Failure::Failed(format!("{} is not static", program.display())));
    }
    if process::output(Command::new(program).arg("version")).is_none() {
        return Err(Failure::Failed(format!("{} does not run", program.display())));
    }
    Ok(())
}
