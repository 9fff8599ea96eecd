//! Development tasks: `cargo xtask test` is what CI runs; the others are its parts.

mod autobahn;
mod cargo;
mod install;
mod interop;
mod paths;
mod peers;
mod process;
mod sanitize;
mod setup;
mod stage;
mod taut;
mod tidy;
mod vm;
mod xdp;

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use autobahn::Cases;
use stage::{Context, Outcome, Stage};

/// What everything that CI runs may take together, on two cores.
const LONGEST: Duration = Duration::from_secs(60 * 60);

const USAGE: &str = "\
cargo xtask <task>

  test                              everything CI runs, in CI's order; ends with a summary
  setup                             install what the other tasks need (packages as root, the rest below target/xtask)
  tidy                              rules that no other tool checks: sizes, dependencies, unsafe code, words
  interop                           clients and servers in Python, Go and Node against ours, both ways
  uring                             servers, clients and hostile peers over io_uring, and some of the Autobahn suite
  xdp                               the driver over AF_XDP in network namespaces, `taut` and the Autobahn suite
                                    over it; as root
  sanitize                          the unsafe code and the C shims under AddressSanitizer
  vm-test                           kernel TLS, in virtual machines with Debian's kernels
  peers                             the servers that `taut bench peers` measures: they build, and they echo
  conformance [--full]              the Autobahn suite against our server and our client, over ws and wss;
                                    --full adds compressed messages above 8 KiB (hours)
  conformance --cases 9.3.1,12.*    these cases only
  fuzz [--seconds N]                every fuzz target for N seconds (default 60); needs a nightly toolchain
";

fn main() -> ExitCode {
    if let Err(error) = process::kill_children_on_signal() {
        eprintln!("cannot watch for signals: {error}");
        return ExitCode::FAILURE;
    }
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["test"] => stage::run_within(LONGEST, &test()),
        ["setup"] => stage::run(&[
            setup(),
            stage("cargo-deny", 15, |context| cargo::tool(context, "cargo-deny", cargo::DENY).map(drop)),
            stage("interop peers", 10, interop::install),
            stage("autobahn", 10, |context| autobahn::install(context).map(drop)),
        ]),
        ["tidy"] => stage::run(&[stage("tidy", 1, tidy::run)]),
        ["interop"] => stage::run(&[build(), stage("interop", 15, interop::run)]),
        ["uring"] => {
            stage::run(&[build(), stage("uring", 10, cargo::uring), stage("autobahn uring", 5, autobahn::uring)])
        }
        ["xdp"] => stage::run(&[
            stage("xdp", 10, xdp::test),
            build(),
            stage("xdp program", 5, xdp::program),
            stage("autobahn xdp", 10, xdp::autobahn),
        ]),
        ["sanitize"] => stage::run(&[sanitize()]),
        ["vm-test"] => stage::run(&[vm_test()]),
        ["peers"] => stage::run(&[build(), stage("peers", 10, peers::run_all)]),
        ["conformance", ref options @ ..] => match cases(options) {
            Some(cases) => stage::run(&conformance(&cases)),
            None => usage(),
        },
        ["fuzz"] => fuzz(60),
        ["fuzz", "--seconds", seconds] => seconds.parse().map_or_else(|_| usage(), fuzz),
        _ => usage(),
    }
}

fn setup() -> Stage {
    stage("setup", 10, setup::run)
}

fn sanitize() -> Stage {
    stage("sanitize", 45, sanitize::sanitize)
}

fn vm_test() -> Stage {
    stage("vm-test", 30, vm::test)
}

fn build() -> Stage {
    stage("build", 30, taut::build)
}

fn test() -> Vec<Stage> {
    vec![
        setup(),
        stage("fmt", 2, cargo::fmt),
        stage("tidy", 1, tidy::run),
        stage("clippy", 15, cargo::clippy),
        stage("test", 25, cargo::test),
        stage("engines", 45, cargo::engines),
        stage("doc", 10, cargo::doc),
        stage("deny", 20, cargo::deny),
        stage("miri", 15, cargo::miri),
        sanitize(),
        stage("xdp", 10, xdp::test),
        vm_test(),
        build(),
        stage("uring", 10, cargo::uring),
        stage("interop", 15, interop::run),
        stage("peers", 15, peers::run_all),
        stage("xdp program", 5, xdp::program),
        stage("autobahn xdp", 10, xdp::autobahn),
        stage("autobahn server", 15, |context| autobahn::server(context, &Cases::Usual)),
        stage("autobahn client", 15, |context| autobahn::client(context, &Cases::Usual)),
        stage("autobahn uring", 5, autobahn::uring),
    ]
}

fn conformance(cases: &Cases) -> Vec<Stage> {
    let minutes = if matches!(cases, Cases::Full) { 300 } else { 20 };
    let (for_server, for_client) = (cases.clone(), cases.clone());
    vec![
        build(),
        stage("autobahn server", minutes, move |context| autobahn::server(context, &for_server)),
        stage("autobahn client", minutes, move |context| autobahn::client(context, &for_client)),
    ]
}

fn cases(options: &[&str]) -> Option<Cases> {
    match options {
        [] => Some(Cases::Usual),
        ["--full"] => Some(Cases::Full),
        ["--cases", list] => Some(Cases::These(list.split(',').map(str::to_owned).collect())),
        _ => None,
    }
}

fn fuzz(seconds: u64) -> ExitCode {
    stage::run(&[stage("fuzz", 600, move |context| cargo::fuzz(context, seconds))])
}

fn stage(name: &'static str, minutes: u64, run: impl Fn(&Context) -> Outcome + 'static) -> Stage {
    Stage { name, minutes, run: Box::new(run) }
}

fn usage() -> ExitCode {
    eprint!("{USAGE}");
    ExitCode::from(2)
}
