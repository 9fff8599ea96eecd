use crate::failure::Failure;
use crate::progress::Progress;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use tautline::Io;
use tautline_lab::cpu::Placement;
use tautline_lab::report::write_html;
use tautline_lab::suites::{self, Lab, Outcome, Pace, Suite};
use tautline_lab::{Line, Machine, write_json};

/// Measure this machine: bare TCP, ws and wss side by side.
///
/// Server and load run on different CPUs. Rounds take turns between the compositions, so that what disturbs the machine
/// disturbs all alike; figures are medians over rounds. With no suite it is the overview, which takes less than two
/// minutes; with --quick suites take one minute or two, most of them less.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Suites:
  overview   limit, ws and wss with every engine at 64 B, 1 KiB, 16 KiB; handshakes; advice
  echo       64 B to 64 KiB, 1 to 500 connections, 1 and 16 messages in flight; broadcasts to 1,000
  limits     what ws costs above bare TCP and wss above ws, with confidence intervals and targets
  idle       memory of connections that do nothing, and of those that did something
  peers      servers of other projects beside ours: needs the checkout, or --peers
  records    the record path in memory, beside the AEAD alone
  handshake  full and resumed handshakes with every kind of key; what a storm of them does to others
  stages     where a message's time goes, from the network card to the handler: six stages of a feed
             on every driver, and of the compositions of an earlier report; over veth as root
  offload    TLS in the loop, all of it on other threads, large messages shared with others: who wins from which size
  scaling    loops that share nothing beside threads that share a poller, by threads and connections
  windows    records and buffers: memory and window BIOs, direct reads, records in place; GET of 16 KiB
  wire       AF_XDP beside the kernel's TCP over veth; as root, built with the feature xdp

Examples:
  taut bench
  taut bench --quick
  taut bench limits --driver uring
  taut bench echo limits --json results.jsonl --report results.html")]
pub(crate) struct Arguments {
    /// What to measure.
    #[arg(value_name = "SUITE", default_value = "overview", value_parser = suite())]
    suites: Vec<Suite>,
    /// Fewer and shorter rounds: a first look.
    #[arg(long)]
    quick: bool,
    /// Measure our servers on this driver only. May be repeated; without it they run on epoll, and on io_uring where that
    /// works.
    #[arg(long, value_name = "DRIVER", value_parser = driver)]
    driver: Vec<Io>,
    /// The program with the servers of the suite peers, instead of building it from the checkout.
    #[arg(long, value_name = "FILE")]
    peers: Option<PathBuf>,
    /// Also write results as JSON: the machine, then one result per line. `-` writes to standard output, and no tables.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also write a page with the tables and every figure behind them.
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

/// Suites by their names.
fn suite() -> impl TypedValueParser<Value = Suite> {
    PossibleValuesParser::new(Suite::ALL.map(Suite::name)).try_map(|name| name.parse())
}

/// A driver to measure; `auto` is the one it stands for here.
fn driver(name: &str) -> Result<Io, String> {
    let driver: Io = name.parse()?;
    driver.probe().map_err(|error| format!("this driver does not work here: {error}"))?;
    Ok(if driver == Io::Auto { driver.here() } else { driver })
}

/// Each driver once, in the order asked for.
fn drivers(wanted: &[Io]) -> Vec<Io> {
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
    let program =
        std::env::current_exe().map_err(|error| Failure::failed(format!("cannot find this program: {error}")))?;
    let machine = Machine::here();
    let placement = Placement::here();
    let pace = if arguments.quick { Pace::Quick } else { Pace::Thorough };
    let drivers = drivers(&arguments.driver);
    let only_json = arguments.json.as_deref() == Some(Path::new("-"));
    if !only_json {
        let names: Vec<&str> = drivers.iter().map(|driver| driver.name()).collect();
        println!(
            "{machine}\nserver on CPU {}, load on CPU {}; drivers: {}",
            placement.server,
            placement.load,
            names.join(", ")
        );
    }
    if cfg!(debug_assertions) {
        eprintln!("taut: this is a debug build, its figures mean nothing; use cargo run --release -- bench");
    }
    // Before minutes of measuring, not after.
    let json = arguments.json.as_deref().filter(|_| !only_json).map(create).transpose()?;
    let report = arguments.report.as_deref().map(create).transpose()?;
    let mut outcomes: Vec<Outcome> = Vec::new();
    for suite in &arguments.suites {
        let progress = Progress::new();
        let mut show = |share: f64, what: &str| progress.show(share, what);
        let mut lab = Lab {
            program: program.clone(),
            pace,
            placement,
            drivers: drivers.clone(),
            peers: arguments.peers.clone(),
            progress: &mut show,
        };
        let outcome = suite.run(&mut lab)?;
        drop(progress);
        if !only_json {
            print(&outcome);
        }
        outcomes.push(outcome);
    }
    let failed = |error: std::io::Error| Failure::failed(format!("cannot write the results: {error}"));
    if let Some(file) = report {
        write_html(&mut BufWriter::new(file), &machine, &outcomes).map_err(failed)?;
    }
    let lines: Vec<Line> = outcomes.into_iter().flat_map(|outcome| outcome.lines).collect();
    if let Some(file) = json {
        write_json(&mut BufWriter::new(file), &machine, &lines).map_err(failed)?;
    } else if only_json {
        write_json(&mut std::io::stdout().lock(), &machine, &lines).map_err(failed)?;
    }
    Ok(())
}

fn create(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|error| Failure::usage(format!("cannot write {}: {error}", path.display())))
}

fn print(outcome: &Outcome) {
    println!("\n{}", outcome.text.trim_end());
    for warning in &outcome.warnings {
        println!("Note: {warning}");
    }
    if let Some(advice) = &outcome.advice {
        println!("\nAdvice: {advice}");
    }
    // A reader behind a pipe sees each suite when it is done.
    let _ = std::io::stdout().flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_are_named_once_and_resolved() {
        assert_eq!(drivers(&[Io::Epoll, Io::Epoll]), [Io::Epoll]);
        assert_eq!(drivers(&[]), suites::drivers());
        assert!(driver("kqueue").is_err());
        assert!(matches!(driver("auto"), Ok(Io::Epoll | Io::Uring)));
    }
}
