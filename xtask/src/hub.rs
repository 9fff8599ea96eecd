//! Topics of several hosts on a real nats-server, which Go builds, and on Redis, and the client in Node.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::everything;
use crate::outcome::{Failure, Outcome};
use crate::process::{self, run, run_logged, succeeds};
use crate::stage::Context;
use crate::{install, interop, paths, taut};

/// The library of Pusher for servers, from PyPI.
const PUSHER: &str = "pusher==3.3.4";
const NATS_SERVER: &str = "github.com/nats-io/nats-server/v2@v2.11.4";

/// The tests of the crate for NATS, and of the program with it, against a server.
pub(crate) fn test(context: &Context) -> Outcome {
    let server = nats_server(context)?;
    run(of_crate("nats").env("TAUTLINE_NATS_SERVER", &server), context.deadline)?;
    run(of_program("nats").env("TAUTLINE_NATS_SERVER", &server), context.deadline)?;
    in_node(context)
}

/// The tests of the crate for Redis, and of the program with it, against servers of the system.
pub(crate) fn redis(context: &Context) -> Outcome {
    if !succeeds("redis-server", &["--version"]) || !succeeds("redis-cli", &["--version"]) {
        return Err(Failure::Skipped("redis-server is not installed (cargo xtask setup)".to_owned()));
    }
    run(&mut of_crate("redis"), context.deadline)?;
    run(&mut of_program("redis"), context.deadline)
}

/// The tests of the crate for this broker that need a server.
fn of_crate(broker: &str) -> Command {
    let mut test = everything(&["test", "--test", broker]);
    for name in ["memory", "outage"] {
        test.args(["--test", &format!("{broker}_{name}")]);
    }
    test.args(["--", "--include-ignored"]);
    test
}

/// The tests of `taut serve --broker` with this broker.
fn of_program(broker: &str) -> Command {
    let mut test = everything(&["test", "--test", "program"]);
    test.args(["--", &format!("broker::{broker}_"), "--include-ignored"]);
    test
}

/// The JavaScript client in Node against `taut serve --app hub`, which it kills and starts again.
fn in_node(context: &Context) -> Outcome {
    let modules = context.unless_skipped("hub: node", interop::node_modules(context))?;
    let Some(modules) = modules else { return Ok(()) };
    let port = taut::free_port()?.to_string();
    let mut node = Command::new("node");
    node.arg(paths::root().join("tests/hub/client.mjs")).arg(&port).arg(taut::program());
    node.args(["serve", "--plain", "--app", "hub", "--listen", &format!("127.0.0.1:{port}")]);
    run_logged(node.env("NODE_PATH", &modules), &paths::log("hub-node"), context.deadline)?;
    types(context, &modules)?;
    pusher(context, &modules)
}

/// The types of the JavaScript client, which a program in TypeScript uses.
fn types(context: &Context, modules: &Path) -> Outcome {
    let mut tsc = Command::new("node");
    tsc.arg(modules.join("typescript/bin/tsc")).arg(paths::root().join("tests/hub/types.mts"));
    tsc.args(["--strict", "--noEmit", "--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom"]);
    run_logged(&mut tsc, &paths::log("hub-types"), context.deadline)
}

/// The libraries of Pusher for Node and Python, as they are, against `taut serve --app hub`.
fn pusher(context: &Context, modules: &Path) -> Outcome {
    if !succeeds("python3", &["-c", "import venv"]) {
        context.skip("hub: pusher", "needs Python 3 with venv");
        return Ok(());
    }
    let venv = paths::own("hub-pusher");
    install::venv(&venv, &[PUSHER], "python", &paths::log("hub-pusher-setup"), context.deadline)?;
    let port = taut::free_port()?.to_string();
    let mut node = Command::new("node");
    node.arg(paths::root().join("tests/hub/pusher/client.mjs")).arg(&port).arg(venv.join("bin/python"));
    node.arg(taut::program());
    node.args(["serve", "--plain", "--app", "hub", "--listen", &format!("127.0.0.1:{port}")]);
    run_logged(node.env("NODE_PATH", modules), &paths::log("hub-pusher"), context.deadline)
}

/// The server's path. It is built first, unless it is there.
fn nats_server(context: &Context) -> Result<PathBuf, Failure> {
    let program = paths::own("nats-server").join("nats-server");
    let works = |_: &Path| process::output(Command::new(&program).arg("--version")).is_some();
    install::go("nats-server", &[NATS_SERVER.to_owned()], works, context.deadline)?;
    Ok(program)
}
