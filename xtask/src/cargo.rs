//! Stages that are cargo's own work, and the cargo tools they need.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs, io};

use crate::process::{self, run, run_logged, succeeds};
use crate::stage::{Context, Failure, Outcome};
use crate::{install, paths, peers, taut};

/// The version of cargo-deny that is installed where there is none.
pub(crate) const DENY: &str = "0.20.2";
const FUZZ: &str = "0.13.2";
/// A workspace of its own.
const FUZZ_TARGETS: &str = "fuzz/Cargo.toml";

pub(crate) fn fmt(context: &Context) -> Outcome {
    run(&mut cargo(&["fmt", "--all", "--check"]), context.deadline)?;
    for manifest in [FUZZ_TARGETS, peers::MANIFEST] {
        run(&mut cargo(&["fmt", "--manifest-path", manifest, "--check"]), context.deadline)?;
    }
    Ok(())
}

pub(crate) fn clippy(context: &Context) -> Outcome {
    let arguments = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
    run(&mut cargo(&arguments), context.deadline)?;
    // Fuzzing itself needs a nightly compiler; that its targets still fit the code does not.
    let mut fuzz = cargo(&["clippy", "--manifest-path", FUZZ_TARGETS, "--target-dir"]);
    run(fuzz.arg(paths::target().join("fuzz")).args(["--", "-D", "warnings"]), context.deadline)?;
    let mut peers = cargo(&["clippy", "--manifest-path", peers::MANIFEST, "--all-targets", "--locked", "--target-dir"]);
    run(peers.arg(peers::target()).args(["--", "-D", "warnings"]), context.deadline)
}

pub(crate) fn test(context: &Context) -> Outcome {
    // Tests that cannot run here say so in this file.
    let told = paths::log("skipped-tests");
    if let Err(error) = fs::remove_file(&told)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error.into());
    }
    let mut test = cargo(&["test", "--workspace", "--locked", "--no-fail-fast"]);
    run(test.env("TAUTLINE_SKIPPED", &told), context.deadline)?;
    for (part, reason) in skipped(&fs::read_to_string(&told).unwrap_or_default()) {
        context.skip(part, reason);
    }
    Ok(())
}

/// What tests said that they could not do, and why, each once.
fn skipped(told: &str) -> BTreeSet<(&str, &str)> {
    told.lines().filter_map(|line| line.split_once(": ")).collect()
}

/// What runs over epoll in the ordinary tests, over io_uring: hostile peers among it.
pub(crate) fn uring(context: &Context) -> Outcome {
    if let Some(reason) = taut::lacks_uring()? {
        return Err(Failure::Skipped(reason));
    }
    let mut tests = cargo(&["test", "--locked", "--no-fail-fast", "-p", "tautline", "--test", "e2e"]);
    run(tests.args(["--test", "allocations"]).env("TAUTLINE_TEST_IO", "uring"), context.deadline)
}

/// The TLS libraries that a default build leaves out: each by itself, then all in one program, each against each, and that
/// program's own tests and suites. LibreSSL, which no registry carries, is tested where `TAUTLINE_LIBRESSL` names it; OpenSSL
/// once more as the system has it.
pub(crate) fn engines(context: &Context) -> Outcome {
    let mut engines =
        vec!["tautline-tls-libssl/engines", "tautline-tls-mbedtls/mbedtls", "tautline-tls-wolfssl/wolfssl"];
    let mut all = vec!["tautline/engines", "tautline/wolfssl", "tautline-cli/engines", "tautline-cli/wolfssl"];
    if env::var_os("TAUTLINE_LIBRESSL").is_some_and(|prefix| !prefix.is_empty()) {
        engines.push("tautline-tls-libssl/libressl");
        all.extend(["tautline/libressl", "tautline-cli/libressl"]);
    }
    if cfg!(target_os = "linux") {
        // Suites over AF_XDP.
        all.push("tautline-cli/xdp");
    }
    all.extend(&engines);
    let with = |command: &[&str], packages: &[&str], features: &[&str]| {
        let mut command = cargo(command);
        command.args(packages.iter().flat_map(|package| ["-p", package]));
        command.args(["--features", &features.join(","), "--locked"]);
        command
    };
    let each = ["tautline-tls-libssl", "tautline-tls-mbedtls", "tautline-tls-wolfssl"];
    let together = [&each[..], &["tautline", "tautline-lab", "tautline-cli"]].concat();
    let mut clippy = with(&["clippy", "--all-targets"], &together, &all);
    run(clippy.args(["--", "-D", "warnings"]), context.deadline)?;
    let tests =
        ["configuration", "conformance", "fused", "growth", "libraries", "program"].map(|name| ["--test", name]);
    let mut test = with(&["test", "--no-fail-fast", "--lib", "--bins"], &together, &all);
    run(test.args(tests.as_flattened()), context.deadline)?;
    run(&mut with(&["test", "--doc"], &each, &engines), context.deadline)?;
    let tests = ["test", "--lib", "--test", "conformance"];
    let mut of_the_system = with(&tests, &["tautline-tls-libssl"], &["tautline-tls-libssl/openssl"]);
    run(of_the_system.env("TAUTLINE_OPENSSL", "/usr"), context.deadline)
}

pub(crate) fn doc(context: &Context) -> Outcome {
    let mut command = cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
    run(command.env("RUSTDOCFLAGS", "-D warnings"), context.deadline)
}

/// Fails where a program that nobody asked to be under the GPL would be: only the feature `wolfssl` brings such code in.
fn no_gpl_unasked() -> Outcome {
    let tree = ["tree", "-p", "tautline-cli", "--features", "engines,libressl,xdp", "--target", "all"];
    let mut tree = cargo(&tree);
    tree.args(["--edges", "normal,build", "--prefix", "none", "--format", "{p}", "--locked"]);
    let tree = process::output(&mut tree).ok_or_else(|| Failure::Failed("`cargo tree` failed".to_owned()))?;
    match tree.lines().find(|package| package.starts_with("wolfssl") || package.starts_with("tautline-tls-wolfssl")) {
        Some(package) => Err(Failure::Failed(format!("{package} is built in without the feature `wolfssl`"))),
        None => Ok(()),
    }
}

/// Licences, bans and sources always; advisories where their database can be had.
pub(crate) fn deny(context: &Context) -> Outcome {
    no_gpl_unasked()?;
    let tool = tool(context, "cargo-deny", DENY)?;
    let deny = |arguments: &[&str]| {
        let mut command = Command::new(&tool);
        command.args(arguments).current_dir(paths::root());
        command
    };
    for manifest in ["Cargo.toml", peers::MANIFEST] {
        let mut command = deny(&["--manifest-path", manifest, "--config", "deny.toml", "--locked", "check"]);
        run(command.args(["bans", "licenses", "sources"]), context.deadline)?;
    }
    let fetched = run_logged(
        &mut deny(&["fetch", "db"]),
        &paths::log("advisories"),
        context.deadline.within(std::time::Duration::from_secs(120)),
    );
    if fetched.is_err() {
        context.skip(
            "deny: advisories",
            "the advisory database cannot be fetched, so known vulnerabilities went unchecked",
        );
        return Ok(());
    }
    run(&mut deny(&["--locked", "check", "--disable-fetch", "advisories"]), context.deadline)
}

/// Buffers and masks under Miri, side by side.
pub(crate) fn miri(context: &Context) -> Outcome {
    let nightly = |arguments: &[&str]| {
        let mut command = Command::new("rustup");
        command.args(["run", "nightly", "cargo"]).args(arguments).current_dir(paths::root());
        command.env("MIRIFLAGS", "-Zmiri-disable-isolation").env("XDG_CACHE_HOME", paths::own("cache"));
        if cfg!(target_arch = "x86_64") {
            // What Miri interprets has the features that it was compiled for, whatever this machine has.
            command.env("RUSTFLAGS", "-Ctarget-feature=+avx2");
        }
        command
    };
    if !succeeds("rustup", &["run", "nightly", "cargo", "--version"]) {
        return Err(Failure::Skipped("no nightly toolchain (rustup toolchain install nightly)".to_owned()));
    }
    let ready = || process::output(&mut nightly(&["miri", "--version"])).is_some();
    if !ready() {
        let mut add = Command::new("rustup");
        add.args(["component", "add", "miri", "rust-src", "--toolchain", "nightly"]);
        let added = run_logged(&mut add, &paths::log("miri-install"), context.deadline);
        if added.is_err() || !ready() {
            return Err(Failure::Skipped("the component miri cannot be added to the nightly toolchain".to_owned()));
        }
    }
    run_logged(&mut nightly(&["miri", "setup"]), &paths::log("miri-setup"), context.deadline)?;
    let test = |package: &'static str, filter: &'static str| {
        let log = paths::log(&format!("miri-{package}"));
        (nightly(&["miri", "test", "--locked", "--lib", "-p", package, "--", filter]), log)
    };
    process::run_all(vec![test("tautline-window", ""), test("tautline-ws", "mask::")], context.deadline)
}

/// Runs every fuzz target for a while.
pub(crate) fn fuzz(context: &Context, seconds: u64) -> Outcome {
    if !succeeds("rustup", &["run", "nightly", "cargo", "--version"]) {
        return Err(Failure::Skipped(
            "fuzzing needs a nightly toolchain (rustup toolchain install nightly)".to_owned(),
        ));
    }
    let tool = tool(context, "cargo-fuzz", FUZZ)?;
    let fuzz = |arguments: &[&str]| {
        let mut command = Command::new("rustup");
        command.args(["run", "nightly"]).arg(&tool).arg("fuzz").args(arguments).current_dir(paths::root());
        command
    };
    let list = process::output(&mut fuzz(&["list"]));
    let list =
        list.ok_or_else(|| Failure::Failed("`cargo fuzz list` failed: is there a fuzz/Cargo.toml?".to_owned()))?;
    let limit = format!("-max_total_time={seconds}");
    let mut failed = Vec::new();
    for target in list.lines() {
        // The corpus in git is read, not written: what is found goes to one of our own.
        let corpus = paths::own("corpus").join(target);
        fs::create_dir_all(&corpus)?;
        let committed = paths::root().join("fuzz/corpus").join(target);
        // -O leaves the assertions to the profile in fuzz/Cargo.toml, which knows what to except.
        let mut command = fuzz(&["run", "-O", target]);
        command.arg(corpus).arg(committed).args(["--", &limit, "-rss_limit_mb=2048", "-timeout=10", "-verbosity=0"]);
        if run(&mut command, context.deadline).is_err() {
            failed.push(target);
        }
    }
    match failed.as_slice() {
        [] => Ok(()),
        _ => Err(Failure::Failed(format!("findings in {}; see fuzz/artifacts", failed.join(", ")))),
    }
}

/// A cargo tool: the installed one, else one built below `target/xtask`.
pub(crate) fn tool(context: &Context, name: &str, version: &str) -> Result<PathBuf, Failure> {
    if succeeds(name, &["--version"]) {
        return Ok(PathBuf::from(name));
    }
    let folder = paths::own(name);
    let program = folder.join("bin").join(name);
    let probe = program.clone();
    install::once(
        &folder,
        version,
        |_| process::output(Command::new(&probe).arg("--version")).is_some(),
        |folder| {
            let mut command = cargo(&["install", "--locked", "--debug", "--version", version, name, "--root"]);
            command.arg(folder).arg("--target-dir").arg(folder.join("build"));
            run_logged(&mut command, &paths::log(&format!("{name}-install")), context.deadline)?;
            fs::remove_dir_all(folder.join("build"))?;
            Ok(())
        },
    )?;
    Ok(program)
}

/// Cargo in the checkout.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(paths::root());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tests_skip_is_told_once() {
        let told = "all of the io_uring driver: Linux 6.12 is needed: this is 6.1\nIPv6: none\nIPv6: none\n";
        let expected = [("IPv6", "none"), ("all of the io_uring driver", "Linux 6.12 is needed: this is 6.1")];
        assert_eq!(skipped(told).into_iter().collect::<Vec<_>>(), expected);
        assert!(skipped("").is_empty());
    }
}
