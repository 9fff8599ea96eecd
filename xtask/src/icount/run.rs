use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::scenario::{Per, Scenario};
use crate::outcome::Failure;
use crate::process::{Deadline, Running, run_logged, show_tail};
use crate::stage::Context;
use crate::{paths, taut};

/// How long a server under valgrind may take to begin or to end.
const PATIENCE: Duration = Duration::from_secs(120);

/// The instructions of a server, and the operations that it counted.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) instructions: u64,
    pub(super) operations: u64,
    /// Full handshakes, where resumed ones are the operations.
    pub(super) others: u64,
}

/// Runs a server under callgrind with `seconds` of load.
pub(super) fn run(program: &Path, scenario: &Scenario, seconds: u32, context: &Context) -> Result<Run, Failure> {
    let port = taut::free_port()?;
    let (counts, log) = (paths::own("icount.out"), paths::log("icount-serve"));
    let mut serve = callgrind(&counts);
    serve.arg(program).args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--driver", "epoll"]);
    serve.args(["--shards", "1"]).args(scenario.serve);
    let plain = scenario.serve.contains(&"--plain");
    if !plain {
        // A provider of AEADs that is chosen by a measurement could be another one in each run.
        serve.args(["--aead", "aws-lc"]);
    }
    let mut server = Running::start_logged(&mut serve, &log)?;
    taut::wait_until_listening(port, &mut server, Deadline::after(PATIENCE)).inspect_err(|_| show_tail(&log, 20))?;
    let scheme = if plain { "ws" } else { "wss" };
    let mut load = Command::new(program);
    load.args(["load", &format!("{scheme}://127.0.0.1:{port}/"), "--driver", "epoll", "--warmup", "0"]);
    load.args(["-d", &seconds.to_string()]).args(scenario.load);
    run_logged(&mut load, &paths::log("icount-load"), context.deadline)?;
    let ended = server.terminate(PATIENCE)?;
    if !ended.is_some_and(|status| status.success()) {
        show_tail(&log, 20);
        return Err(Failure::Failed("the server under valgrind did not end in order".to_owned()));
    }
    let counters = counters(&fs::read_to_string(&log)?, scenario.per);
    let (operations, others) = counters.ok_or_else(|| {
        show_tail(&log, 20);
        Failure::Failed("the server did not print its counters".to_owned())
    })?;
    Ok(Run { instructions: total(&counts)?, operations, others })
}

/// Runs a program that decodes `count` frames under callgrind.
pub(super) fn decode(program: &Path, count: u32, context: &Context) -> Result<Run, Failure> {
    let counts = paths::own("icount.out");
    let mut decode = callgrind(&counts);
    decode.arg(program).arg(count.to_string());
    run_logged(&mut decode, &paths::log("icount-decode"), context.deadline)?;
    Ok(Run { instructions: total(&counts)?, operations: count.into(), others: 0 })
}

/// A command that counts the instructions of the program that follows.
fn callgrind(counts: &Path) -> Command {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--quiet"]).arg(format!("--callgrind-out-file={}", counts.display()));
    valgrind
}

/// The total in the file `counts`.
fn total(counts: &Path) -> Result<u64, Failure> {
    let instructions = instructions(&fs::read_to_string(counts)?);
    instructions.ok_or_else(|| Failure::Failed(format!("{} has no summary", counts.display())))
}

/// The operations, and the full handshakes beside resumed ones, by the counters that `taut serve` prints at its end.
fn counters(log: &str, per: Per) -> Option<(u64, u64)> {
    let number = |begin: &str, behind: &str| -> Option<u64> {
        let line = log.lines().find_map(|line| line.strip_prefix(begin))?;
        line.split_once(behind)?.0.rsplit(' ').next()?.parse().ok()
    };
    let (opened, resumed) = (number("connections: ", " opened,")?, number("connections: ", " of them resumed")?);
    Some(match per {
        Per::Message => (number("messages: ", " in,")?, 0),
        Per::Delivery => (number("messages: ", " out,")?, 0),
        Per::Connection => (opened, 0),
        Per::Resumed => (resumed, opened.checked_sub(resumed)?),
    })
}

/// The instructions of all threads in a file of callgrind.
fn instructions(counts: &str) -> Option<u64> {
    let totals = counts.lines().find_map(|line| line.strip_prefix("totals: "))?;
    totals.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Per, counters, instructions};

    #[test]
    fn counters_are_read() {
        let log = "closing\nconnections: 5 accepted, 1 failed in their handshake, 4 opened, 3 of them resumed, 0 open\n\
                   messages: 88046 in, 12 out, 0 dropped; 8 bytes in\n";
        let all = [Per::Message, Per::Delivery, Per::Connection, Per::Resumed];
        assert_eq!(all.map(|per| counters(log, per)), [Some((88046, 0)), Some((12, 0)), Some((4, 0)), Some((3, 1))]);
        assert_eq!(counters("closing\n", Per::Message), None);
    }

    #[test]
    fn the_total_of_callgrind_is_read() {
        assert_eq!(instructions("events: Ir\nfn=(1) main\n1 7\n\ntotals: 123456\n"), Some(123_456));
        assert_eq!(instructions("events: Ir\n"), None);
    }
}
