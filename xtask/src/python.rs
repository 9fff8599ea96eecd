//! The package for Python: built as a wheel, installed and tested below `target/xtask/python`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::outcome::{Failure, Outcome};
use crate::process::{run, run_logged, succeeds};
use crate::stage::Context;
use crate::{install, paths, taut};

/// The manifest of the package's native part, a workspace of its own.
pub(crate) const MANIFEST: &str = "bindings/python/Cargo.toml";
/// The tools, the test runner, and the peers of the tests.
const PACKAGES: [&str; 6] =
    ["maturin==1.16.0", "pytest==9.2.0", "mypy==2.4.1", "websockets==17.4", "aiohttp==3.14.5", "uvloop==0.23.0"];

/// The tests of the package `websockets`, which its archive on PyPI lacks.
const WEBSOCKETS: &str = "https://github.com/python-websockets/websockets";
const WEBSOCKETS_COMMIT: &str = "fd3f16cc4f57ace08e323a7806f1432e957cb75e";
/// Tests that use the public interface. Those of messages and of `asyncio.connection` need protocol objects.
const WEBSOCKETS_TESTS: [&str; 3] =
    ["tests/asyncio/test_client.py", "tests/asyncio/test_server.py", "tests/asyncio/test_router.py"];

/// The interpreter that has the package, once the tests have run.
pub(crate) fn interpreter() -> PathBuf {
    paths::own("python").join("venv/bin/python")
}

/// Builds the wheel, installs it, and runs its tests, those of the snippets in docs/python.md included.
pub(crate) fn test(context: &Context) -> Outcome {
    if !succeeds("python3", &["-c", "import sys, venv; sys.exit(sys.version_info < (3, 9))"]) {
        return Err(Failure::Skipped("needs Python 3.9 or newer with venv".to_owned()));
    }
    let folder = paths::own("python");
    let venv = folder.join("venv");
    let log = paths::log("python-setup");
    install::venv(&venv, &PACKAGES, "pytest", &log, context.deadline)?;
    let wheels = folder.join("wheels");
    paths::empty(&wheels)?;
    let mut build = Command::new(venv.join("bin/maturin"));
    build.args(["build", "--profile", "dev", "--locked", "--manifest-path", MANIFEST, "--out"]).arg(&wheels);
    // In the workspace's folder most of its dependencies are compiled already.
    build.args(["--config", "Cargo.toml", "--target-dir"]).arg(paths::target()).current_dir(paths::root());
    build.env("PYO3_PYTHON", venv.join("bin/python"));
    run(&mut build, context.deadline)?;
    let wheel = fs::read_dir(&wheels)?.next().transpose()?;
    let wheel = wheel.ok_or("maturin made no wheel")?.path();
    let mut install = module(&venv, "pip");
    install.args(["install", "--quiet", "--no-deps", "--force-reinstall"]).arg(wheel);
    run_logged(&mut install, &log, context.deadline)?;
    let mut pytest = module(&venv, "pytest");
    pytest.args(["-q", "-p", "no:cacheprovider", "tests"]).current_dir(tests_parent());
    // The hub that its client's tests kill and start again.
    pytest.env("TAUTLINE_PROGRAM", taut::program());
    run(&mut pytest, context.deadline)
}

/// Runs the asyncio tests of the package `websockets` against ours, which [`test()`] has installed.
///
/// They are read from a checkout of that package, or else cloned.
pub(crate) fn websockets_tests(context: &Context, checkout: Option<&Path>) -> Outcome {
    let folder = paths::own("python");
    let log = paths::log("python-websockets");
    let source = match checkout {
        Some(checkout) => checkout.canonicalize()?,
        None => {
            let cloned = folder.join("websockets");
            install::once(
                &cloned,
                WEBSOCKETS_COMMIT,
                |cloned| cloned.join(WEBSOCKETS_TESTS[0]).exists(),
                |cloned| clone(cloned, &log, context),
            )?;
            cloned
        }
    };
    // Only the tests: beside the package's own modules they would import those.
    let copy = folder.join("websockets-tests");
    paths::empty(&copy)?;
    run_logged(Command::new("cp").arg("-r").arg(source.join("tests")).arg(&copy), &log, context.deadline)?;
    let venv = folder.join("venv");
    let mut install = module(&venv, "pip");
    run_logged(install.args(["install", "--quiet", "werkzeug==3.1.3"]), &log, context.deadline)?;
    let mut pytest = module(&venv, "pytest");
    pytest.args(["-q", "-rs", "--tb=short", "-p", "no:cacheprovider", "-p", "websockets_suite"]);
    pytest.args(WEBSOCKETS_TESTS).current_dir(&copy);
    // Their deadlines of milliseconds, each a hundred times as long: a loop's timers are up to 64 ms late.
    pytest.env("PYTHONPATH", tests_parent().join("tests")).env("WEBSOCKETS_TESTS_TIMEOUT_FACTOR", "100");
    run(&mut pytest, context.deadline)
}

/// Fetches the one commit that has the tests.
fn clone(folder: &Path, log: &Path, context: &Context) -> Outcome {
    for arguments in [
        &["init", "--quiet"][..],
        &["fetch", "--quiet", "--depth", "1", WEBSOCKETS, WEBSOCKETS_COMMIT],
        &["checkout", "--quiet", "FETCH_HEAD"],
    ] {
        run_logged(Command::new("git").arg("-C").arg(folder).args(arguments), log, context.deadline)?;
    }
    Ok(())
}

/// Runs a module of Python's. Programs in `bin` name the folder where the environment was made, so it could not be moved.
fn module(venv: &Path, name: &str) -> Command {
    let mut command = Command::new(venv.join("bin/python"));
    command.args(["-m", name]);
    command
}

fn tests_parent() -> PathBuf {
    paths::root().join("bindings/python")
}
