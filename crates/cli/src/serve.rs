mod admin;
#[cfg(feature = "harden")]
mod harden;
mod hub;
mod listen;
mod offload;
mod privilege;
mod signals;
#[cfg(feature = "files")]
mod site;
mod successor;
mod tls;
mod user;
use crate::amount;
use crate::dashboard::{DashboardArguments, show_server};
use crate::driver::DriverArguments;
use crate::failure::Failure;
use crate::local::local;
use crate::logging::LogFilter;
use crate::refusal::Teller;
use crate::stages;
use crate::supervisor::Supervisor;
use hub::BrokerArguments;
use listen::{Listen, listen};
use offload::OffloadArguments;
use privilege::{Needs, PrivilegeArguments};
use signals::Obedient;
use std::io::Write;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;
use successor::Successor;
#[cfg(feature = "files")]
use tautline::StaticFiles;
use tautline::activation;
use tautline::layers::io::machine;
use tautline::{Address, CloseCode, Config, DeflateConfig, Origins, Restart, Server, ServerHandle, TlsEngine};
use tautline_lab::{app, loops};
use tls::TlsArguments;

/// Serve WebSockets.
///
/// Prints one line `listening on wss://ADDRESS` for each address when it accepts connections. Without --cert it makes a
/// development certificate for localhost, which `taut connect` and `taut load` of the same user trust on loopback.
///
/// Sockets that systemd passes (socket activation) are served too, and without --listen and --unix they alone.
///
/// SIGINT and SIGTERM close all connections cleanly within --drain seconds; a second signal stops the server at once. SIGUSR1
/// prints counters on standard error, and so does the end. SIGHUP reloads certificates, and so does a change of their files.
///
/// SIGUSR2 (`taut upgrade`) starts the program at the same path again, which takes the connections over.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  taut serve                                      wss echo at 127.0.0.1:8443
  taut serve --plain --app broadcast              ws chat at 127.0.0.1:8080
  taut serve --listen 0.0.0.0:443 --cert cert.pem --key key.pem --shards 0 --pin
  taut serve --cert rsa.pem --key rsa-key.pem --cert ec.pem --key ec-key.pem
  taut serve --cert cert.pem --key key.pem --ticket-secret /run/secrets/tickets
  taut serve --plain --unix /run/taut.sock
  taut serve --plain --files public               also the files of a folder, over HTTP
  taut serve --app market --stages                market data, and the stages of received messages
  taut serve --stages --dashboard                 also live figures at https://localhost:8444/
  taut serve --admin localhost:9100               also metrics at http://localhost:9100/metrics")]
pub(crate) struct Arguments {
    /// Address to listen at: IP:PORT (port 0 takes a free one), NAME:PORT, :PORT for all interfaces, or unix:PATH. May be repeated.
    #[arg(long, value_name = "ADDR", value_parser = listen)]
    listen: Vec<Listen>,
    /// Also listen at this Unix socket.
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,
    /// Application that handles the messages.
    #[arg(long, default_value = "echo")]
    app: App,
    /// Answer plain HTTP with the files of this folder. Names that begin with a dot are left out.
    #[cfg(feature = "files")]
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
    #[command(flatten)]
    broker: BrokerArguments,
    /// Messages per second of `--app feed`.
    #[arg(long, value_name = "R", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    feed_rate: u32,
    /// Least bytes of a message of `--app feed`.
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = feed_size)]
    feed_size: usize,
    /// Time received messages from the network card to the application, by stages. With N, only the messages of one read in N
    /// are timed, which costs less. Printed on SIGUSR1 and at the end.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    stages: Option<NonZeroU32>,
    #[command(flatten)]
    dashboard: DashboardArguments,
    /// Serve metrics (OpenMetrics), health, the heaviest connections and the log level over HTTP, at a Unix socket or an address
    /// of the machine itself: unix:PATH, IP:PORT or localhost:PORT.
    #[arg(long, value_name = "ADDR", value_parser = local)]
    admin: Option<Address>,
    #[command(flatten)]
    tls: TlsArguments,
    #[command(flatten)]
    loops: LoopArguments,
    #[command(flatten)]
    privilege: PrivilegeArguments,
    /// Allow core dumps, and debuggers of this user. They contain private keys and messages.
    #[arg(long)]
    core_dumps: bool,
    /// End when the process that started this one ends.
    #[arg(long, hide = true)]
    with_parent: bool,
}

/// Loops and limits.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Loops and limits")]
struct LoopArguments {
    #[command(flatten)]
    driver: DriverArguments,
    /// Loops, each with a thread and connections of its own; 0 takes one per CPU.
    #[arg(long, value_name = "N", default_value_t = 1)]
    shards: usize,
    /// Pin each loop to a CPU of its own.
    #[arg(long)]
    pin: bool,
    /// Give each loop a table of open files of its own, so that their limit (ulimit -n) holds for each loop. Connections are
    /// spread over loops by chance: take loops for a few percent more.
    #[arg(long)]
    own_descriptors: bool,
    /// Preset of limits and deadlines.
    #[arg(long, default_value = "untrusted-internet")]
    preset: Preset,
    /// Longest message, in bytes; a longer one closes its connection with 1009.
    #[arg(long, value_name = "BYTES", value_parser = amount::some_bytes)]
    max_message: Option<usize>,
    /// Memory of all loops, in bytes, such as 2GiB: from 7/8 of it on new connections are refused, and above it the heaviest
    /// are closed. Default: 2, 4 or 8 GiB by --preset, and at most three quarters of the machine's memory.
    #[arg(long, value_name = "BYTES", value_parser = amount::some_bytes)]
    memory_budget: Option<usize>,
    #[command(flatten)]
    offload: OffloadArguments,
    /// Connections of all loops; further ones wait in the kernel's backlog.
    #[arg(long, value_name = "N", value_parser = amount::count)]
    max_connections: Option<usize>,
    /// Accept compression (permessage-deflate) from clients that offer it.
    #[arg(long)]
    deflate: bool,
    /// As --deflate, and keep windows from message to message for clients that allow it. Messages become smaller, and each
    /// connection takes more memory.
    #[arg(long)]
    deflate_takeover: bool,
    /// Subprotocol to accept from clients that offer it. May be repeated, the preferred first.
    #[arg(long, value_name = "NAME")]
    subprotocol: Vec<String>,
    /// Origin whose web pages may connect, instead of pages of the same host; `any` allows all pages. May be repeated.
    #[arg(long, value_name = "SCHEME://HOST")]
    origin: Vec<String>,
    /// Seconds that connections have to close when the server is stopped.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    drain: u64,
    /// Say at a stop that the server restarts (1012), and tell each client when to come back: this many seconds later at the
    /// earliest, each at a time of its own. With 0 another server runs already, and clients move to it one by one.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    back_in: Option<Duration>,
}

/// A time in seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| format!("{text:?} is no number of seconds"))
}

/// The server's application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum App {
    /// Send each message back.
    Echo,
    /// Send each message to all clients.
    Broadcast,
    /// Send each binary message back, and each text message to all clients.
    Crowd,
    /// Send all clients numbered messages at a steady rate.
    Feed,
    /// Send all clients made-up market data in bursts, the same in every run. It begins with the first client.
    Market,
    /// Topics with history, latest values and presence, in JSON (docs/hub.md).
    Hub,
}

/// A preset of limits and deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Preset {
    /// For few connections that need low latency.
    LowLatency,
    /// For very many connections, most of them idle.
    ManyConnections,
    /// For servers that are open to anyone.
    UntrustedInternet,
}

fn feed_size(text: &str) -> Result<usize, String> {
    let bytes = amount::bytes(text)?;
    if bytes <= 1 << 20 { Ok(bytes) } else { Err("at most 1 MiB".to_owned()) }
}

pub(crate) fn run(arguments: &Arguments, filter: LogFilter) -> Result<(), Failure> {
    if arguments.with_parent {
        crate::child::end_with_parent()?;
    }
    // A benchmark's server has no secret, and its starter looks at it.
    if !arguments.core_dumps && !arguments.with_parent {
        machine::forbid_core_dumps()
            .map_err(|error| Failure::failed(format!("cannot forbid core dumps: {error}; pass --core-dumps")))?;
    }
    machine::raise_nofile_limit()
        .map_err(|error| Failure::failed(format!("cannot raise the limit of open files: {error}")))?;
    let supervisor = Supervisor::find();
    let (tls, files) = arguments.tls.load()?;
    let signals = signals::hold(files.is_some())?;
    let LoopArguments { driver, shards, .. } = &arguments.loops;
    let server = Server::new(tls).driver(driver.config()?);
    let config = arguments.config()?;
    let inline = config.offload.threads == Some(0);
    let min_signature = (!inline).then_some(config.offload.min_signature);
    let server = server.config(config).shards(*shards);
    let (mut server, addresses, takes_over) = arguments.listen(server)?;
    if arguments.loops.own_descriptors {
        server = server.own_descriptors(crate::sys::own_descriptors());
    }
    if arguments.loops.pin {
        server = server.pin(cpus()?);
    }
    if let Some(every) = arguments.stages {
        server = server.stages_of_one_read_in(every);
    }
    #[cfg(feature = "files")]
    let folder = arguments.files.clone();
    #[cfg(not(feature = "files"))]
    let folder = None;
    let teller = Teller::new();
    let page = arguments.dashboard.prepare(!arguments.tls.plain)?;
    // Before the loops start, since each thread passes it on.
    arguments.privilege.confine_files(Needs {
        files: arguments.tls.paths(),
        folder,
        key_log: arguments.tls.key_log_path(),
        addresses: addresses.into_iter().chain(arguments.admin.clone()).collect(),
        bypasses_kernel: arguments.loops.driver.bypasses_kernel(),
    })?;
    let handle = start(server, arguments)?;
    let reloader = handle.reloader();
    // `bench` removes the files when the server has started, so they are not watched.
    let watched = files.as_ref().filter(|_| !arguments.with_parent);
    let watch = watched.map(|files| arguments.tls.watch(files, &reloader));
    let _watch = unless_taken_over(takes_over, watch)?;
    if let Some(page) = page {
        show_server(page, format!("taut serve at {}", handle.addresses()[0]), handle.shards().to_vec())?;
    }
    let admin = arguments.admin.as_ref().map(|address| admin::show(&handle, address, filter));
    let admin = unless_taken_over(takes_over, admin)?;
    arguments.privilege.drop(arguments.core_dumps)?;
    let deadline = Duration::from_secs(arguments.loops.drain);
    print_addresses(&handle, arguments.tls.plain);
    supervisor.ready();
    let checked = handle.clone();
    supervisor.watch(move |within| checked.check(within));
    let quiet = arguments.with_parent;
    let (watched, told) = (handle.clone(), supervisor.clone());
    let restart = arguments.loops.back_in.map(|pause| Restart::default().with_pause(pause));
    let why_not = arguments.why_no_successor();
    let successor = Successor::new(&handle, admin, &supervisor, deadline, why_not, teller);
    let upgraded = successor.clone();
    Obedient { handle: watched, files, supervisor: told, deadline, restart, min_signature, successor, quiet }
        .obey(signals);
    if handle.wait_for_end().is_some() {
        // Fewer loops would serve unnoticed. A supervisor of this program can start it anew.
        supervisor.stopping(deadline);
        handle.drain(CloseCode::SERVICE_RESTART, "a loop of the server has failed", deadline);
    }
    stages::print(handle.join_with_stages()?);
    upgraded.wait();
    Ok(())
}

/// A part of the server that may fail only if connections of a predecessor are not lost for that: they have come already.
fn unless_taken_over<T>(takes_over: bool, part: Option<Result<T, Failure>>) -> Result<Option<T>, Failure> {
    match part.transpose() {
        Err(failure) if takes_over => {
            failure.report();
            Ok(None)
        }
        part => part,
    }
}

/// Starts the server with its application, and the thread that publishes for it.
fn start(server: Server<TlsEngine>, arguments: &Arguments) -> Result<ServerHandle, Failure> {
    let app = arguments.app;
    let (hub, bridge) = arguments.broker.open(app == App::Hub)?;
    let server = match bridge {
        Some(bridge) => server.bridge(bridge),
        None => server,
    };
    let make: loops::MakeApp = Box::new(move |_| match app {
        App::Hub => Box::new(hub.handler()),
        App::Echo => Box::new(app::Demo::Echo),
        App::Broadcast => Box::new(app::Demo::Broadcast),
        App::Crowd => Box::new(app::Demo::Crowd),
        App::Feed | App::Market => Box::new(app::Demo::Feed),
    });
    #[cfg(feature = "files")]
    let make = arguments.with_files(make)?;
    let handle = loops::start_server(server, arguments.stages.is_some(), make)?;
    let (shards, rate, size) = (handle.shards().to_vec(), arguments.feed_rate, arguments.feed_size);
    match app {
        App::Feed => drop(std::thread::spawn(move || app::publish(&shards, rate, size))),
        App::Market => drop(std::thread::spawn(move || app::publish_market(&shards))),
        App::Echo | App::Broadcast | App::Crowd | App::Hub => {}
    }
    Ok(handle)
}

impl Arguments {
    /// Adds the files of the folder, if there is one.
    #[cfg(feature = "files")]
    fn with_files(&self, make: loops::MakeApp) -> Result<loops::MakeApp, Failure> {
        let Some(folder) = &self.files else { return Ok(make) };
        let files = StaticFiles::open(folder).map_err(|error| {
            Failure::usage(format!("--files: cannot open the folder {}: {error}", folder.display()))
        })?;
        Ok(Box::new(move |number| Box::new(site::Site { app: make(number), files: files.clone() })))
    }

    /// Has the server listen: at the sockets of a predecessor or a supervisor, and at its addresses. Returns these, and whether it
    /// takes over.
    fn listen(&self, mut server: Server<TlsEngine>) -> Result<(Server<TlsEngine>, Vec<Address>, bool), Failure> {
        let predecessor = successor::predecessor();
        let predecessor = predecessor.map_err(|error| Failure::failed(format!("cannot take over: {error}")))?;
        let takes_over = predecessor.is_some();
        let passed = activation::take().map_err(|error| Failure::usage(format!("socket activation: {error}")))?;
        let addresses = self.addresses(!passed.is_empty());
        // A predecessor passes its listening sockets.
        for address in addresses.iter().filter(|_| !takes_over) {
            server = server.listen(address.clone());
        }
        for passed in passed {
            server = server.listen_on(passed.socket);
        }
        if let Some(stream) = predecessor {
            server = server.take_over(stream);
        }
        Ok((server, addresses, takes_over))
    }

    /// The reason why no new process can take over.
    fn why_no_successor(&self) -> Option<&'static str> {
        let reasons = [
            (self.with_parent, "the process that started this one ends it"),
            (self.dashboard.is_on(), "--dashboard has an address that two processes cannot share"),
            (self.privilege.is_on(), "without its privileges this process cannot start one that needs them"),
            (self.loops.own_descriptors, "--own-descriptors keeps the sockets of each loop to itself"),
            (self.loops.driver.bypasses_kernel(), "the sockets of this driver live in this process"),
        ];
        reasons.into_iter().find_map(|(applies, why)| applies.then_some(why))
    }

    /// The addresses to listen at. There is no default one where a supervisor passes sockets.
    fn addresses(&self, passed: bool) -> Vec<Address> {
        let mut addresses: Vec<Address> = self.listen.iter().flat_map(|Listen(addresses)| addresses.clone()).collect();
        addresses.extend(self.unix.clone().map(Address::Unix));
        if addresses.is_empty() && !passed {
            let port = if self.tls.plain { 8080 } else { 8443 };
            addresses.push(Address::Tcp(([127, 0, 0, 1], port).into()));
        }
        addresses
    }

    fn config(&self) -> Result<Config, Failure> {
        let loops = &self.loops;
        let mut config = match loops.preset {
            Preset::LowLatency => Config::low_latency(),
            Preset::ManyConnections => Config::many_connections(),
            Preset::UntrustedInternet => Config::untrusted_internet(),
        };
        if let Some(bytes) = loops.max_message {
            config.limits.max_message = bytes;
        }
        if let Some(count) = loops.max_connections {
            config.limits.max_connections = count;
        }
        if let Some(bytes) = loops.memory_budget {
            config.limits.memory = bytes;
        }
        let cpus = cpus()?.len();
        config.slow_turn = config.slow_turn.map(|most| most * sharing(loops.shards, cpus));
        loops.offload.apply(&mut config)?;
        config.upgrade.deflate = match (loops.deflate_takeover, loops.deflate) {
            (true, _) => Some(DeflateConfig::with_context_takeover()),
            (false, deflate) => deflate.then(DeflateConfig::default),
        };
        config.upgrade.subprotocols.clone_from(&loops.subprotocol);
        if loops.origin.iter().any(|origin| origin == "any") {
            config.upgrade.origins = Origins::Any;
        } else if !loops.origin.is_empty() {
            config.upgrade.origins = Origins::List(loops.origin.clone());
        }
        Ok(config)
    }
}

/// The CPUs that this process may use.
fn cpus() -> Result<Vec<usize>, Failure> {
    machine::cpus().map_err(|error| Failure::failed(format!("cannot read the CPUs: {error}")))
}

/// Most loops that share a CPU. A turn may take so many times as long before it is slow, since they wait for each other.
fn sharing(loops: usize, cpus: usize) -> u32 {
    u32::try_from(loops.div_ceil(cpus.max(1))).unwrap_or(u32::MAX).max(1)
}

/// Prints the addresses on standard output, one line each. Scripts wait for them and read the port.
fn print_addresses(handle: &ServerHandle, plain: bool) {
    let scheme = if plain { "ws" } else { "wss" };
    let lines: String = handle
        .addresses()
        .iter()
        .map(|address| match address {
            Address::Tcp(address) => format!("listening on {scheme}://{address}\n"),
            other => format!("listening on {other}\n"),
        })
        .collect();
    // In one write, since a script may stop reading after the first line. The server runs even if nobody reads.
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(lines.as_bytes()).and_then(|()| out.flush()) {
        log::warn!("cannot write to standard output: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::sharing;

    #[test]
    fn a_turn_may_take_longer_only_where_loops_share_a_cpu() {
        let shared = [(0, 2), (1, 2), (2, 2), (3, 2), (53, 1), (1, 0)].map(|(loops, cpus)| sharing(loops, cpus));
        assert_eq!(shared, [1, 1, 1, 2, 53, 1]);
    }
}
