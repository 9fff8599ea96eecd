//! Upgrades in a row under load, between two builds of `taut`.

use crate::cargo::cargo;
use crate::outcome::Outcome;
use crate::paths;
use crate::process::run;
use crate::stage::Context;

/// Connections, messages per second and upgrades of the full run.
pub(crate) const FULL: &str = "10000,20000,100";

/// Builds `taut` with its default features and without them, and upgrades from one to the other and back.
pub(crate) fn test(context: &Context, size: &str) -> Outcome {
    let other = paths::own("upgrades");
    let package = ["--release", "--package", "tautline-cli", "--locked"];
    let mut build = cargo(&["build", "--no-default-features"]);
    run(build.args(package).arg("--target-dir").arg(&other), context.deadline)?;
    let mut test = cargo(&["test", "--test", "program"]);
    test.args(package).args(["--", "--exact", "--nocapture"]);
    test.arg("generations::nothing_is_lost_in_a_row_of_upgrades_under_load");
    test.env("TAUT_UPGRADES", size).env("TAUT_OTHER_BUILD", other.join("release/taut"));
    run(&mut test, context.deadline)
}
