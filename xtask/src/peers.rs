//! Checks that the servers of other projects, which `taut bench peers` measures, build and echo over ws and wss.

use std::process::Command;

use crate::outcome::{Failure, Outcome};
use crate::process::{run, run_logged};
use crate::stage::Context;
use crate::taut::{self, Scheme};
use crate::{cargo, paths};

/// The manifest of the peers, which are a workspace of their own.
pub(crate) const MANIFEST: &str = "peers/Cargo.toml";

/// The manifest of the server on wtx, which needs a newer compiler. `taut bench` builds it if there is one.
pub(crate) const WTX_MANIFEST: &str = "peers/wtx/Cargo.toml";

/// The manifest of the decoders, which `taut bench` does not run.
pub(crate) const DECODERS_MANIFEST: &str = "peers/feed/Cargo.toml";

/// Names of the servers, as the `peers` program takes them.
const SERVERS: [&str; 7] = ["fastwebsockets", "yawc", "yawc-tuned", "tungstenite", "sockudo", "axum", "tautline"];

/// Servers in other languages, which `taut bench` builds itself. Netty's build loads Maven's plugins, and Beast's takes a
/// compiler a minute: their checks are `taut bench --check-peers`.
const OTHERS: [&str; 7] = ["uwebsockets", "gorilla", "coder", "ws", "bun", "websockets", "picows"];

/// Servers that accept compression.
const DEFLATE: [&str; 2] = ["yawc", "sockudo"];

/// A cargo command for the peers.
pub(crate) fn cargo(command: &[&str]) -> Command {
    let mut cargo = cargo::cargo(command);
    // With the profiles and the folder of the workspace, their TLS and half of their dependencies are compiled already.
    cargo
        .args(["--locked", "--manifest-path", MANIFEST, "--config", "Cargo.toml", "--target-dir"])
        .arg(paths::target());
    cargo
}

/// Lints and tests the program, then checks the echo of each server with `taut load`, which compares every reply.
pub(crate) fn run_all(context: &Context) -> Outcome {
    run(cargo(&["clippy", "--all-targets"]).args(["--", "-D", "warnings"]), context.deadline)?;
    [&["build"][..], &["test"]].into_iter().try_for_each(|task| run(&mut cargo(task), context.deadline))?;
    let program = paths::target().join("debug/peers");
    let certificates = taut::certificates(context)?;
    for server in SERVERS {
        for scheme in [Scheme::Ws, Scheme::Wss] {
            let port = taut::free_port()?;
            let mut command = Command::new(&program);
            command.args([server, "--listen", &format!("127.0.0.1:{port}")]);
            if scheme == Scheme::Wss {
                command.arg("--cert").arg(&certificates.chain).arg("--key").arg(&certificates.key);
            }
            if DEFLATE.contains(&server) {
                command.arg("--deflate");
            }
            let _running = taut::start(&mut command, port, &format!("peers-{server}-{scheme}"))?;
            let mut load = Command::new(taut::program());
            load.args(["load", &scheme.url(port), "--ca"]).arg(&certificates.ca);
            load.args(["--connections", "4", "--size", "20000", "--pipeline", "3", "--deflate"]);
            load.args(["--warmup", "0", "--duration", "0.3"]);
            run_logged(&mut load, &paths::log(&format!("peers-{server}-{scheme}-load")), context.deadline)
                .map_err(|_| Failure::Failed(format!("{server} over {scheme} does not echo")))?;
        }
        eprintln!("{server} echoes over ws and wss");
    }
    check(context, &OTHERS).map(drop)
}

/// Builds one of them for another stage, and returns whether it could be built on this machine.
pub(crate) fn build_other(context: &Context, name: &str) -> Result<bool, Failure> {
    Ok(check(context, &[name])? == 0)
}

/// Checks servers in other languages, and returns how many could not be built on this machine.
fn check(context: &Context, names: &[&str]) -> Result<usize, Failure> {
    let mut check = Command::new(taut::program());
    check.args(["bench", "--check-peers", &names.join(",")]).current_dir(paths::root());
    let log = paths::log("peers-others");
    let result = run_logged(&mut check, &log, context.deadline);
    let mut lacking = 0;
    for line in std::fs::read_to_string(&log)?.lines() {
        eprintln!("{line}");
        if let Some((name, reason)) = missing(line) {
            context.skip(&format!("peers: {name}"), reason);
            lacking += 1;
        }
    }
    let failed = || Failure::Failed(format!("a server in another language does not work: {}", log.display()));
    result.map(|()| lacking).map_err(|_| failed())
}

/// Name of a server that cannot be built on this machine, and the reason, in a line of `taut bench --check-peers`.
fn missing(line: &str) -> Option<(&str, &str)> {
    line.split_once(": missing: ")
}

#[cfg(test)]
mod tests {
    use super::missing;

    #[test]
    fn a_missing_tool_is_no_failure() {
        assert_eq!(missing("coder: missing: it needs Go"), Some(("coder", "it needs Go")));
        assert_eq!(missing("coder: answers rightly"), None);
        assert_eq!(missing("coder: FAILED: echo: a reply is missing"), None);
    }
}
