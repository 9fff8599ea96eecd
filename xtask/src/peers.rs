//! The servers of other projects that `taut bench peers` measures: they build, and they echo over ws and wss.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::process::{Deadline, Running, run, run_logged};
use crate::stage::{Context, Failure, Outcome};
use crate::taut::{self, Scheme};
use crate::{cargo, paths};

/// A workspace of its own.
pub(crate) const MANIFEST: &str = "peers/Cargo.toml";

/// As the program names them.
const SERVERS: [&str; 4] = ["fastwebsockets", "yawc", "yawc-tuned", "tungstenite"];

/// Where it is built.
pub(crate) fn target() -> PathBuf {
    paths::target().join("peers")
}

/// Builds the program, and lets our client compare what each server echoes.
pub(crate) fn run_all(context: &Context) -> Outcome {
    for task in ["build", "test"] {
        let mut command = cargo::cargo(&[task, "--locked", "--manifest-path", MANIFEST, "--target-dir"]);
        run(command.arg(target()), context.deadline)?;
    }
    let certificates = taut::certificates(context)?;
    for server in SERVERS {
        for scheme in [Scheme::Ws, Scheme::Wss] {
            let port = taut::free_port()?;
            let mut command = Command::new(target().join("debug/peers"));
            command.args([server, "--listen", &format!("127.0.0.1:{port}")]);
            if scheme == Scheme::Wss {
                command.arg("--cert").arg(&certificates.chain).arg("--key").arg(&certificates.key);
            }
            let mut running = Running::start_logged(&mut command, &paths::log(&format!("peers-{server}-{scheme}")))?;
            taut::wait_until_listening(port, &mut running, Deadline::after(Duration::from_secs(60)))?;
            let mut load = Command::new(taut::program());
            load.args(["load", &scheme.url(port), "--ca"]).arg(&certificates.ca);
            load.args(["--connections", "4", "--size", "20000", "--pipeline", "3"]);
            load.args(["--warmup", "0", "--duration", "0.3"]);
            run_logged(&mut load, &paths::log(&format!("peers-{server}-{scheme}-load")), context.deadline)
                .map_err(|_| Failure::Failed(format!("{server} over {scheme} does not echo")))?;
        }
        eprintln!("{server} echoes over ws and wss");
    }
    Ok(())
}
