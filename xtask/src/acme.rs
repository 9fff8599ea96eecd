//! Certificates by themselves against pebble, an authority for tests.
//!
//! Go builds a version that has ARI (RFC 9773) and must-staple. Without Go it is the older one that Debian and Ubuntu package,
//! and the tests of both are skipped.

use std::path::{Path, PathBuf};

use crate::cargo::everything;
use crate::outcome::{Failure, Outcome};
use crate::process::{run, succeeds};
use crate::stage::Context;
use crate::{install, paths};

const PEBBLE: &str = "github.com/letsencrypt/pebble/v2/cmd";
const VERSION: &str = "v2.10.3";
const TOOLS: [&str; 2] = ["pebble", "pebble-challtestsrv"];

/// `taut serve --acme` with each TLS library, some of which answer HTTP-01 only, against an authority with its faults on.
pub(crate) fn test(context: &Context) -> Outcome {
    let pebble = pebble(context)?;
    let mut test = everything(&["test", "--test", "acme"]);
    if let Some(folder) = pebble {
        test.env("TAUTLINE_PEBBLE", folder);
    }
    run(test.args(["--", "--include-ignored", "--nocapture"]), context.deadline)
}

/// The folder of the pebble that Go builds; `None` if that of the system is to be used.
fn pebble(context: &Context) -> Result<Option<PathBuf>, Failure> {
    let why = match built(context) {
        Ok(folder) => return Ok(Some(folder)),
        Err(failure) => failure.reason(),
    };
    let is_there = |tool: &str| succeeds("sh", &["-c", &format!("command -v {tool}")]);
    if let Some(tool) = TOOLS.iter().find(|tool| !is_there(tool)) {
        return Err(Failure::Skipped(format!("{why}; {tool} is not installed either (cargo xtask setup)")));
    }
    context.skip("acme: ARI", &format!("{why}; packaged versions of pebble have neither ARI nor must-staple"));
    Ok(None)
}

/// The folder of pebble, built first unless it is there.
fn built(context: &Context) -> Result<PathBuf, Failure> {
    let works = |folder: &Path| TOOLS.iter().all(|tool| folder.join(tool).exists());
    let packages = TOOLS.map(|tool| format!("{PEBBLE}/{tool}@{VERSION}"));
    install::go("pebble", &packages, works, context.deadline)?;
    Ok(paths::own("pebble"))
}
