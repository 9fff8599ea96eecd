//! Scripted attackers and soaks against the programs of this project, for `cargo xtask hostile` and `cargo xtask soak`.
#![forbid(unsafe_code)]

mod attack;
mod cpus;
mod crowd;
mod edge;
mod honest;
mod http2;
mod outcome;
mod peer;
mod report;
mod script;
mod scripts;
mod seen;
mod server;
mod servers;
mod soak;
mod tls;
mod wire;
mod witness;

use clap::Parser;
use edge::Edge;
use honest::Honest;
use outcome::Result;
use report::{Report, Row};
use script::Script;
use server::{Material, Server, Target};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

/// The engine whose server is attacked over HTTP/2, too.
const OVER_HTTP2: &str = "fused";

/// Attack programs of this project, and load them for long.
#[derive(Debug, Parser)]
struct Arguments {
    /// The program `taut`.
    #[arg(long)]
    taut: PathBuf,
    /// Folder for certificates and logs.
    #[arg(long)]
    folder: PathBuf,
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Every attack, one after the other, beside 100 honest connections.
    Attacks(Attacks),
    /// Each attack on resources by 1,000 at once, beside 100 honest connections.
    Crowds {
        #[command(flatten)]
        attacks: Attacks,
        /// Seconds of each attack, and of the quiet time before it.
        #[arg(long, default_value_t = 4)]
        seconds: u64,
    },
    /// Honest connections, as a process of the other tasks.
    #[command(hide = true)]
    Honest(honest::Arguments),
    /// Many connections for long: nothing may be lost, corrupted or leaked.
    Soak {
        /// TLS engine of the server; `ws` is none.
        #[arg(long, default_value = "fused")]
        engine: String,
        #[arg(long, default_value = "epoll")]
        driver: String,
        #[arg(long, default_value_t = 10_000)]
        connections: usize,
        #[arg(long, default_value_t = 120)]
        seconds: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

#[derive(Debug, clap::Args)]
struct Attacks {
    /// TLS engine of a server; `ws` is none. May be repeated.
    #[arg(long, default_values = ["ws", "fused", "rustls"])]
    engine: Vec<String>,
    /// Driver of a server. May be repeated.
    #[arg(long, default_values = ["epoll"])]
    driver: Vec<String>,
    /// Only attacks whose number, group or name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Print one JSON object per attack.
    #[arg(long)]
    json: bool,
    /// Servers that are attacked at the same time. The latency beside an attack is then that beside several.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Print every attack, and not only those with an unexpected outcome.
    #[arg(long)]
    every: bool,
}

fn main() -> ExitCode {
    // Attackers whose handshake is refused panic in the test kit, and are caught.
    std::panic::set_hook(Box::new(|_| {}));
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool> {
    tautline::layers::io::machine::raise_nofile_limit()?;
    let material = || Material::new(&arguments.folder);
    match &arguments.task {
        Task::Honest(arguments) => honest::run(arguments).map(|()| true),
        Task::Attacks(attacks) => attack_all(arguments, &material()?, attacks),
        Task::Crowds { attacks, seconds } => {
            let time = Duration::from_secs(*seconds);
            attack_in_crowds(arguments, &material()?, attacks, time)
        }
        Task::Soak { engine, driver, connections, seconds, seed } => {
            let tls = (engine != "ws").then(|| engine.clone());
            let target = Target { tls, driver: driver.clone(), ..Target::default() };
            let time = Duration::from_secs(*seconds);
            let plan = soak::Plan { target, connections: *connections, time, seed: *seed };
            soak::run(&arguments.taut, &material()?, &plan)
        }
    }
}

impl Attacks {
    /// The compositions. HTTP/2 is the same with all engines, and one of them is attacked over it if the program has it.
    fn targets(&self, has_http2: bool) -> Vec<Target> {
        let mut targets = Vec::new();
        for engine in &self.engine {
            for driver in &self.driver {
                let tls = (engine != "ws").then(|| engine.clone());
                let target = Target { tls, driver: driver.clone(), ..Target::default() };
                targets.push(target.clone());
                if engine == OVER_HTTP2 && has_http2 {
                    targets.push(Target { http2: true, ..target.clone() });
                }
                if target.tls.is_some() {
                    targets.push(Target { client_certificates: true, ..target });
                }
            }
        }
        targets
    }

    fn is_wanted(&self, number: &str, script: &Script) -> bool {
        let names = [number, script.group, &script.name];
        self.only.as_deref().is_none_or(|only| number == only || names[1..].iter().any(|name| name.contains(only)))
    }
}

/// Runs all scripts against all servers, and then all slow ones at the same time.
fn attack_all(arguments: &Arguments, material: &Material, attacks: &Attacks) -> Result<bool> {
    let mut report = Report::new(attacks.json, attacks.every);
    let scripts = &scripts::all();
    let mut failures = Vec::new();
    let mut servers = Vec::new();
    let has_http2 = server::offers(&arguments.taut, server::HTTP2);
    if !has_http2 {
        eprintln!("LEFT OUT HTTP/2: this `taut serve` has none");
    }
    let started: Result<Vec<Server>> = attacks
        .targets(has_http2)
        .iter()
        .map(|target| Server::start(&arguments.taut, material, target, &["--deflate"]))
        .collect();
    let mut waiting = started?.into_iter().peekable();
    while waiting.peek().is_some() {
        let some: Vec<Server> = waiting.by_ref().take(attacks.jobs.max(1)).collect();
        let done: Vec<Result<_>> = thread::scope(|scope| {
            let attack = |server| scope.spawn(move || attack_quickly(server, scripts, attacks));
            let running: Vec<_> = some.iter().map(attack).collect();
            running.into_iter().map(|one| one.join().unwrap_or_else(|_| Err("a panic of the kit".into()))).collect()
        });
        for (server, result) in some.iter().zip(done) {
            let (rows, failure) = result?;
            rows.into_iter().for_each(|row| report.add(row));
            failures.extend(failure.map(|failure| format!("{}: {failure}", server.target)));
        }
        servers.extend(some);
    }
    let wanted =
        |name: &str| attacks.only.as_deref().is_none_or(|only| name.contains(only) || "hostile servers".contains(only));
    servers::run(&arguments.taut, material, wanted).into_iter().for_each(|row| report.add(row));
    failures.extend(attack_proxies(arguments, material, attacks, &mut report)?);
    attack_slowly(&servers, scripts, attacks, &mut report);
    for server in servers {
        let target = server.target.clone();
        failures.extend(server.stop().err().map(|error| format!("{target}: {error}")));
    }
    for failure in &failures {
        eprintln!("FAILED {failure}");
    }
    Ok(report.finish() && failures.is_empty())
}

/// Runs the scripts that wait for no deadline, one after the other, beside honest connections. Returns a failure of the
/// server as a whole too.
fn attack_quickly(
    server: &Server,
    scripts: &[(String, Script)],
    attacks: &Attacks,
) -> Result<(Vec<Row>, Option<String>)> {
    let before = server.descriptors();
    let honest = if server.target.client_certificates { None } else { Some(Honest::begin(server, false)?) };
    let chosen = scripts.iter().filter(|(number, script)| {
        attacks.is_wanted(number, script) && attack::applies(script, &server.target) && !script.slow
    });
    let rows = chosen.map(|(number, script)| attack::run(server, honest.as_ref(), number, script)).collect();
    drop(honest);
    let leak = !server.settles_at(before, Duration::from_secs(20));
    Ok((rows, leak.then(|| format!("{} descriptors, {before} before", server.descriptors()))))
}

/// Runs the scripts of HTTP against proxies with their engine and without TLS. Returns their failures as a whole.
fn attack_proxies(
    arguments: &Arguments,
    material: &Material,
    attacks: &Attacks,
    report: &mut Report,
) -> Result<Vec<String>> {
    let (scripts, mut failures) = (scripts::of_proxies(), Vec::new());
    let wanted: Vec<_> = scripts.iter().filter(|(number, script)| attacks.is_wanted(number, script)).collect();
    let is_engine =
        |target: &Target| !target.client_certificates && target.tls.as_deref().is_none_or(|tls| tls == "fused");
    for target in attacks.targets(false).into_iter().filter(is_engine).filter(|_| !wanted.is_empty()) {
        let edge = Edge::start(&arguments.taut, material, &target)?;
        let before = edge.proxy.descriptors();
        wanted
            .iter()
            .filter(|(_, script)| !script.slow)
            .for_each(|(number, script)| report.add(edge.attack(number, script)));
        thread::scope(|scope| {
            let slow = wanted.iter().filter(|(_, script)| script.slow);
            let running: Vec<_> =
                slow.map(|(number, script)| scope.spawn(|| attack::run(&edge.proxy, None, number, script))).collect();
            running.into_iter().filter_map(|one| one.join().ok()).for_each(|row| report.add(row));
        });
        // A pool keeps connections to the server for 30 s.
        if !edge.proxy.settles_at(before, Duration::from_secs(45)) {
            failures.push(format!("{}: {} descriptors, {before} before", edge.proxy.target, edge.proxy.descriptors()));
        }
        failures.extend(edge.stop().err().map(|error| format!("the proxy of {target}: {error}")));
    }
    Ok(failures)
}

/// Runs the scripts that wait for deadlines, all of them at the same time.
fn attack_slowly(servers: &[Server], scripts: &[(String, Script)], attacks: &Attacks, report: &mut Report) {
    thread::scope(|scope| {
        let mut running = Vec::new();
        for server in servers {
            for (number, script) in scripts {
                if script.slow && attacks.is_wanted(number, script) && attack::applies(script, &server.target) {
                    running.push(scope.spawn(move || attack::run(server, None, number, script)));
                }
            }
        }
        for row in running.into_iter().filter_map(|one| one.join().ok()) {
            report.add(row);
        }
    });
}

/// Runs the attacks by 1,000 against all servers.
fn attack_in_crowds(arguments: &Arguments, material: &Material, attacks: &Attacks, time: Duration) -> Result<bool> {
    let mut report = Report::new(attacks.json, true);
    let mut left_out = Vec::new();
    let has_http2 = server::offers(&arguments.taut, server::HTTP2);
    for target in attacks.targets(has_http2).iter().filter(|target| !target.client_certificates) {
        let wanted = |script: &Script| attacks.is_wanted("", script);
        let rows = |row| report.add(row);
        left_out.extend(crowd::run(&arguments.taut, material, target, time, (wanted, rows))?);
    }
    left_out.iter().for_each(|reason| eprintln!("LEFT OUT {reason}"));
    Ok(report.finish())
}
