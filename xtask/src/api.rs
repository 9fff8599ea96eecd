//! The HTTP interface of a hub against its description, by schemathesis.

use std::fs;
use std::process::Command;

use crate::outcome::{Failure, Outcome};
use crate::process::{run_logged, succeeds};
use crate::stage::Context;
use crate::{install, paths, taut};

const PACKAGE: &str = "schemathesis==4.32.0";
const KEY: &str = "0123456789abcdef0123456789abcdef";
const RULES: &str = "
[[namespace]]
topics = \"*\"
users = [\"subscribe\"]

[[key]]
name = \"app\"
file = \"app.key\"
scopes = [\"publish\", \"history\", \"presence\", \"users\", \"statistics\"]
topics = [\"*\"]
rate = 1000000

[limits]
bad-keys = 1000000
";

/// Makes requests of the description, right and wrong ones, and compares the answers with it.
pub(crate) fn test(context: &Context) -> Outcome {
    if !succeeds("python3", &["-c", "import sys, venv; sys.exit(sys.version_info < (3, 10))"]) {
        return Err(Failure::Skipped("needs Python 3.10 or newer with venv".to_owned()));
    }
    let venv = paths::own("schemathesis");
    install::venv(&venv, &[PACKAGE], "schemathesis", &paths::log("schemathesis-setup"), context.deadline)?;
    let folder = paths::own("hub-api");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("app.key"), KEY)?;
    fs::write(folder.join("hub.toml"), RULES)?;
    let port = taut::free_port()?;
    let mut serve = Command::new(taut::program());
    serve.args(["serve", "--plain", "--app", "hub", "--listen", &format!("127.0.0.1:{port}"), "--rules", "hub.toml"]);
    let _server = taut::start(serve.current_dir(&folder), port, "hub-api-server")?;
    let mut command = Command::new(venv.join("bin/schemathesis"));
    command.arg("run").arg(paths::root().join("docs/hub-api.json")).current_dir(&folder);
    command.args(["--url", &format!("http://127.0.0.1:{port}")]);
    command.args(["--header", &format!("Authorization: Bearer {KEY}"), "--seed", "1", "--max-examples", "15"]);
    command.args(["--phases", "examples,coverage,fuzzing"]);
    run_logged(&mut command, &paths::log("hub-api"), context.deadline)
}
