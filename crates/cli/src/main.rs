//! The program `taut`: serves WebSockets, connects to them, loads them and measures them.
#![deny(unsafe_code)]

mod aead;
mod bench;
mod cert;
mod child;
mod connect;
mod dashboard;
mod dev_cert;
mod doctor;
mod driver;
mod environment;
mod failure;
mod feed;
mod files;
mod generate;
mod http_tls;
mod hub;
mod keeper;
mod load;
mod local;
mod logging;
mod model;
mod output;
mod port_owner;
mod probe;
mod program;
mod progress;
mod serve;
mod stages;
mod supervisor;
mod sys;
mod target;
mod tcp_echo;
mod trust;
mod upgrade;
mod usage;
mod verdict;

use clap::{CommandFactory, Parser, Subcommand};
use failure::Failure;
use logging::LogFilter;
use output::LogFormat;
use std::process::ExitCode;

/// Secure WebSockets at the speed of the machine: serve, connect, probe, load, measure.
#[derive(Debug, Parser)]
#[command(name = "taut", version, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    /// Log what happens (-v) or every step (-vv). With -v, `connect` also prints the negotiated TLS and HTTP values.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Form of the lines of the log.
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text", hide_possible_values = true)]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  taut serve                                a wss echo server with a development certificate
  taut connect wss://localhost:8443/        talk to it
  taut probe wss://localhost:8443/          look at it, and say what is wrong
  taut load wss://localhost:8443/           measure it
  taut proxy --to http://127.0.0.1:3000     put a server of any kind behind TLS
  taut feed binance btcusdt@depth           follow the market data of a venue
  taut bench                                measure this machine, in under two minutes
  taut doctor                               report the machine's features and a suitable command
  taut check --cert c.pem --key k.pem       check the files of a server before it starts
  taut cert localhost                       make a development authority and a certificate
  taut upgrade 1234                         replace the program of a server, and keep its connections

Exit codes:
  0    success
  1    a run failed, replies were wrong, or `probe` found a fault
  2    arguments, files or configuration cannot work
  3    the network or TLS failed
  130  Ctrl-C ended `taut bench` early
  141  the reader of the output went away";

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<serve::Arguments>),
    #[cfg(feature = "proxy")]
    Proxy(Box<serve::ProxyArguments>),
    Check(Box<serve::CheckArguments>),
    Connect(connect::Arguments),
    Probe(probe::Arguments),
    Load(Box<load::Arguments>),
    Feed(feed::Arguments),
    Hub(hub::Arguments),
    Bench(bench::Arguments),
    Cert(cert::Arguments),
    Doctor(doctor::Arguments),
    Upgrade(upgrade::Arguments),
    Completions(generate::Completions),
    Man(generate::Man),
    /// Print the version.
    #[command(after_help = "Example:\n  taut version")]
    Version,
    #[command(hide = true)]
    TcpEcho(tcp_echo::Arguments),
    #[command(hide = true)]
    Model(model::Arguments),
    #[command(hide = true)]
    FeedWorker(feed::WorkerArguments),
}

fn main() -> ExitCode {
    let _at_end = output::AtEnd;
    output::tell_panics();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage::report(&error, &Cli::command()),
    };
    output::set_format(cli.log_format);
    let filter = logging::start(cli.verbose);
    // A thread that is older than the confinement to some files is not confined.
    let confines_files = match &cli.command {
        Command::Serve(arguments) => arguments.confines_files(),
        #[cfg(feature = "proxy")]
        Command::Proxy(arguments) => arguments.confines_files(),
        _ => false,
    };
    if !confines_files {
        output::begin();
    }
    match run(&cli, filter) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => output::fail(&failure),
    }
}

fn run(cli: &Cli, filter: LogFilter) -> Result<(), Failure> {
    match &cli.command {
        Command::Serve(arguments) => serve::run(arguments, filter),
        #[cfg(feature = "proxy")]
        Command::Proxy(arguments) => serve::run(&arguments.server()?, filter),
        Command::Check(arguments) => serve::check(arguments),
        Command::Connect(arguments) => connect::run(arguments, cli.verbose > 0),
        Command::Probe(arguments) => probe::run(arguments),
        Command::Load(arguments) => load::run(arguments),
        Command::Feed(arguments) => feed::run(arguments),
        Command::Hub(arguments) => hub::run(arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Cert(arguments) => cert::run(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Upgrade(arguments) => upgrade::run(arguments),
        Command::Completions(arguments) => generate::completions(arguments, &mut Cli::command()),
        Command::Man(arguments) => generate::man(arguments, Cli::command()),
        Command::Version => output::print(Cli::command().render_version()),
        Command::TcpEcho(arguments) => tcp_echo::run(arguments),
        Command::Model(arguments) => model::run(arguments),
        Command::FeedWorker(arguments) => feed::work(arguments),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_help_of_every_command_has_an_example() {
        for command in
            Cli::command().get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
        {
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains("Example"), "{} has no example", command.get_name());
        }
    }

    #[test]
    fn the_page_of_the_program_lists_every_command_and_suite() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md")).unwrap();
        let commands = Cli::command();
        let commands = commands.get_subcommands().filter(|command| !command.is_hide_set());
        for name in commands.map(clap::Command::get_name).filter(|&name| name != "help") {
            assert!(page.contains(&format!("\n| `taut {name}")), "taut {name}");
        }
        for suite in tautline_lab::suites::Suite::ALL.map(tautline_lab::suites::Suite::name) {
            assert!(page.contains(&format!("\n| `{suite}` |")), "suite {suite}");
        }
    }
}
