//! The alerts for Prometheus, checked by its own tool.

use std::path::PathBuf;
use std::process::Command;

use crate::outcome::{Failure, Outcome};
use crate::process::{self, run_logged, succeeds};
use crate::stage::Context;
use crate::{install, paths};

/// Debian's package that has `promtool`. It is unpacked and not installed, since it would start a server.
const PACKAGE: &str = "prometheus";

/// Checks the rules, and runs their tests.
pub(crate) fn test(context: &Context) -> Outcome {
    let promtool = promtool(context)?;
    let folder = paths::root().join("packaging/prometheus");
    for arguments in [["check", "rules", "tautline.rules.yml"], ["test", "rules", "tautline.test.yml"]] {
        process::run(Command::new(&promtool).args(arguments).current_dir(&folder), context.deadline)?;
    }
    Ok(())
}

/// The tool's path: an installed one, or one of Debian's package.
fn promtool(context: &Context) -> Result<PathBuf, Failure> {
    if succeeds("promtool", &["--version"]) {
        return Ok("promtool".into());
    }
    if !succeeds("apt-get", &["--version"]) || !succeeds("dpkg-deb", &["--version"]) {
        return Err(Failure::Skipped(format!("promtool is not installed: it is in Debian's package {PACKAGE}")));
    }
    let folder = paths::own("promtool");
    let program = folder.join("usr/bin/promtool");
    let works = |_: &std::path::Path| process::output(Command::new(&program).arg("--version")).is_some();
    let installed = install::once(&folder, PACKAGE, works, |folder| {
        let script = format!("apt-get download {PACKAGE} && dpkg-deb -x {PACKAGE}_*.deb . && rm {PACKAGE}_*.deb");
        let mut unpack = Command::new("sh");
        unpack.args(["-c", &script]).current_dir(folder);
        run_logged(&mut unpack, &paths::log("promtool"), context.deadline)
    });
    match installed {
        Ok(()) => Ok(program),
        Err(_) => Err(Failure::Skipped(format!("Debian's package {PACKAGE} cannot be fetched"))),
    }
}
