//! Development tasks. `cargo xtask test` and `cargo xtask test --rest` together are what CI runs; the others are parts of these.

mod acme;
mod again;
mod alerts;
mod api;
mod autobahn;
mod browser;
mod c_library;
mod cargo;
mod checks;
mod dist;
mod hostile;
mod hub;
mod icount;
mod install;
mod interop;
mod java;
mod locks;
mod outcome;
mod paths;
mod peers;
mod process;
mod publish;
mod python;
mod sanitize;
mod setup;
mod stage;
mod taut;
mod tidy;
mod upgrades;
mod vm;
mod xdp;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use autobahn::Cases;
use icount::Bless;
use outcome::Outcome;
use stage::{Context, LeftOut, Stage};

/// Longest that `cargo xtask test` may take on two slow cores, from an empty target.
const SMALL: Duration = Duration::from_secs(15 * 60);

/// Longest that `cargo xtask test --rest` may take after it.
const REST: Duration = Duration::from_secs(45 * 60);

/// Stages of `cargo xtask test --rest` that judge no times. CI runs them beside the others at the lowest priority, since
/// many tests leave a core without work. None may replace a program that tests run, and any other stage may have to wait for
/// one of their builds.
const BACKGROUND: [&str; 6] = ["clippy defaults", "deny", "interleavings", "miri", "clippy apart", "sanitized builds"];

/// Stages of `cargo xtask test --rest` that use what the former have built, and no programs. CI runs them behind these, beside
/// the others.
const BESIDE: [&str; 1] = ["sanitize"];

/// Stages of `cargo xtask test --rest` that use the programs of the stage `build`, judge no times, and leave one of two
/// processors without work. CI runs them behind that stage, beside the others.
const CONFORMANCE: [&str; 6] =
    ["autobahn server", "autobahn client", "autobahn uring", "autobahn http2", "autobahn proxied", "autobahn tokio"];

/// Stages of `cargo xtask test --rest` whose tests `cargo xtask test --every` has run.
const ABOVE: [&str; 2] = ["clippy engines", "engines"];

const USAGE: &str = "\
cargo xtask <task>

  test                              the tests to wait for before a commit, 15 minutes at most
  test --every                      the same with every feature, in their place in CI: clippy, documents and tests take five
                                    TLS libraries, brokers and drivers, so that nothing is compiled without and with them
  test --rest                       all other tests that guard a change: CI runs both
  test --rest --background          those of them that only compile and interpret; CI runs these beside all others
  test --rest --beside              those behind these that need no programs; CI runs them beside the others, too
  test --rest --conformance         those with the Autobahn suite, behind `build`; CI runs them beside the others, too
  test --rest --foreground          the others
  test --only STAGE ...             stages of these two by their names, such as build and hostile
  setup [--packages]                install the tools for the other tasks: packages as root, and unless only these are
                                    wanted, the rest below target/xtask
  tidy                              rules that no other tool checks: dependencies, circles, unsafe code, prose, sizes
  tidy --graph CRATE                the files of a crate, which of them use which, and its circles
  probe                             faults in servers of others, which `taut probe` must find
  interop                           clients and servers in Python, Go and Node against ours, both ways
  proxied                           servers in Python, Go and Node behind `taut proxy`, with clients of theirs, and the
                                    Autobahn suite against our server there
  http2                             h2spec, clients in Python, Go and Node, and the Autobahn suite, over HTTP/2
  uring                             servers, clients and hostile peers over io_uring, and some of the Autobahn suite
  xdp                               the driver over AF_XDP in network namespaces, `taut` and the Autobahn suite
                                    over it; as root
  simulate --seeds N [--from S]     servers, clients and their network in virtual time; --proxied: proxies in
                                    between; --trace prints every event
  sanitize                          the unsafe code and the C shims under AddressSanitizer
  vm-test                           kernel TLS, in virtual machines with Debian's kernels
  c-library                         the long tests of the library for C, in C, C++ and Go
  c-library --conformance           some of the Autobahn suite against the example in C
  c-library --prefix DIR [OPTIONS]  build the library for C with cargo's OPTIONS, and install it below DIR
  java                              the engine for Java, against Netty's tests, Jetty, Tomcat and the JDK's HTTP
  python [--conformance]            the package for Python: its wheel is built, installed and tested, and some of the
                                    Autobahn suite runs both ways
  python --websockets-tests [DIR]   the same, then the asyncio tests of the package `websockets` against it, from a
                                    checkout or from GitHub
  acme                              certificates by themselves, against an authority for tests (pebble)
  hub                               topics of several hosts on a nats-server, which Go builds
  redis                             topics of several hosts on Redis
  hub-api                           the HTTP interface of a hub against docs/hub-api.json, by schemathesis
  peers                             the servers that `taut bench peers` measures: they build, and they echo
  tokio                             the crate for tokio: some of the Autobahn suite, and a million cancellations
  conformance [--full]              the Autobahn suite against our server and our client, over ws and wss;
                                    --full adds compressed messages above 8 KiB (hours)
  conformance --cases 9.3.1,12.*    these cases only
  dist [--check | --deb]            taut as one static file, by the profile `dist`: --check builds it twice and compares,
                                    --deb makes a package of it
  publish                           packs all crates that users depend on, as registries take them
  alerts                            the alerts in packaging/prometheus, by promtool
  browser                           the page of `taut bench report` in Chromium: errors, requests, sorting, filters, a
                                    phone's width, light and dark, paper
  hostile [--only PATTERN] [--every] [--json]
                                    scripted attackers against every engine and driver, and a thousand at once
  crowds [--taut PROGRAM] [--only PATTERN]
                                    the attackers by the thousand alone, against this program or the one that is shipped
  soak [--minutes N]                10,000 connections for N minutes (default 5): nothing lost, corrupted or leaked
  upgrades [SIZE]                   upgrades in a row under load, between two builds: nothing lost, doubled or reordered;
                                    SIZE is connections, messages per second and upgrades (default 10000,20000,100)
  interleavings                     the queues between threads, in thousands of interleavings of the threads
  icount [--bless | --bless-new]    instructions of the server in fixed scenarios, by callgrind: fails if one is 2 %
                                    above the baseline; --bless makes these counts the baseline, --bless-new those of
                                    scenarios that it lacks
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
        ["test"] => {
            let rest: Vec<LeftOut> = rest().into_iter().map(|(reason, stage)| (stage.name, reason)).collect();
            stage::run_within(SMALL, &small(), ("left to `cargo xtask test --rest`", &rest))
        }
        ["test", "--every"] => stage::run(&every()),
        ["test", "--rest"] => run_rest(REST, |_| true),
        ["test", "--rest", which] => rest_of(which),
        ["test", "--only", ref names @ ..] if !names.is_empty() => only(names),
        ["setup", "--packages"] => stage::run(&[stage("setup", 10, setup::all)]),
        ["setup"] => stage::run(&[
            stage("setup", 10, setup::all),
            stage("cargo-deny", 15, |context| checks::cargo_deny(context).map(drop)),
            stage("interop peers", 10, interop::install),
            stage("autobahn", 10, |context| autobahn::install(context).map(drop)),
        ]),
        ["tidy", "--graph", name] => tidy::draw(name),
        ["tidy"] => stage::run(&[stage("tidy", 1, tidy::run)]),
        ["interop"] => stage::run(&[build(), stage("interop", 15, interop::run)]),
        ["proxied"] => stage::run(&proxied_stages()),
        ["http2"] => stage::run(&http2_stages()),
        ["probe"] => stage::run(&[build(), stage("probe", 10, interop::faults::run)]),
        ["uring"] => {
            stage::run(&[build(), stage("uring", 10, checks::uring), stage("autobahn uring", 5, autobahn::uring)])
        }
        ["xdp"] => stage::run(&xdp_stages()),
        ["simulate", ref options @ ..] => {
            let options: Vec<String> = options.iter().map(|&one| one.to_owned()).collect();
            stage::run(&[stage("simulate", 600, move |context| checks::simulate(context, &options))])
        }
        ["sanitize"] => stage::run(&[stage("sanitize", 60, sanitize::sanitize)]),
        ["vm-test"] => stage::run(&[stage("vm-test", 30, vm::test)]),
        ["c-library"] => stage::run(&[stage("c-library", 30, c_library::test)]),
        ["c-library", "--prefix", prefix, ref options @ ..] => {
            let (prefix, options) = (prefix.to_owned(), options.iter().map(|&one| one.to_owned()).collect::<Vec<_>>());
            stage::run(&[stage("c-library", 30, move |context| {
                let options: Vec<&str> = options.iter().map(String::as_str).collect();
                c_library::install(context, prefix.as_ref(), &options)
            })])
        }
        ["c-library", "--conformance"] => stage::run(&[build(), stage("autobahn C", 5, autobahn::in_c)]),
        ["acme" | "alerts" | "java" | "publish" | "redis"] => only(&words),
        ["python", ref options @ ..] => python_stages(options),
        ["dist", ref options @ ..] => dist(options),
        ["browser"] => stage::run(&[build(), stage("browser", 5, browser::test)]),
        ["hub"] => stage::run(&[build(), stage("hub", 15, hub::test)]),
        ["hub-api"] => stage::run(&[build(), stage("hub api", 5, api::test)]),
        ["peers"] => stage::run(&[build(), stage("peers", 30, peers::run_all)]),
        ["tokio"] => stage::run(&[
            build(),
            stage("autobahn tokio", 5, autobahn::tokio),
            stage("cancellations", 5, checks::cancellations),
        ]),
        ["conformance", ref options @ ..] => match cases(options) {
            Some(cases) => stage::run(&conformance(&cases)),
            None => usage(),
        },
        ["hostile", ref options @ ..] => stage::run(&attacks(options)),
        ["crowds", ref options @ ..] => crowds(options),
        ["interleavings"] => stage::run(&[stage("interleavings", 10, checks::interleavings)]),
        ["soak"] => soak(5),
        ["soak", "--minutes", minutes] => minutes.parse().map_or_else(|_| usage(), soak),
        ["upgrades", ref size @ ..] if size.len() <= 1 => {
            let size = size.first().map_or(upgrades::FULL, |size| size).to_owned();
            stage::run(&[stage("upgrades", 60, move |context| upgrades::test(context, &size))])
        }
        ["icount", ref options @ ..] => icount(options),
        ["fuzz"] => fuzz(60),
        ["fuzz", "--seconds", seconds] => seconds.parse().map_or_else(|_| usage(), fuzz),
        _ => usage(),
    }
}

/// One of the runs that CI divides the stages of `cargo xtask test --rest` into.
fn rest_of(option: &str) -> ExitCode {
    match option {
        "--background" => run_rest(Duration::MAX, |name| BACKGROUND.contains(&name)),
        "--beside" => run_rest(Duration::MAX, |name| BESIDE.contains(&name)),
        "--conformance" => run_rest(Duration::MAX, |name| CONFORMANCE.contains(&name)),
        "--foreground" => run_rest(REST, |name| beside().chain(ABOVE).all(|other| other != name)),
        _ => usage(),
    }
}

/// The stages that CI runs beside others.
fn beside() -> impl Iterator<Item = &'static str> {
    BACKGROUND.into_iter().chain(BESIDE).chain(CONFORMANCE)
}

fn xdp_stages() -> [Stage; 5] {
    [
        stage("xdp driver", 10, xdp::driver),
        stage("xdp", 10, xdp::test),
        build(),
        stage("xdp program", 5, xdp::program),
        stage("autobahn xdp", 10, xdp::autobahn),
    ]
}

fn proxied_stages() -> [Stage; 3] {
    [build(), stage("proxied", 10, interop::proxied::run), stage("autobahn proxied", 60, autobahn::proxied)]
}

fn http2_stages() -> [Stage; 3] {
    [build(), stage("http2", 10, interop::http2::run), stage("autobahn http2", 10, autobahn::http2)]
}

fn python_stages(options: &[&str]) -> ExitCode {
    let mut stages = vec![build(), stage("python", 10, python::test)];
    match *options {
        [] => {}
        ["--conformance"] => stages.push(stage("autobahn python", 5, autobahn::python)),
        ["--websockets-tests", ref checkout @ ..] if checkout.len() <= 1 => {
            let checkout = checkout.first().map(PathBuf::from);
            stages.push(stage("websockets", 10, move |context| python::websockets_tests(context, checkout.as_deref())));
        }
        _ => return usage(),
    }
    stage::run(&stages)
}

fn build() -> Stage {
    stage("build", 20, taut::build)
}

/// The stages of `cargo xtask test`.
fn small() -> Vec<Stage> {
    vec![
        stage("setup", 10, setup::small),
        stage("fmt", 2, checks::fmt),
        stage("tidy", 1, tidy::run),
        stage("clippy", 15, checks::clippy),
        stage("test", 40, checks::test),
        stage("doc", 20, checks::doc),
    ]
}

/// The stages of `cargo xtask test --every`.
fn every() -> Vec<Stage> {
    vec![
        stage("setup", 10, setup::small),
        stage("fmt", 2, checks::fmt),
        stage("tidy", 1, tidy::run),
        stage("clippy engines", 25, checks::clippy_engines),
        stage("everything", 50, checks::test_everything),
    ]
}

/// The stages of `cargo xtask test --rest`, each with the reason why it is not among the others.
fn rest() -> Vec<(&'static str, Stage)> {
    vec![
        ("installs the tools of the stages below", stage("setup apart", 10, setup::all)),
        (
            "repeats some of `clippy`, for a run with every feature",
            stage("clippy defaults", 60, checks::clippy_defaults),
        ),
        ("installs cargo-deny, and looks at dependencies only", stage("deny", 60, checks::deny)),
        ("has dependencies of its own", stage("interleavings", 60, checks::interleavings)),
        ("interprets code, with a nightly toolchain", stage("miri", 60, checks::miri)),
        (
            "the fuzz targets and the package for Python have dependencies of their own",
            stage("clippy apart", 60, checks::clippy_apart),
        ),
        ("builds five TLS libraries from source", stage("clippy engines", 60, checks::clippy_engines)),
        (
            "builds all unsafe code once more, with a nightly toolchain too",
            stage("sanitized builds", 60, sanitize::build),
        ),
        ("makes millions of calls, with C++ and valgrind too", stage("c-library", 30, c_library::test)),
        ("needs Maven, a new JDK and packages of theirs", stage("java", 20, java::test)),
        ("builds the programs for the stages below", build()),
        ("builds with every feature", stage("build everything", 45, checks::build_everything)),
        ("simulates two thousand minutes", stage("simulate", 10, checks::simulate_some)),
        ("runs tests over io_uring that `test` runs over epoll", stage("uring", 20, checks::uring)),
        ("installs peers in Python, Go and Node", stage("interop", 15, interop::run)),
        ("installs peers in Python, Go and Node", stage("proxied", 10, interop::proxied::run)),
        ("builds h2spec, and installs peers in Python, Go and Node", stage("http2", 10, interop::http2::run)),
        ("installs a package with the program", stage("package", 5, dist::deb::test)),
        ("packs all crates", stage("publish", 10, publish::check)),
        ("builds a server of NATS", stage("hub", 15, hub::test)),
        ("starts servers of Redis", stage("redis", 15, hub::redis)),
        ("installs schemathesis", stage("hub api", 5, api::test)),
        ("needs an authority for tests", stage("acme", 30, acme::test)),
        ("unpacks a tool of Prometheus", stage("alerts", 5, alerts::test)),
        ("needs a browser", stage("browser", 5, browser::test)),
        ("plants faults in servers of other projects", stage("probe", 10, interop::faults::run)),
        ("installs packages for Python", stage("python", 20, python::test)),
        ("installs a scanner", stage("tls scan", 10, hostile::scan)),
        ("runs 770 cases", stage("autobahn server", 15, |context| autobahn::server(context, &Cases::Usual))),
        ("runs 770 cases", stage("autobahn client", 15, |context| autobahn::client(context, &Cases::Usual))),
        ("runs 97 cases", stage("autobahn uring", 5, autobahn::uring)),
        ("runs 307 cases", stage("autobahn http2", 10, autobahn::http2)),
        ("runs some of the cases twice", stage("autobahn proxied", 15, autobahn::proxied_some)),
        ("runs some of the cases both ways", stage("autobahn tokio", 5, autobahn::tokio)),
        ("drops a million futures", stage("cancellations", 15, checks::cancellations)),
        ("builds five TLS libraries from source", stage("engines", 45, checks::engines)),
        ("emulates the processors of two virtual machines", stage("vm-test", 30, vm::test)),
        ("attacks a program with every TLS library", stage("hostile", 15, |context| hostile::attacks(context, &[]))),
        ("instruments all unsafe code", stage("sanitize", 45, sanitize::sanitize)),
        ("builds with every TLS library and driver", stage("xdp", 10, xdp::test)),
        ("needs a program with AF_XDP built in", stage("xdp program", 15, xdp::program)),
        ("installs the Autobahn suite, and runs 492 cases", stage("autobahn xdp", 10, xdp::autobahn)),
        ("repeats some of `test`, for a run with every feature", stage("default features", 15, checks::test_defaults)),
        ("loads the machine for minutes", stage("soak", 6, |context| hostile::soak(context, 90))),
        ("measures for half a minute, on a machine with nothing else to do", stage("crowds", 10, checks::crowds)),
    ]
}

/// The stages of `cargo xtask test --rest` that `wanted` accepts.
fn run_rest(most: Duration, wanted: impl Fn(&str) -> bool) -> ExitCode {
    let (stages, others): (Vec<_>, Vec<_>) = rest().into_iter().partition(|(_, stage)| wanted(stage.name));
    let stages: Vec<Stage> = stages.into_iter().map(|(_, stage)| stage).collect();
    let others = others.into_iter().map(|(_, stage)| (stage.name, "`cargo xtask test --rest` runs it"));
    let small = small().into_iter().map(|stage| (stage.name, "`cargo xtask test` runs it"));
    let left_out: Vec<LeftOut> = small.chain(others).chain(in_neither()).collect();
    stage::run_until(most, &stages, ("left out", &left_out))
}

/// The stages with these names, of both sizes.
fn only(names: &[&str]) -> ExitCode {
    let all: Vec<Stage> = small().into_iter().chain(rest().into_iter().map(|(_, stage)| stage)).collect();
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|stage| stage.name != **name)) {
        eprintln!("there is no stage `{unknown}`; `cargo xtask test` and `cargo xtask test --rest` name theirs");
        return ExitCode::from(2);
    }
    let chosen: Vec<Stage> = all.into_iter().filter(|stage| names.contains(&stage.name)).collect();
    stage::run(&chosen)
}

/// Tests that neither size of `cargo xtask test` runs.
fn in_neither() -> Vec<LeftOut> {
    let mut tests = vec![
        ("fuzz", "finds more the longer it runs: `cargo xtask fuzz --seconds N`"),
        (
            "hostile: thousands",
            "judges latencies, which needs a machine with nothing else to do: `cargo xtask hostile`",
        ),
        ("icount", "compares a release build with counts of one toolchain: `cargo xtask icount`"),
        ("autobahn python", "repeats cases of the other Autobahn stages: `cargo xtask python --conformance`"),
        ("websockets", "fetches tests of another package from GitHub: `cargo xtask python --websockets-tests`"),
        ("autobahn C", "repeats cases of the other Autobahn stages: `cargo xtask c-library --conformance`"),
        ("peers", "compiles servers of other projects, with which `taut bench` compares: `cargo xtask peers`"),
        (
            "upgrades",
            "measures pauses for minutes, which needs a machine with nothing else to do: `cargo xtask upgrades`",
        ),
        ("dist", "builds the program twice more, from nothing: `cargo xtask dist --check`"),
        ("conformance --full", "takes hours: compressed messages above 8 KiB"),
    ];
    if !cargo::has_libressl() {
        tests.push(("LibreSSL", "no registry carries it: TAUTLINE_LIBRESSL names the prefix where it is installed"));
    }
    tests
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

/// All attacks, or those that the options choose.
fn attacks(options: &[&str]) -> Vec<Stage> {
    let chosen: Vec<String> = options.iter().map(|&one| one.to_owned()).collect();
    let mut stages = vec![build(), stage("hostile", 45, move |context| hostile::attacks(context, &chosen))];
    if options.is_empty() {
        stages.push(thousands(None, &[]));
        stages.push(stage("tls scan", 10, hostile::scan));
    }
    stages
}

/// The attacks by many at once, against a program or the one that is built as released.
fn crowds(options: &[&str]) -> ExitCode {
    let (program, options) = match options {
        ["--taut", program, options @ ..] => (Some(*program), options),
        options => (None, options),
    };
    stage::run(&[build(), thousands(program, options)])
}

fn thousands(program: Option<&str>, options: &[&str]) -> Stage {
    let program = program.map(PathBuf::from);
    let chosen: Vec<String> = options.iter().map(|&one| one.to_owned()).collect();
    stage("thousands", 50, move |context| hostile::crowds(context, 3, program.as_deref(), &chosen))
}

fn cases(options: &[&str]) -> Option<Cases> {
    match options {
        [] => Some(Cases::Usual),
        ["--full"] => Some(Cases::Full),
        ["--cases", list] => Some(Cases::These(list.split(',').map(str::to_owned).collect())),
        _ => None,
    }
}

fn dist(options: &[&str]) -> ExitCode {
    let (check, deb) = match options {
        [] => (false, false),
        ["--check"] => (true, false),
        ["--deb"] => (false, true),
        _ => return usage(),
    };
    stage::run(&[stage("dist", 120, move |context| {
        let program = dist::build(context)?;
        if check {
            dist::check(context, &program)?;
        }
        if deb { dist::deb::pack(context, &program, "xz").map(drop) } else { Ok(()) }
    })])
}

fn icount(options: &[&str]) -> ExitCode {
    let bless = match options {
        [] => Bless::Nothing,
        ["--bless"] => Bless::All,
        ["--bless-new"] => Bless::New,
        _ => return usage(),
    };
    stage::run(&[stage("icount", 40, move |context| icount::count(context, bless))])
}

fn fuzz(seconds: u64) -> ExitCode {
    stage::run(&[stage("fuzz", 600, move |context| checks::fuzz(context, seconds))])
}

fn soak(minutes: u64) -> ExitCode {
    let soak = stage("soak", minutes.saturating_add(5), move |context| hostile::soak(context, minutes * 60));
    stage::run(&[build(), soak])
}

fn stage(name: &'static str, minutes: u64, run: impl Fn(&Context) -> Outcome + 'static) -> Stage {
    Stage { name, minutes, run: Box::new(run) }
}

fn usage() -> ExitCode {
    eprint!("{USAGE}");
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_beside_others_exist() {
        let rest = rest();
        assert!(beside().all(|name| rest.iter().any(|(_, stage)| stage.name == name)));
    }
}
