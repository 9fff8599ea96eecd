mod sink;
mod stored;

use crate::aead::AeadArguments;
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use signal_hook::consts::{SIGINT, SIGTERM};
use sink::Sink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tautline_lab::cpu::Placement;
use tautline_lab::suites::{self, CrowdSize, Effort, Lab, Outcome, Suite};
use tautline_lab::{DriverKind, Error, Machine};
use tautline_probe::amount;

/// Measure this machine: bare TCP, ws and wss side by side.
///
/// Server and load run on different CPUs. Rounds alternate between the compositions, so that a disturbance of the machine
/// affects all of them. Figures are medians over rounds. The default suite is the overview, which takes less than two minutes.
/// With --quick, most suites take less than a minute, and none takes more than two. Ctrl-C ends the run after the measurement
/// under way, and keeps the results; a second one ends it at once, and keeps those of complete suites.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    after_help = "\
Suites:
  overview   bare TCP, ws and wss with every engine at 64 B, 1 KiB, 16 KiB; handshakes; advice
  echo       64 B to 64 KiB, 1 to 500 connections, 1 and 16 in flight; broadcasts to 1,000
  limits     the cost of ws over bare TCP and of wss over ws, with intervals and targets
  idle       memory of idle connections, also after one echo on each
  peers      servers of other projects in nine languages: echoes, handshakes, broadcasts, memory,
             latency; --peers FILE: an existing build of those in Rust
  latency    latencies at 30, 60 and 90 % of what each server can do, peers included
  deflate    compression: CPU, ratio and memory, peers included
  records    the record path in memory, and the AEAD alone
  handshake  full and resumed handshakes by kind of key, signatures alone, storms
  stages     a message's time from the network card to the handler, on every driver; as root also
             over a veth pair
  offload    TLS in the loop, in a thread pool, and with helper threads for large messages
  scaling    separate loops and threads that share a poller
  windows    records and buffers: memory and window BIOs, direct reads, records in place
  bindings   servers in Python beside websockets, picows and aiohttp; TLS in Java and Python beside
             that of the JDK, netty-tcnative, asyncio and uvloop; builds what it needs
  million    a million connections of one server: memory, handshakes, echoes, a message to all, and
             the end; takes about 5 minutes and 11 GB, or less with --connections N
  storm      thousands of clients that lose their server: time until all are back, latency of others
  edge       the proxy beside nginx, HAProxy and Caddy: messages, requests, handshakes, memory, latency
  http2      WebSockets on streams of HTTP/2, beside HTTP/1.1, axum and HAProxy; requests beside nginx
             and h2o; memory; needs the feature http2
  fleet      the hub on 1 and 3 processes with a broker, beside Centrifugo: CPU, latency, memory;
             on the features nats and redis; builds what it needs with Go
  wire       AF_XDP and the kernel's TCP over a veth pair; needs root and the feature xdp

Examples:
  taut bench
  taut bench --quick
  taut bench limits --driver uring
  taut bench million --connections 100000
  taut bench echo limits --json results.jsonl --report results.html
  taut bench --all --quick --report results.html
  taut bench report results.jsonl more.jsonl --output page.html
  taut bench diff before.jsonl after.jsonl"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    stored: Option<stored::Command>,
    /// Suites to run.
    #[arg(value_name = "SUITE", default_value = "overview", value_parser = suite())]
    suites: Vec<Suite>,
    /// Run every suite. Suites that cannot run here are named in the report.
    #[arg(long, conflicts_with = "suites")]
    all: bool,
    /// Run fewer and shorter rounds, for a first look.
    #[arg(long)]
    quick: bool,
    /// Measure our servers only on this driver. May be repeated. Default: epoll, and io_uring if it works.
    #[arg(long, value_name = "DRIVER", value_parser = driver)]
    driver: Vec<DriverKind>,
    #[command(flatten)]
    aead: AeadArguments,
    /// Connections of the suite million. Default: 1,000,000, or 100,000 with --quick.
    #[arg(long, value_name = "N", value_parser = amount::count)]
    connections: Option<usize>,
    /// Most connections that a table of open files holds in the suite million. Default: all that fit (ulimit -n).
    #[arg(long, value_name = "N", value_parser = amount::count)]
    per_table: Option<usize>,
    /// Existing build of the program with the servers of other projects. Default: built from the checkout.
    #[arg(long, value_name = "FILE")]
    peers: Option<PathBuf>,
    /// Measure nothing. Build these servers of the suite peers (default: all), and check what they answer.
    #[arg(long, value_name = "NAME", num_args = 0.., value_delimiter = ',')]
    check_peers: Option<Vec<String>>,
    /// Also write results as JSON: the machine, then each suite with one result per line. `-` writes to standard output, without tables.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also write a page with charts, verdicts and every figure beside the published ones.
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

/// A note beside figures of the profile `release`.
const QUICK_BUILD: &str = "taut: this build has no link-time optimisation, which the program that is shipped has; \
                           for figures to keep, use cargo run --profile dist -- bench";

/// Parser of suite names.
fn suite() -> impl TypedValueParser<Value = Suite> {
    PossibleValuesParser::new(Suite::ALL.map(Suite::name)).try_map(|name| name.parse())
}

/// The driver of this name, if it works here. `auto` becomes the driver that it stands for.
fn driver(name: &str) -> Result<DriverKind, String> {
    let driver: DriverKind = name.parse()?;
    driver.probe().map_err(|error| format!("this driver does not work here: {error}"))?;
    Ok(if driver == DriverKind::Auto { driver.here() } else { driver })
}

/// The drivers to measure: each wanted one once, in order, or the defaults.
fn drivers(wanted: &[DriverKind]) -> Vec<DriverKind> {
    if wanted.is_empty() {
        return suites::drivers();
    }
    let mut drivers = Vec::new();
    for &driver in wanted {
        if !drivers.contains(&driver) {
            drivers.push(driver);
        }
    }
    drivers
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(command) = &arguments.stored {
        return command.run();
    }
    let no_program = |error| Failure::failed(format!("cannot find this program: {error}"));
    let program = std::env::current_exe().map_err(no_program)?;
    arguments.aead.apply();
    let (machine, placement, drivers) = (Machine::here(), Placement::here(), drivers(&arguments.driver));
    if let Some(names) = &arguments.check_peers {
        return check(names, &program, placement);
    }
    let only_json = arguments.json.as_deref() == Some(Path::new("-"));
    if !only_json {
        let names: Vec<&str> = drivers.iter().map(|driver| driver.name()).collect();
        let (server, load, names) = (placement.server, placement.load, names.join(", "));
        output::print(format_args!("{machine}\nserver on CPU {server}, load on CPU {load}; drivers: {names}\n"))?;
    }
    if cfg!(debug_assertions) {
        output::note("taut: this is a debug build, so its figures mean nothing; use cargo run --release -- bench");
    } else if machine.is_quick_build() {
        output::note(QUICK_BUILD);
    }
    // Created first, so that a failure does not follow minutes of measuring.
    let mut sink = Sink::new(machine, arguments.json.as_deref(), arguments.report.as_deref())?;
    let stop = stop_on_signal()?;
    let suites: &[Suite] = if arguments.all { &Suite::ALL } else { &arguments.suites };
    let (effort, connections) = if arguments.quick { (Effort::Quick, 100_000) } else { (Effort::Thorough, 1_000_000) };
    let mut failed = Vec::new();
    for suite in suites {
        let progress = Progress::new();
        let mut show = |share: f64, what: &str| progress.show(share, what);
        let mut lab = Lab {
            program: program.clone(),
            effort,
            placement,
            drivers: drivers.clone(),
            has_chosen_drivers: !arguments.driver.is_empty(),
            peers: arguments.peers.clone(),
            crowd: CrowdSize {
                connections: arguments.connections.unwrap_or(connections),
                per_table: arguments.per_table,
                own: Some(crate::sys::own_descriptors()),
            },
            stop: &stop,
            progress: &mut show,
        };
        let result = suite.run(&mut lab);
        drop(progress);
        let is_stopped = stop.load(Ordering::Relaxed);
        let outcome = match result {
            Err(error) if !is_stopped && !arguments.all => return Err(error.into()),
            Err(error) => {
                // A suite that cannot run here is no failure of a run of all.
                failed.extend((!is_stopped && !matches!(error, Error::Usage(_))).then_some(suite.name()));
                let failure = Some(error.to_string());
                Outcome { failure, is_interrupted: is_stopped, ..Outcome::of(suite.name()) }
            }
            Ok(outcome) => outcome,
        };
        if !only_json {
            print(&outcome)?;
        }
        sink.add(outcome)?;
        if is_stopped {
            return Err(Failure::interrupted("interrupted: what was measured until then is kept"));
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(format!("these suites failed, and the results name the reasons: {}", failed.join(", "))))
}

/// Prints a line for each server of another project. One that is missing is no failure.
fn check(names: &[String], program: &Path, placement: Placement) -> Result<(), Failure> {
    let stop = stop_on_signal()?;
    let progress = Progress::new();
    let mut show = |share: f64, what: &str| progress.show(share, what);
    let mut lab = Lab::new(program, Effort::Quick, &stop, &mut show);
    lab.placement = placement;
    let checks = suites::check_peers(&mut lab, names)?;
    drop(progress);
    for check in &checks {
        output::print(format_args!("{check}\n"))?;
    }
    let failed = checks.iter().filter(|check| !check.is_missing && check.reason.is_some()).count();
    if failed == 0 { Ok(()) } else { Err(Failure::failed(format!("{failed} of the servers failed"))) }
}

/// A flag that Ctrl-C sets. The second Ctrl-C ends the program.
fn stop_on_signal() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let both = signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)));
        both.map_err(|error| Failure::failed(format!("cannot watch for signals: {error}")))?;
    }
    Ok(stop)
}

fn print(outcome: &Outcome) -> Result<(), Failure> {
    let mut text = format!("\n{}\n", outcome.text.trim_end());
    text.extend(outcome.failure.iter().map(|failure| format!("{}: {failure}\n", outcome.suite)));
    text.extend(outcome.warnings.iter().map(|warning| format!("Note: {warning}\n")));
    text.extend(outcome.advice.iter().map(|advice| format!("\nAdvice: {advice}\n")));
    output::print(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_are_deduplicated_and_resolved() {
        assert_eq!(drivers(&[DriverKind::Epoll, DriverKind::Epoll]), [DriverKind::Epoll]);
        assert_eq!(drivers(&[]), suites::drivers());
        assert!(driver("kqueue").is_err());
        assert!(matches!(driver("auto"), Ok(DriverKind::Epoll | DriverKind::Uring)));
    }
}
