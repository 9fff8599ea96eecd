//! The front of other servers: its plan, which a reload replaces, and its loops.

use super::front_tls::FrontTls;
use super::gate::Gate;
use super::reach::Reach;
use super::tls::TlsArguments;
use crate::failure::Failure;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tautline::layers::tls::mixed::Kind;
use tautline::{
    Config, EngineChoice, Fused, Plain, PreparedServer, Reloader, Server, ServerFiles, Then, TlsEngine, Watch,
};
use tautline_proxy::edge::Edge;
use tautline_proxy::health::Checks;
use tautline_proxy::plan::Place;
use tautline_proxy::resolving::Resolving;
use tautline_proxy::sources::Sources;
use tautline_proxy::tally::Figures;
use tautline_proxy::{Live, Plan, config};

/// Time between two looks at the file. A changed file is read when it has not changed for this time.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// The words of the system about a file that this process may not use.
const DENIED: &str = "Permission denied";

/// Files in the folders of authorities, with those to which links there lead.
const AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/usr/share/ca-certificates/mozilla",
    "/usr/local/share/ca-certificates/local",
];

/// The engines of a proxy: one for its clients, and one for servers with TLS. Each choice is a loop of its own in the program.
#[derive(Clone, Copy)]
enum Forwarding {
    Plain,
    Fused,
}

impl Forwarding {
    fn new(engine: TlsEngine) -> Result<Self, Failure> {
        match engine {
            TlsEngine::Plain => Ok(Self::Plain),
            TlsEngine::Fused => Ok(Self::Fused),
            other => Err(Failure::usage(format!("--tls {other}: `taut proxy` has the engine fused; leave out --tls"))),
        }
    }
}

impl EngineChoice for Forwarding {
    fn choose<T: Then>(self, then: T) -> T::Output {
        match self {
            Self::Plain => then.with(Kind(Plain, Fused)),
            Self::Fused => then.with(Kind(Fused, Fused)),
        }
    }
}

/// The place that a plan comes from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    File(PathBuf),
    Servers(Vec<String>),
}

impl Source {
    pub(super) fn plan(&self, before: Option<&Plan>) -> Result<Plan, Failure> {
        let now = Instant::now();
        match self {
            Self::File(path) => config::read(path, before, now).map_err(|faults| Failure::faults(faults.to_string())),
            Self::Servers(servers) => {
                config::of_servers(servers, before, now).map_err(|how| Failure::usage(format!("--to: {how}")))
            }
        }
    }
}

/// The front of other servers. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Front(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    source: Source,
    live: Live,
    tls: FrontTls,
    /// Those of the plan of the moment.
    checks: Mutex<Option<(Checks, Resolving)>>,
    /// The files of the plan of the moment, as they were before they were read last. The lock also keeps two reloads apart.
    seen: Mutex<Stamps>,
    /// The others that a hardened process may connect to, whatever a reload says.
    confined: OnceLock<Reach>,
    /// The plan with which the process began.
    first: Arc<Plan>,
    /// Reloads of the configuration, and those that were refused.
    reloads: [AtomicU64; 2],
}

impl Front {
    /// A front with this plan. `own` are the options of TLS, without the additions of the plan.
    pub(super) fn new(source: Source, plan: Plan, own: TlsArguments) -> Self {
        let seen = Mutex::new(stamps(&source, &plan));
        let (live, tls, checks) = (Live::new(plan), FrontTls::new(own), Mutex::new(None));
        let (first, confined, reloads) = (live.plan(), OnceLock::new(), Default::default());
        Self(Arc::new(Inner { source, live, tls, checks, seen, confined, first, reloads }))
    }

    /// Takes the files of certificates over, if they are those of the configuration. Otherwise it gives them back.
    pub(super) fn take_files(
        &self,
        files: Option<ServerFiles>,
        watch: Option<Watch>,
        reloader: Reloader,
    ) -> (Option<ServerFiles>, Option<Watch>) {
        let certificates = self.0.live.plan().certificates.clone();
        match files {
            Some(files) if !certificates.is_empty() => {
                self.0.tls.begin(certificates, files, watch, reloader);
                (None, None)
            }
            files => (files, watch),
        }
    }

    /// Starts the loops.
    pub(super) fn prepare(&self, server: Server<TlsEngine>, engine: TlsEngine) -> Result<PreparedServer, Failure> {
        let live = self.0.live.clone();
        Ok(server.with_engine(Forwarding::new(engine)?).prepare(move |_| Edge::new(live.clone()))?)
    }

    /// The counts of all loops for the routes and servers of the moment.
    pub(crate) fn figures(&self) -> Figures {
        Figures::of(&self.0.live.plan(), Instant::now())
    }

    /// Reloads of the configuration, and those that were refused.
    pub(super) fn reloads(&self) -> [u64; 2] {
        self.0.reloads.each_ref().map(|number| number.load(Ordering::Relaxed))
    }

    /// Begins the checks and look-ups of the servers, and the look-out for a change of the file. The process is `confined` to these others.
    pub(super) fn begin(&self, gate: &mut Gate, confined: Option<Reach>) -> Result<(), Failure> {
        confined.into_iter().for_each(|reach| _ = self.0.confined.set(reach));
        let front = self.clone();
        gate.spawn("checks", move || front.check(&front.0.live.plan()))?;
        if matches!(self.0.source, Source::File(_)) {
            let front = self.clone();
            gate.spawn("configuration", move || front.watch())?;
        }
        Ok(())
    }

    /// Reads the configuration again, and the certificates. If one has a fault, nothing changes.
    pub(super) fn reload(&self) {
        let mut seen = self.seen();
        if !self.reload_plan(&mut seen, true) {
            // Their contents are read again as ever: a certificate may be about to expire.
            self.0.tls.reload_contents();
        }
    }

    /// Reads the configuration again. Certificates whose paths and rules stay have a watch of their own, and are read only if
    /// `all` says so. Returns false if a fault was found before the certificates in use were read.
    fn reload_plan(&self, seen: &mut Stamps, all: bool) -> bool {
        let before = self.0.live.plan();
        *seen = stamps(&self.0.source, &before);
        let mut has_read = false;
        let plan = self.0.source.plan(Some(&before)).and_then(|plan| self.permit(plan, &before)).and_then(|plan| {
            let are_others = plan.certificates != before.certificates;
            // Until the plan follows, requests of new connections are judged by the old one: they get 421 at worst.
            if all || are_others {
                has_read = !are_others;
                self.0.tls.reload(&plan)?;
            }
            Ok(plan)
        });
        self.0.reloads[usize::from(plan.is_err())].fetch_add(1, Ordering::Relaxed);
        match plan {
            Err(faults) => {
                let mut faults = faults.to_string().replace('\n', "; "); // the log escapes ends of lines
                if self.0.confined.get().is_some() && faults.contains(DENIED) {
                    faults += "; --harden closes files and folders that are new in it: `taut upgrade` opens them";
                }
                log::error!("the configuration is not reloaded, and nothing changes: {faults}");
                has_read
            }
            Ok(plan) => {
                self.report_unchanged(&plan, &before);
                let plan = self.0.live.replace(plan);
                self.check(&plan);
                // Certificates may have come and gone with it.
                let read = std::mem::replace(seen, stamps(&self.0.source, &plan));
                seen.iter_mut().for_each(|(path, stamp)| *stamp = read.get(path).copied().unwrap_or(*stamp));
                log::info!(
                    "the configuration is reloaded: {} routes, {} backends",
                    plan.routes.len(),
                    plan.backends.len()
                );
                true
            }
        }
    }

    /// Warns of keys that a reload does not change.
    fn report_unchanged(&self, plan: &Plan, before: &Plan) {
        let is_live = self.0.tls.is_live() && !plan.certificates.is_empty();
        let first = &self.0.first;
        // A value as it was at the begin is in use.
        macro_rules! is_new {
            ($key:ident) => {
                plan.$key != before.$key && plan.$key != first.$key
            };
        }
        let stays = [
            (is_new!(listen), "listen"),
            (is_new!(plain), "plain"),
            (is_new!(http2), "http2"),
            (!is_live && is_new!(certificates), "certificates"),
            (is_new!(acme), "[acme]"),
            (is_new!(listener), "[client], or connections or handshakes of [limits],"),
            (!is_live && is_new!(client_ca), "client-ca"),
            (!is_live && is_new!(client_certificate), "client-certificate"),
        ];
        for (_, key) in stays.into_iter().filter(|(changed, _)| *changed) {
            log::warn!("{key} has changed in the configuration: `taut upgrade` makes the change, a reload does not");
        }
    }

    /// Refuses a plan that this process cannot follow.
    fn permit(&self, plan: Plan, before: &Plan) -> Result<Plan, Failure> {
        let is_moved = plan.certificates.is_empty() != before.certificates.is_empty();
        let asks = |plan: &Plan| plan.certificates.iter().any(|one| one.clients.is_some());
        if is_moved && (asks(&plan) || asks(before)) {
            return Err(Failure::usage(
                "`certificates` with client-ca have come or gone, which a reload cannot do: `taut upgrade` makes the change",
            ));
        }
        let Some(own) = self.0.confined.get() else { return Ok(plan) };
        let wanted = reach_of(&plan);
        let lacks = [
            (wanted.unix && !own.unix, "the first server at a Unix socket"),
            (wanted.internet && !own.internet, "the first server with an address"),
        ];
        match lacks.into_iter().find(|(is_lacking, _)| *is_lacking) {
            None => Ok(plan),
            Some((_, what)) => Err(Failure::usage(format!(
                "{what} is new, and --harden has closed such sockets to this process: `taut upgrade` makes the change"
            ))),
        }
    }

    fn check(&self, plan: &Plan) {
        let mut checks = self.0.checks.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of the plan before decide nothing any more.
        *checks = None;
        match Checks::start(plan).and_then(|started| Ok((started, Resolving::start(plan)?))) {
            Ok(started) => *checks = Some(started),
            Err(error) => log::error!("the servers are not checked or looked up: cannot start a thread: {error}"),
        }
    }

    /// Reloads the file after each change, and after one of a certificate, whose names count.
    fn watch(&self) {
        let stamps = || stamps(&self.0.source, &self.0.live.plan());
        loop {
            thread::sleep(WATCH_INTERVAL);
            let now = stamps();
            if now == *self.seen() {
                continue;
            }
            // Half a file is not read.
            thread::sleep(WATCH_INTERVAL);
            let mut seen = self.seen();
            // A signal may have had them read meanwhile.
            if stamps() == now && now != *seen {
                self.reload_plan(&mut seen, false);
            }
        }
    }

    fn seen(&self) -> MutexGuard<'_, Stamps> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The files that a reload reads, and authorities of the system, by which the loops judge servers with TLS.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = AUTHORITIES.map(PathBuf::from).to_vec();
        paths.extend(std::env::var_os("SSL_CERT_FILE").map(PathBuf::from));
        if let Source::File(path) = &self.0.source {
            paths.push(path.clone());
            paths.extend(self.0.live.plan().files.clone());
        }
        paths
    }

    /// Sets the limits and times of clients. Options take precedence.
    pub(super) fn apply(&self, config: &mut Config, most_connections: Option<usize>) {
        let listener = self.0.live.plan().listener;
        let (limits, deadlines) = (&mut config.limits, &mut config.deadlines);
        let set = |value: &mut Duration, given: Option<Duration>| given.into_iter().for_each(|given| *value = given);
        set(&mut deadlines.handshake, listener.head_time);
        set(&mut deadlines.http, listener.idle_time);
        set(&mut deadlines.send, listener.send_time);
        limits.max_connections = most_connections.or(listener.connections).unwrap_or(limits.max_connections);
        limits.max_handshakes = listener.handshakes.unwrap_or(limits.max_handshakes);
        config.gate = Some(Arc::new(Sources::new(self.0.live.clone())));
    }

    /// The folders whose files it serves.
    pub(super) fn folders(&self) -> Vec<PathBuf> {
        self.0.live.plan().folders.clone()
    }

    /// The servers that it may connect to. A reload may add others of the same kinds.
    pub(super) fn reach(&self, orders: bool) -> Reach {
        let reach = reach_of(&self.0.live.plan());
        Reach { internet: orders || reach.internet, ..reach }
    }
}

/// The servers that a plan connects to.
fn reach_of(plan: &Plan) -> Reach {
    let mut places = plan.backends.iter().flat_map(|backend| &backend.endpoints).map(|endpoint| &endpoint.place);
    let unix = places.clone().any(|place| matches!(place, Place::Unix(_)));
    Reach { internet: places.any(|place| matches!(place, Place::Tcp { .. })), unix }
}

/// Properties of files by their paths.
type Stamps = BTreeMap<PathBuf, Stamp>;

/// Properties of the configuration's file, and of the certificates in its plan, whose names count.
fn stamps(source: &Source, plan: &Plan) -> Stamps {
    let Source::File(path) = source else { return Stamps::new() };
    let certificates = plan.certificates.iter().map(|paths| &paths.cert);
    std::iter::once(path).chain(certificates).map(|path| (path.clone(), Stamp::of(path))).collect()
}

/// Properties of a file by which a change is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp(Option<[i64; 6]>);

impl Stamp {
    fn of(path: &Path) -> Self {
        let found = fs::metadata(path).ok().map(|found| {
            let (device, inode, size) = (found.dev(), found.ino(), found.size());
            let [device, inode, size] = [device, inode, size].map(u64::cast_signed);
            [device, inode, size, found.mtime(), found.mtime_nsec(), found.ctime_nsec()]
        });
        Self(found)
    }
}
