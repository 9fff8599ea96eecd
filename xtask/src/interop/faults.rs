//! Endpoints of other software with planted faults, which `taut probe` must find, and proxies as our documents
//! configure them.

use std::ffi::OsString;
use std::fs;

use super::peer::Peer;
use crate::outcome::{Failure, Outcome};
use crate::process::run_logged;
use crate::stage::Context;
use crate::taut;
use crate::{paths, peers};

/// The peer of `taut bench` whose server is an endpoint, too.
const UWEBSOCKETS: &str = "uwebsockets";

/// Runs `tests/probe/faults.py`, which starts the endpoints.
pub(crate) fn run(context: &Context) -> Outcome {
    super::install(context)?;
    let log = paths::log("probe-faults");
    let mut script = Peer::Python.interpreter();
    script.arg(paths::root().join("tests/probe/faults.py")).arg(taut::program()).arg(paths::own("probe"));
    script.args(Peer::Go.installed("server").map(|server| [OsString::from("--go"), server.into()]).iter().flatten());
    if peers::build_other(context, UWEBSOCKETS)? {
        script.arg("--uwebsockets").arg(paths::target().join("peers/uwebsockets/server"));
    }
    script.env("NODE_PATH", Peer::Node.modules());
    let ran = run_logged(&mut script, &log, context.deadline);
    let text = fs::read_to_string(&log)?;
    for line in text.lines().filter_map(|line| line.strip_prefix("SKIP ")) {
        let (part, reason) = line.split_once(": ").unwrap_or((line, ""));
        context.skip(&format!("probe: {part}"), reason);
    }
    ran.inspect_err(|_| text.lines().filter(|line| line.starts_with("FAILED")).for_each(|line| eprintln!("{line}")))?;
    match text.lines().last() {
        Some(summary) => eprintln!("{summary}"),
        None => return Err(Failure::Failed("the script printed nothing".to_owned())),
    }
    Ok(())
}
