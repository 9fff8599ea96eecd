//! Other people's clients of market data against a simulated venue of ours, beside `taut feed`.

use super::peer::{Peer, checks, hold};
use crate::outcome::{Failure, Outcome};
use crate::process::{self, Deadline, run_logged, show_tail};
use crate::stage::Context;
use crate::taut::{self, Certificates, Scheme};
use crate::{install, paths};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The venues that the simulated one imitates.
const VENUES: [&str; 3] = ["binance", "coinbase", "kraken"];

/// The time of one venue, at most.
const TIME: Duration = Duration::from_secs(240);

/// Compares trades and books of all clients at each venue. Returns the venues that failed.
pub(super) fn run(context: &Context, certificates: &Certificates) -> Result<Vec<String>, Failure> {
    let installed = context.unless_skipped("interop: venues", install(context.deadline))?;
    let venues = VENUES.into_iter().filter(|_| installed.is_some());
    let failed =
        venues.filter(|venue| !hold(&format!("clients of {venue} beside taut feed"), follow(venue, certificates)));
    Ok(failed.map(|venue| format!("clients of {venue}")).collect())
}

/// Fetches the clients. They have an environment of their own, since they ask for other versions than the other peers.
pub(super) fn install(deadline: Deadline) -> Outcome {
    let requirements = Peer::Python.source().join("requirements-venues.txt");
    let version = install::version("python3", "--version")?;
    let recipe = format!("{version}{}", fs::read_to_string(&requirements)?);
    let works = || {
        let mut import = Command::new(folder().join("bin/python"));
        process::output(import.args(["-c", "import binance, ccxt.pro, cryptofeed"])).is_some()
    };
    let log = paths::log("interop-venues-install");
    let fill =
        |folder: &std::path::Path| install::python(folder, &["-r", &requirements.to_string_lossy()], &log, deadline);
    install::once(&folder(), &recipe, |_| works(), fill)
}

fn folder() -> PathBuf {
    paths::own("interop").join("venues")
}

/// Follows one venue, and returns how many checks held.
fn follow(venue: &str, certificates: &Certificates) -> Result<usize, Failure> {
    let further = ["--app", "venue", "--like", venue, "--market-speed", "0.03"];
    let server = taut::serve(&format!("interop-venue-{venue}"), Scheme::Wss, certificates, &further)?;
    let log = paths::log(&format!("interop-venue-{venue}-clients"));
    let mut clients = Command::new(folder().join("bin/python"));
    clients.arg(Peer::Python.source().join("venues.py")).arg(taut::program()).arg(venue);
    clients.arg(server.port.to_string()).arg(&certificates.ca);
    run_logged(&mut clients, &log, Deadline::after(TIME)).inspect_err(|_| show_tail(&log, 20))?;
    match checks(&log) {
        0 => Err(Failure::Failed("no client was compared".to_owned())),
        held => Ok(held),
    }
}
