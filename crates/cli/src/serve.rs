mod app;
mod offload;
mod tls;
use crate::driver::DriverArguments;
use crate::failure::Failure;
use crate::stages;
use app::Watched;
use offload::OffloadArguments;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::io::Write;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;
use tautline::layers::io::machine;
use tautline::{Address, CloseCode, Config, DeflateConfig, Origins, Remote, Running, Server};
use tls::TlsArguments;

/// Serve WebSockets.
///
/// Prints one line `listening on wss://ADDRESS` for each address once it accepts connections. Without --cert it makes a
/// development certificate for localhost, which `taut connect` and `taut load` of the same user trust. SIGINT or SIGTERM
/// drains: connections are closed in good order; a second one stops at once. What was done so far is told then, and on SIGUSR1.
/// SIGHUP reloads certificates, as a change of their files does.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  taut serve                                      wss echo at 127.0.0.1:8443
  taut serve --plain --app broadcast              ws chat at 127.0.0.1:8080
  taut serve --listen 0.0.0.0:443 --cert cert.pem --key key.pem --shards 0 --pin
  taut serve --cert rsa.pem --key rsa-key.pem --cert ec.pem --key ec-key.pem
  taut serve --cert cert.pem --key key.pem --ticket-secret /run/secrets/tickets
  taut serve --plain --unix /run/taut.sock
  taut serve --app market --stages                market data, and where the time of what comes in goes")]
pub(crate) struct Arguments {
    /// Where to listen: an address with its port (0 takes a free one), or unix:PATH. May be repeated.
    #[arg(long, value_name = "ADDR")]
    listen: Vec<Address>,
    /// Listen at this Unix socket too.
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,
    /// What to do with messages.
    #[arg(long, default_value = "echo")]
    app: App,
    /// Messages per second of the application `feed`.
    #[arg(long, value_name = "R", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    feed_rate: u32,
    /// Bytes of each of its messages, at least.
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1 << 20))]
    feed_size: u32,
    /// Take the time of each message received, from the network card to the application, or with N of the messages of one
    /// read in N, which costs less. Told on SIGUSR1 and in the end.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    stages: Option<NonZeroU32>,
    #[command(flatten)]
    tls: TlsArguments,
    #[command(flatten)]
    loops: LoopArguments,
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
    /// Loops, each with its own thread and connections; 0 is one for each CPU.
    #[arg(long, value_name = "N", default_value_t = 1)]
    shards: usize,
    /// Pin each loop to a CPU of its own.
    #[arg(long)]
    pin: bool,
    /// Limits and deadlines to begin with.
    #[arg(long, default_value = "untrusted-internet")]
    preset: Preset,
    /// Longest message in bytes; a longer one is refused with 1009.
    #[arg(long, value_name = "BYTES")]
    max_message: Option<usize>,
    #[command(flatten)]
    offload: OffloadArguments,
    /// Connections for each loop; more wait.
    #[arg(long, value_name = "N")]
    max_connections: Option<usize>,
    /// Compress messages of clients that offer it (permessage-deflate).
    #[arg(long)]
    deflate: bool,
    /// Subprotocol to agree on with clients that offer it. May be repeated, the preferred first.
    #[arg(long, value_name = "NAME")]
    subprotocol: Vec<String>,
    /// Web pages of this origin may connect instead of those of the same host; `any` is every page. May be repeated.
    #[arg(long, value_name = "SCHEME://HOST")]
    origin: Vec<String>,
    /// Seconds that connections get to close when the server is told to stop.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    drain: u64,
}

/// What the server does with messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum App {
    /// Answer each message with itself.
    Echo,
    /// Send each message to everyone.
    Broadcast,
    /// Send everyone numbered messages at a steady rate.
    Feed,
    /// Send everyone made-up market data in bursts, the same in every run, from its beginning when the first comes.
    Market,
}

/// Limits and deadlines that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Preset {
    /// Few connections whose every microsecond counts.
    LowLatency,
    /// A great many connections, most of them silent.
    ManyConnections,
    /// Open to anyone.
    UntrustedInternet,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.with_parent {
        crate::child::end_with_parent()?;
    }
    machine::raise_nofile_limit()
        .map_err(|error| Failure::failed(format!("cannot raise the limit of open files: {error}")))?;
    // Signals are kept from the start, so that none that comes while the loops start is lost.
    let signals = Signals::new([SIGINT, SIGTERM, SIGUSR1])
        .map_err(|error| Failure::failed(format!("cannot wait for signals: {error}")))?;
    let (tls, files) = arguments.tls.load()?;
    if files.is_some() {
        let added = signals.add_signal(SIGHUP);
        added.map_err(|error| Failure::failed(format!("cannot wait for signals: {error}")))?;
    }
    let LoopArguments { driver, shards, .. } = &arguments.loops;
    let mut server = Server::new(tls).way(driver.way()?);
    let config = arguments.config()?;
    let inline = config.offload.threads == Some(0);
    let min_signature = (!inline).then_some(config.offload.min_signature);
    server = server.config(config).shards(*shards);
    for address in arguments.addresses() {
        server = server.listen(address);
    }
    if arguments.loops.pin {
        let cpus = machine::cpus().map_err(|error| Failure::failed(format!("cannot read the CPUs: {error}")))?;
        server = server.pin(cpus);
    }
    if let Some(every) = arguments.stages {
        server = server.stages_of_one_read_in(every);
    }
    let running = start(server, arguments)?;
    let reloader = running.reloader();
    // Who starts a server only to measure it removes the files once it stands.
    let watched = files.as_ref().filter(|_| !arguments.with_parent);
    let _watch = watched.map(|files| arguments.tls.watch(files, &reloader)).transpose()?;
    let remotes = running.remotes().to_vec();
    let tell = {
        let (remotes, reloader) = (remotes.clone(), reloader.clone());
        move || offload::tell_counters(&remotes, &reloader, min_signature)
    };
    let reload = move || {
        // A failure is in the log.
        let _ = files.as_ref().map(|files| reloader.reload_files(files));
    };
    announce(&running, arguments.tls.plain);
    let deadline = Duration::from_secs(arguments.loops.drain);
    let quiet = arguments.with_parent;
    obey_signals(signals, remotes, deadline, quiet, (tell, reload));
    stages::tell_all(running.join_with_stages()?);
    Ok(())
}

/// Starts the application, and what publishes for it.
fn start(server: Server, arguments: &Arguments) -> Result<Running, Failure> {
    let app = arguments.app;
    let running = match app {
        _ if arguments.stages.is_some() => server.start_with_stages(move |_| match app {
            App::Echo => Watched::Echo(app::Echo),
            App::Broadcast => Watched::Broadcast(app::Broadcast),
            App::Feed | App::Market => Watched::Feed(app::Feed),
        })?,
        App::Echo => server.start(|_| app::Echo)?,
        App::Broadcast => server.start(|_| app::Broadcast)?,
        App::Feed | App::Market => server.start(|_| app::Feed)?,
    };
    let (remotes, rate, size) = (running.remotes().to_vec(), arguments.feed_rate, arguments.feed_size as usize);
    match app {
        App::Feed => drop(std::thread::spawn(move || app::publish(&remotes, rate, size))),
        App::Market => drop(std::thread::spawn(move || app::publish_market(&remotes))),
        App::Echo | App::Broadcast => {}
    }
    Ok(running)
}

impl Arguments {
    fn addresses(&self) -> Vec<Address> {
        let mut addresses = self.listen.clone();
        addresses.extend(self.unix.clone().map(Address::Unix));
        if addresses.is_empty() {
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
            if count == 0 {
                return Err(Failure::usage("--max-connections must be at least 1"));
            }
            config.limits.max_connections = count;
        }
        loops.offload.apply(&mut config)?;
        config.upgrade.deflate = loops.deflate.then(DeflateConfig::default);
        config.upgrade.subprotocols.clone_from(&loops.subprotocol);
        if loops.origin.iter().any(|origin| origin == "any") {
            config.upgrade.origins = Origins::Any;
        } else if !loops.origin.is_empty() {
            config.upgrade.origins = Origins::List(loops.origin.clone());
        }
        Ok(config)
    }
}

/// Says where to connect, one line each, on standard output: scripts wait for it and read the port from it.
fn announce(running: &Running, plain: bool) {
    let scheme = if plain { "ws" } else { "wss" };
    let lines: String = running
        .addresses()
        .iter()
        .map(|address| match address {
            Address::Tcp(address) => format!("listening on {scheme}://{address}\n"),
            other => format!("listening on {other}\n"),
        })
        .collect();
    // In one piece: a script may stop reading after the first line. Nobody reading is no reason not to serve.
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(lines.as_bytes()).and_then(|()| out.flush()) {
        log::warn!("cannot write to standard output: {error}");
    }
}

/// SIGHUP loads certificates anew, SIGUSR1 has told what was done so far; the first other signal drains the server, the second stops it at once.
fn obey_signals(
    mut signals: Signals,
    remotes: Vec<Remote>,
    deadline: Duration,
    quiet: bool,
    (tell, reload): (impl Fn() + Send + 'static, impl Fn() + Send + 'static),
) {
    std::thread::spawn(move || {
        let mut draining = false;
        for signal in signals.forever() {
            if signal == SIGHUP {
                reload();
                continue;
            }
            if signal == SIGUSR1 {
                tell();
                stages::tell(&remotes);
                continue;
            }
            if draining {
                std::process::exit(1);
            }
            draining = true;
            if !quiet {
                tell();
                eprintln!("closing connections; once more to stop at once");
            }
            for remote in &remotes {
                // A loop that has stopped has nothing to drain.
                let _ = remote.drain(CloseCode::GOING_AWAY, "the server is stopping", deadline);
            }
        }
    });
}
