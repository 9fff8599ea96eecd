mod access;
#[cfg(feature = "acme")]
mod acme;
#[cfg(not(feature = "acme"))]
#[path = "serve/acme_missing.rs"]
mod acme;
mod admin;
mod broker;
mod check;
mod common;
mod deadlines;
#[cfg(feature = "proxy")]
mod front;
#[cfg(feature = "proxy")]
mod front_metrics;
#[cfg(feature = "proxy")]
mod front_tls;
mod gate;
#[cfg(feature = "harden")]
mod harden;
mod http2;
mod hub_metrics;
mod listen;
mod offload;
mod pages;
mod privilege;
mod proxied;
#[cfg(feature = "proxy")]
mod proxy;
mod reach;
mod rules;
mod signals;
#[cfg(feature = "files")]
mod site;
mod starter;
mod stop;
mod successor;
mod tls;
mod user;
mod venue;
#[cfg(feature = "acme")]
pub(crate) use self::acme::usual_folder as usual_acme_folder;
pub(crate) use self::check::{CheckArguments, check};
#[cfg(feature = "proxy")]
pub(crate) use self::front::Front;
#[cfg(feature = "proxy")]
pub(crate) use self::proxy::ProxyArguments;
#[cfg(feature = "proxy")]
use crate::dashboard::FrontTables;
use crate::dashboard::{HubTables, MakeTables, Prepared, show_server};
use crate::failure::Failure;
use crate::keeper::{self, Request, Sockets, Worker};
use crate::logging::LogFilter;
use crate::output;
use crate::program;
use crate::stages;
use crate::supervisor::{self, Supervisor};
use crate::verdict::Teller;
use access::AccessFile;
use broker::BrokerArguments;
use common::{CommonArguments, LoopArguments, MessageArguments, Preset};
use deadlines::DeadlineArguments;
use gate::Gate;
use hub_metrics::HubMetrics;
use listen::Listen;
use privilege::Needs;
use reach::Reach;
use rules::RulesArguments;
use signal_hook::iterator::{Handle, Signals};
use signals::Obedient;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use stop::{LameDuck, Stop};
use successor::Successor;
#[cfg(feature = "files")]
use tautline::StaticFiles;
use tautline::activation;
use tautline::layers::io::machine;
use tautline::{
    Address, AdminToken, CloseCode, Config, DeflateConfig, PreparedServer, Reloader, Restart, Server, ServerConfig,
    ServerFiles, ServerHandle, Tls, TlsEngine, Watch,
};
use tautline_lab::{app, loops};
use tautline_probe::amount;
use venue::VenueArguments;

/// Serve WebSockets.
///
/// Prints one line `listening on wss://ADDRESS` for each address when it accepts connections. Without --cert it makes a
/// development certificate for localhost, which `taut connect` and `taut load` of the same user trust on loopback.
///
/// Sockets that systemd passes (socket activation) are served too, and without --listen and --unix they alone.
///
/// SIGINT and SIGTERM close all connections cleanly within --drain seconds; a second signal stops the server at once. SIGUSR1
/// prints counters on standard error, and so does the end. SIGHUP reloads certificates, and so does a change of their files.
/// It reloads the rules of a hub, too. Without any of these it changes nothing.
///
/// SIGUSR2 (`taut upgrade`) starts the program at the same path again, which takes the connections over.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  taut serve                                      wss echo at 127.0.0.1:8443
  taut serve --plain --app broadcast              ws chat at 127.0.0.1:8080
  taut serve --listen 0.0.0.0:443 --cert cert.pem --key key.pem --shards 0 --pin
  taut serve --listen :443 --acme www.example.com
  taut serve --cert rsa.pem --key rsa-key.pem --cert ec.pem --key ec-key.pem
  taut serve --cert cert.pem --key key.pem --ticket-secret /run/secrets/tickets
  taut serve --plain --unix /run/taut.sock
  taut serve --plain --files public               also the files of a folder, over HTTP
  taut serve --app market --stages                market data, and the stages of received messages
  taut serve --listen :443 --acme hub.example --app hub --rules hub.toml
  taut serve --plain --app venue --like kraken    a simulated venue, for clients of market data
  taut serve --stages --dashboard                 also live figures at https://localhost:8444/
  taut serve --admin localhost:9100               also metrics at http://localhost:9100/metrics")]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: CommonArguments,
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
    #[command(flatten)]
    hub_rules: RulesArguments,
    #[arg(skip)]
    hub_metrics: HubMetrics,
    #[command(flatten)]
    venue: VenueArguments,
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
    messages: MessageArguments,
    #[command(flatten)]
    deadlines: DeadlineArguments,
    /// The front of other servers, in place of the application.
    #[cfg(feature = "proxy")]
    #[arg(skip)]
    front: Option<Front>,
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
    /// A simulated venue of market data: subscriptions, books, trades, limits that ban (docs/feeds.md).
    Venue,
}

fn feed_size(text: &str) -> Result<usize, String> {
    let bytes = amount::bytes(text)?;
    if bytes <= 1 << 20 { Ok(bytes) } else { Err("at most 1 MiB".to_owned()) }
}

pub(crate) fn run(arguments: &Arguments, filter: LogFilter) -> Result<(), Failure> {
    if arguments.common.with_parent {
        crate::child::end_with_parent()?;
    }
    if arguments.needs_keeper() {
        return keeper::run();
    }
    // A benchmark's server has no secret, and its starter looks at it.
    if !arguments.common.core_dumps && !arguments.common.with_parent {
        machine::forbid_core_dumps()
            .map_err(|error| Failure::failed(format!("cannot forbid core dumps: {error}; pass --core-dumps")))?;
    }
    machine::raise_nofile_limit()
        .map_err(|error| Failure::failed(format!("cannot raise the limit of open files: {error}")))?;
    let signals = signals::hold()?;
    let (worker, sockets) = begin()?;
    let supervisor = worker.as_ref().map_or_else(Supervisor::find, Supervisor::behind);
    if sockets.predecessor.is_none() {
        arguments.common.tls.acme.check_addresses(&arguments.addresses(!sockets.listening.is_empty()))?;
    }
    let acme = arguments.common.tls.acme(&arguments.common.privilege)?;
    let (tls, files) = arguments.common.tls.load(acme.as_ref())?;
    let token = arguments.common.admin.token()?;
    let page = arguments.common.dashboard.prepare(!arguments.common.tls.plain)?;
    let mut config = arguments.config()?;
    let access = arguments
        .common
        .access_log
        .as_deref()
        .map(|path| AccessFile::open(path, &arguments.common.privilege))
        .transpose()?;
    config.access_log = access.as_ref().map(AccessFile::log);
    arguments.common.admin.apply(&mut config);
    let min_signature = (config.offload.threads != Some(0)).then_some(config.offload.min_signature);
    let mut gate = Gate::default();
    let prepared = arguments.prepare(tls, config, (worker.as_ref(), sockets), &mut gate)?;
    let begun = Begun { filter, token, files, acme, access, worker, supervisor, signals, page, min_signature };
    serve(arguments, begun, prepared, gate)
}

/// The parts of a server that exist before its loops.
struct Begun {
    filter: LogFilter,
    token: Option<AdminToken>,
    files: Option<ServerFiles>,
    acme: Option<acme::Service>,
    access: Option<AccessFile>,
    worker: Option<Worker>,
    supervisor: Supervisor,
    signals: Signals,
    page: Option<Prepared>,
    /// Signature time from which handshakes leave their loop.
    min_signature: Option<Duration>,
}

/// The parts of a server that can go on.
struct Ready {
    /// Servers with loops of their own: the admin listener, and that for HTTP-01.
    beside: Vec<PreparedServer>,
    _watch: Option<Watch>,
    _renewing: Option<acme::Renewing>,
    successor: Successor,
    signals: SignalsEnd,
}

/// The end of the thread that obeys signals.
struct SignalsEnd {
    closing: Handle,
    /// Disconnected once the thread has ended.
    ended: Receiver<()>,
}

impl SignalsEnd {
    /// Waits until the signals that have come are obeyed. A stop may come to a process whose connections have just moved.
    fn wait(&self) {
        self.closing.close();
        let _ = self.ended.recv_timeout(Duration::from_secs(1));
    }
}

/// The keeper of this process, if it has one, and the sockets that others pass to it.
fn begin() -> Result<(Option<Worker>, Sockets), Failure> {
    let failed =
        |error| Failure::failed(format!("cannot take the sockets of the process that started this one: {error}"));
    if let Some((worker, sockets)) = Worker::begin().map_err(failed)? {
        return Ok((Some(worker), sockets));
    }
    let predecessor = starter::predecessor().map_err(failed)?;
    let listening =
        supervisor::take_sockets().map_err(|error| Failure::usage(format!("socket activation: {error}")))?;
    Ok((None, Sockets { listening, predecessor }))
}

/// Serves until the end.
fn serve(arguments: &Arguments, begun: Begun, mut prepared: PreparedServer, mut gate: Gate) -> Result<(), Failure> {
    let (worker, supervisor) = (begun.worker.clone(), begun.supervisor.clone());
    let (access, files) = (begun.access.clone(), begun.files.clone());
    let takes_over = prepared.takes_over();
    // From the moment on at which a predecessor has let go, nothing may fail.
    let ready = match arguments.get_ready(begun, &mut prepared, &mut gate) {
        Ok(ready) => ready,
        Err(failure) => {
            prepared.give_up(&failure);
            return Err(failure);
        }
    };
    let handle = prepared.go_on()?;
    if let Some(hub) = arguments.hub_metrics.hub() {
        hub.add_totals(&handle.totals_before());
    }
    for server in ready.beside {
        let addresses = server.handle().addresses().to_vec();
        if let Err(error) = server.go_on() {
            log::error!("the listener at {addresses:?} does not serve: {error:#}");
        }
    }
    gate.open();
    worker.iter().for_each(|worker| worker.ask(&Request::Serves));
    // A predecessor has said so, and the manager believes this process once it has named it.
    if !takes_over || worker.is_some() {
        supervisor.ready();
    }
    if takes_over {
        // The predecessor alone has heard a SIGHUP that came when this process had opened them already.
        access.iter().for_each(AccessFile::reopen);
        // Files that have not changed since are no reload. A failure is logged.
        let changed = files.iter().filter(|files| files.have_changed());
        changed.for_each(|files| _ = handle.reloader().reload_files(files));
    }
    let deadline = Duration::from_secs(arguments.common.loops.drain);
    if handle.wait_for_end().is_some() {
        // Fewer loops would serve unnoticed. A supervisor of this program can start it anew.
        supervisor.stopping(deadline);
        handle.drain(CloseCode::SERVICE_RESTART, "a loop of the server has failed", deadline);
    }
    stages::print(handle.join_with_stages()?);
    ready.successor.wait();
    ready.signals.wait();
    Ok(())
}

/// Starts the loops with their application, and the thread that publishes for it.
fn prepare(
    server: Server<TlsEngine>,
    arguments: &Arguments,
    is_local: bool,
    gate: &mut Gate,
) -> Result<PreparedServer, Failure> {
    #[cfg(feature = "proxy")]
    if let Some(front) = &arguments.front {
        return front.prepare(server, arguments.common.tls.engine());
    }
    let app = arguments.app;
    let (hub, bridge) = arguments.broker.open(app == App::Hub)?;
    let common = &arguments.common;
    let may_connect = !common.privilege.confines_files() || arguments.reach(common.tls.acme.is_on()).internet;
    let hub = match is_local {
        true => hub.for_pages(pages::origins(&arguments.messages.origin, is_local).map_err(Failure::usage)?),
        false => hub,
    };
    let hub = arguments.hub_rules.apply(hub, may_connect)?;
    if app == App::Hub {
        arguments.hub_metrics.set(&hub);
    }
    let server = match bridge {
        Some(bridge) => server.bridge(bridge),
        None => server,
    };
    VenueArguments::check(app == App::Venue, arguments.common.loops.shards)?;
    let venue = arguments.venue.setup();
    let make: loops::MakeApp = Box::new(move |_| match app {
        App::Hub => Box::new(hub.handler()),
        App::Venue => Box::new(app::VenueApp::new(venue.clone())),
        App::Echo => Box::new(app::Demo::Echo),
        App::Broadcast => Box::new(app::Demo::Broadcast),
        App::Crowd => Box::new(app::Demo::Crowd),
        App::Feed | App::Market => Box::new(app::Demo::Feed),
    });
    #[cfg(feature = "files")]
    let make = arguments.with_files(make, is_local)?;
    #[cfg(not(feature = "files"))]
    let _ = is_local;
    let prepared = loops::prepare_server(server, arguments.stages.is_some(), make)?;
    let shards = prepared.handle().shards().to_vec();
    let (rate, size) = (arguments.feed_rate, arguments.feed_size);
    match app {
        App::Feed => gate.spawn("feed", move || app::publish(&shards, rate, size))?,
        App::Market => gate.spawn("market", move || app::publish_market(&shards))?,
        App::Echo | App::Broadcast | App::Crowd | App::Hub | App::Venue => {}
    }
    Ok(prepared)
}

impl Arguments {
    /// Whether another process is to start this one. Without it a server that has given up its privileges has no successor, nor
    /// has the first process of a container, whose end is that of all.
    fn needs_keeper(&self) -> bool {
        let is_first = self.common.privilege.is_on() || std::process::id() == 1;
        is_first && self.why_no_successor().is_none() && !Worker::is_one() && !starter::is_successor()
    }

    /// Has the server listen, and starts its loops.
    fn prepare(
        &self,
        tls: Tls<ServerConfig, TlsEngine>,
        mut config: Config,
        (worker, sockets): (Option<&Worker>, Sockets),
        gate: &mut Gate,
    ) -> Result<PreparedServer, Failure> {
        let LoopArguments { driver, shards, .. } = &self.common.loops;
        self.check_unix_mode()?;
        self.common.loops.http2.check(self.common.tls.plain)?;
        let is_local = self.is_local(&sockets)?;
        let served = self.served(&sockets)?;
        self.hub_rules.check(self.app == App::Hub, &served)?;
        config.upgrade.origins = pages::origins(&self.messages.origin, is_local).map_err(Failure::usage)?;
        let server = Server::new(tls).driver(driver.config()?).config(config).shards(*shards);
        let takes_over = sockets.predecessor.is_some();
        let (mut server, addresses) = self.listen(server, sockets);
        server = self.common.loops.http2.apply(server);
        if self.common.loops.own_descriptors {
            server = server.own_descriptors(crate::sys::own_descriptors());
        }
        if self.common.loops.pin {
            server = server.pin(cpus()?);
        }
        if let Some(every) = self.stages {
            server = server.stages_of_one_read_in(every);
        }
        let needs = self.needs(addresses);
        self.common.privilege.report_closed(&needs.files)?;
        // Before any thread starts, since each passes it on to those that it starts.
        self.common.privilege.confine_files(needs)?;
        output::begin();
        let listened = worker.map_or(Ok(()), Worker::listen);
        listened.map_err(|error| Failure::failed(format!("cannot listen to the keeper: {error}")))?;
        if takes_over {
            // All sockets come along. Nothing that the old process sends is read with more privileges than it had.
            self.common.privilege.change_user(self.common.core_dumps)?;
        }
        prepare(server, self, is_local, gate)
    }

    /// Does all that may fail before the server goes on.
    fn get_ready(&self, begun: Begun, server: &mut PreparedServer, gate: &mut Gate) -> Result<Ready, Failure> {
        let Begun { filter, token, files, acme, access, worker, supervisor, mut signals, page, min_signature } = begun;
        let handle = server.handle().clone();
        let reloader = handle.reloader();
        // `bench` removes the files when the server has started, so they are not watched.
        let watched = files.as_ref().filter(|_| !self.common.with_parent);
        let watch = watched.map(|files| self.common.tls.watch(files, &reloader)).transpose()?.flatten();
        if let Some(page) = page {
            let title = format!("{} at {}", self.name(), handle.addresses()[0]);
            show_server(page, title, handle.shards().to_vec(), self.tables())?;
        }
        let lame_duck = LameDuck::default();
        let shown = admin::Shown {
            filter,
            token,
            acme: acme.as_ref(),
            lame_duck: lame_duck.clone(),
            broker: self.broker.health.clone(),
            hub: self.hub_metrics.clone(),
            #[cfg(feature = "proxy")]
            front: self.front.clone(),
        };
        let shown = |address| admin::prepare(server, address, shown);
        let mut beside: Vec<PreparedServer> = self.common.admin.address().map(shown).transpose()?.into_iter().collect();
        let http = acme.as_ref().map(|acme| acme.prepare_http(server, beside.len())).transpose()?;
        beside.extend(http.flatten());
        let teller = Teller::new(worker.clone());
        if !server.takes_over() {
            self.common.privilege.change_user(self.common.core_dumps)?;
        }
        self.common.privilege.confine_calls(self.reach(acme.is_some()))?;
        #[cfg(feature = "proxy")]
        if let Some(front) = &self.front {
            front.begin(gate, self.common.privilege.confines_files().then(|| self.reach(acme.is_some())))?;
        }
        let renewing = acme.as_ref().zip(files.as_ref()).map(|(acme, files)| acme.renew(files, reloader.clone()));
        let renewing = renewing.transpose()?;
        let (files, watch) = self.pass_files(files, watch, reloader);
        let checked = handle.clone();
        if let Some(watch) = supervisor.watch(move |within| checked.check(within)) {
            gate.spawn("watchdog", watch)?;
        }
        let restart = self.messages.back_in.map(|pause| Restart::default().with_pause(pause));
        let (delay, deadline) = (self.common.loops.drain_delay, Duration::from_secs(self.common.loops.drain));
        let stop = Stop { handle: handle.clone(), delay, lame_duck, deadline, restart };
        let successor = Successor::new(successor::Parts {
            stop: stop.clone(),
            beside: beside.iter().map(|server| server.handle().clone()).collect(),
            supervisor: supervisor.clone(),
            worker,
            program: program::path(),
            teller,
            hub: self.hub_metrics.clone(),
            refused: self.why_no_successor(),
        });
        // A predecessor that was asked to stop has passed that on.
        if server.takes_over() && signals::has_stop(&mut signals) {
            return Err(Failure::failed("it was asked to stop"));
        }
        let rules = self.hub_rules.live.clone();
        if rules.is_on() {
            let watched = rules.clone();
            gate.spawn("rules", move || watched.watch())?;
        }
        let obedient = Obedient {
            stop,
            files,
            access,
            rules,
            #[cfg(feature = "proxy")]
            front: self.front.clone(),
            supervisor,
            min_signature,
            successor: successor.clone(),
            quiet: self.common.with_parent,
        };
        let (closing, (running, ended)) = (signals.handle(), channel::<()>());
        gate.spawn("signals", move || {
            obedient.obey(signals);
            drop(running);
        })?;
        print_addresses(&handle, self.common.tls.plain);
        Ok(Ready { beside, _watch: watch, _renewing: renewing, successor, signals: SignalsEnd { closing, ended } })
    }

    /// Passes the files of certificates to the front, if they are those of its configuration. Otherwise they come back.
    #[cfg_attr(not(feature = "proxy"), expect(clippy::unused_self, reason = "as with the feature"))]
    fn pass_files(
        &self,
        files: Option<ServerFiles>,
        watch: Option<Watch>,
        reloader: Reloader,
    ) -> (Option<ServerFiles>, Option<Watch>) {
        #[cfg(feature = "proxy")]
        if let Some(front) = &self.front {
            return front.take_files(files, watch, reloader);
        }
        drop(reloader);
        (files, watch)
    }

    /// The command that has these options.
    const fn name(&self) -> &'static str {
        #[cfg(feature = "proxy")]
        if self.front.is_some() {
            return "taut proxy";
        }
        "taut serve"
    }

    /// The tables of the page of live figures.
    fn tables(&self) -> MakeTables {
        #[cfg(feature = "proxy")]
        if let Some(front) = &self.front {
            let mut tables = FrontTables::new(front.clone());
            return Box::new(move |seconds| tables.next(seconds));
        }
        if let Some(hub) = self.hub_metrics.hub() {
            let mut tables = HubTables::new(hub.clone());
            return Box::new(move |seconds| tables.next(seconds));
        }
        Box::new(|_| Vec::new())
    }

    /// Adds the files of the folder, if there is one.
    #[cfg(feature = "files")]
    fn with_files(&self, make: loops::MakeApp, is_local: bool) -> Result<loops::MakeApp, Failure> {
        let Some(files) = self.static_files()? else { return Ok(make) };
        let pages = pages::origins(&self.messages.origin, is_local).map_err(Failure::usage)?;
        let pages = is_local.then_some(pages);
        let has_api = self.app == App::Hub;
        let site = move |number| site::Site { app: make(number), files: files.clone(), has_api, pages: pages.clone() };
        Ok(Box::new(move |number| Box::new(site(number))))
    }

    /// The folder whose files are served.
    #[cfg(feature = "files")]
    fn static_files(&self) -> Result<Option<StaticFiles>, Failure> {
        let Some(folder) = &self.files else { return Ok(None) };
        let opened = StaticFiles::open(folder);
        let cannot = |error| Failure::usage(format!("--files: cannot open the folder {}: {error}", folder.display()));
        opened.map(Some).map_err(cannot)
    }

    /// The needs of the server once it serves at these addresses.
    fn needs(&self, addresses: Vec<Address>) -> Needs {
        let mut folders: Vec<PathBuf> = Vec::new();
        #[cfg(feature = "files")]
        folders.extend(self.files.clone());
        #[cfg(feature = "proxy")]
        folders.extend(self.front.iter().flat_map(Front::folders));
        let mut files = self.common.tls.paths();
        #[cfg(feature = "proxy")]
        files.extend(self.front.iter().flat_map(Front::paths));
        Needs {
            files: files.into_iter().chain(self.hub_rules.paths()).chain(self.broker.paths()).collect(),
            reach: self.reach(self.common.tls.acme.is_on()),
            state: self.common.tls.acme.folder(),
            folders,
            key_log: self.common.tls.key_log_path(),
            access_log: self.common.access_log.clone().filter(|path| path.as_os_str() != "-"),
            addresses: addresses.into_iter().chain(self.common.admin.address().cloned()).collect(),
            bypasses_kernel: self.common.loops.driver.bypasses_kernel(),
        }
    }

    /// The others that the server connects to once it serves.
    fn reach(&self, orders: bool) -> Reach {
        #[cfg(feature = "proxy")]
        if let Some(front) = &self.front {
            return front.reach(orders);
        }
        let connects = self.app == App::Hub && (self.broker.is_on() || self.hub_rules.has_hooks());
        Reach { internet: orders || connects, unix: false }
    }

    /// Has the server listen: at the sockets of a predecessor or a supervisor, and at its addresses. Returns these.
    fn listen(&self, mut server: Server<TlsEngine>, sockets: Sockets) -> (Server<TlsEngine>, Vec<Address>) {
        let Sockets { listening, predecessor } = sockets;
        let addresses = self.addresses(!listening.is_empty());
        // A predecessor passes its listening sockets.
        for address in addresses.iter().filter(|_| predecessor.is_none()) {
            server = server.listen(address.clone());
        }
        if let Some(mode) = self.common.unix_mode {
            server = server.unix_mode(mode);
        }
        for socket in listening {
            server = server.listen_on(socket);
        }
        if let Some(stream) = predecessor {
            server = server.take_over(stream);
        }
        (server, addresses)
    }

    /// Whether browsers reach the server on this machine only.
    fn is_local(&self, sockets: &Sockets) -> Result<bool, Failure> {
        self.served(sockets).map(|served| pages::are_local(&served))
    }

    /// The addresses that the server serves, with those that others pass.
    fn served(&self, sockets: &Sockets) -> Result<Vec<Address>, Failure> {
        // A predecessor passes sockets without a word of who has opened them.
        let of_first = sockets.predecessor.as_ref().and_then(|_| supervisor::passed_to_first());
        let own = || sockets.listening.iter().map(activation::address).collect::<std::io::Result<Vec<_>>>();
        let is_passed = of_first.is_some() || !sockets.listening.is_empty();
        let passed = of_first.map_or_else(own, Ok);
        let passed = passed.map_err(|error| Failure::usage(format!("socket activation: {error}")))?;
        Ok(self.addresses(is_passed).into_iter().chain(passed).collect())
    }

    /// Whether the server confines its access to files, and with it that of threads which it starts later.
    pub(crate) const fn confines_files(&self) -> bool {
        self.common.privilege.confines_files()
    }

    /// The reason why no new process can take over.
    fn why_no_successor(&self) -> Option<&'static str> {
        let reasons = [
            (self.common.with_parent, "the process that started this one ends it"),
            (self.common.dashboard.is_on(), "--dashboard has an address that two processes cannot share"),
            (self.common.loops.own_descriptors, "--own-descriptors keeps the sockets of each loop to itself"),
            (self.common.loops.driver.bypasses_kernel(), "the sockets of this driver live in this process"),
        ];
        reasons.into_iter().find_map(|(applies, why)| applies.then_some(why))
    }

    /// The addresses to listen at. There is no default one where a supervisor passes sockets.
    fn addresses(&self, passed: bool) -> Vec<Address> {
        let mut addresses: Vec<Address> =
            self.common.listen.iter().flat_map(|Listen(addresses)| addresses.clone()).collect();
        addresses.extend(self.unix.clone().map(Address::Unix));
        if addresses.is_empty() && !passed {
            let port = if self.common.tls.plain { 8080 } else { 8443 };
            addresses.push(Address::Tcp(([127, 0, 0, 1], port).into()));
        }
        addresses
    }

    /// Checks that there is a file for the mode of --unix-mode.
    fn check_unix_mode(&self) -> Result<(), Failure> {
        let has_file = self.addresses(false).iter().any(|address| matches!(address, Address::Unix(_)));
        if self.common.unix_mode.is_none() || has_file {
            return Ok(());
        }
        Err(Failure::usage("--unix-mode needs a Unix socket that the server makes: add --unix PATH"))
    }

    fn config(&self) -> Result<Config, Failure> {
        let loops = &self.common.loops;
        let mut config = match loops.preset {
            Preset::LowLatency => Config::low_latency(),
            Preset::ManyConnections => Config::many_connections(),
            Preset::UntrustedInternet => Config::untrusted_internet(),
        };
        let limits = &mut config.limits;
        limits.max_message = self.messages.max_message.unwrap_or(limits.max_message);
        limits.max_connections = loops.max_connections.unwrap_or(limits.max_connections);
        limits.memory = loops.memory_budget.unwrap_or(limits.memory);
        self.common.proxied.apply(&mut config);
        self.deadlines.apply(&mut config)?;
        let cpus = cpus()?.len();
        config.slow_turn = config.slow_turn.map(|most| most * sharing(loops.shards, cpus));
        loops.offload.apply(&mut config)?;
        config.upgrade.deflate = match (self.messages.deflate_takeover, self.messages.deflate) {
            (true, _) => Some(DeflateConfig::with_context_takeover()),
            (false, deflate) => deflate.then(DeflateConfig::default),
        };
        config.upgrade.subprotocols.clone_from(&self.messages.subprotocol);
        #[cfg(feature = "proxy")]
        if let Some(front) = &self.front {
            config.raw = true;
            front.apply(&mut config, loops.max_connections);
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
    output::standard_output().add(lines.as_bytes());
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
