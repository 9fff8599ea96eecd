//! The package for Python: built as a wheel, installed and tested below `target/xtask/python`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::outcome::{Failure, Outcome};
use crate::process::{run, run_logged, succeeds};
use crate::stage::Context;
use crate::{install, paths};

/// The manifest of the package's native part, a workspace of its own.
pub(crate) const MANIFEST: &str = "bindings/python/Cargo.toml";
/// The tools, the test runner, and the peers of the tests.
const PACKAGES: [&str; 5] =
    ["maturin==1.16.0", "pytest==9.2.0", "websockets==17.4", "aiohttp==3.14.5", "uvloop==0.23.0"];

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
    install::once(
        &venv,
        &PACKAGES.join(" "),
        |venv| venv.join("bin/pytest").exists(),
        |venv| install::python(venv, &PACKAGES, &log, context.deadline),
    )?;
    let wheels = folder.join("wheels");
    if wheels.exists() {
        fs::remove_dir_all(&wheels)?;
    }
    let mut build = Command::new(venv.join("bin/maturin"));
    build.args(["build", "--profile", "dev", "--locked", "--manifest-path", MANIFEST, "--out"]).arg(&wheels);
    // In the workspace's folder most of its dependencies are compiled already.
    build.args(["--config", "Cargo.toml", "--target-dir"]).arg(paths::target()).current_dir(paths::root());
    build.env("PYO3_PYTHON", venv.join("bin/python"));
    run(&mut build, context.deadline)?;
    let wheel = fs::read_dir(&wheels)?.next().transpose()?;
    let wheel = wheel.ok_or_else(|| Failure::Failed("maturin made no wheel".to_owned()))?.path();
    let mut install = Command::new(venv.join("bin/pip"));
    install.args(["install", "--quiet", "--no-deps", "--force-reinstall"]).arg(wheel);
    run_logged(&mut install, &log, context.deadline)?;
    let mut pytest = Command::new(venv.join("bin/pytest"));
    pytest.args(["-q", "-p", "no:cacheprovider", "tests"]).current_dir(paths::root().join("bindings/python"));
    run(&mut pytest, context.deadline)
}
