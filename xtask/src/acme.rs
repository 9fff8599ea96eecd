//! Certificates by themselves against pebble, an authority for tests that Debian and Ubuntu package.

use crate::cargo::cargo;
use crate::outcome::{Failure, Outcome};
use crate::process::{run, succeeds};
use crate::stage::Context;

/// Nothing else compiles `taut serve --acme`, or the feature of the library.
const BUILD: [&str; 6] = ["--package", "tautline", "--package", "tautline-cli", "--features", "tautline-cli/acme"];

/// The feature without warnings, and its tests against an authority with its faults on.
pub(crate) fn test(context: &Context) -> Outcome {
    for tool in ["pebble", "pebble-challtestsrv"] {
        if !succeeds("sh", &["-c", &format!("command -v {tool}")]) {
            return Err(Failure::Skipped(format!("{tool} is not installed (cargo xtask setup)")));
        }
    }
    let mut clippy = cargo(&["clippy", "--locked", "--all-targets"]);
    run(clippy.args(BUILD).args(["--", "-D", "warnings"]), context.deadline)?;
    let mut doc = cargo(&["doc", "--locked", "--no-deps"]);
    run(doc.args(BUILD).env("RUSTDOCFLAGS", "-D warnings"), context.deadline)?;
    run(cargo(&["test", "--locked", "--lib", "--bins"]).args(BUILD).arg("acme"), context.deadline)?;
    let mut test = cargo(&["test", "--locked", "--test", "acme"]);
    run(test.args(BUILD).args(["--", "--include-ignored", "--nocapture"]), context.deadline)
}
