//! The front of other servers: its plan, which a reload replaces, and its loops.

use super::gate::Gate;
use super::reach::Reach;
use crate::failure::Failure;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tautline::layers::tls::mixed::Kind;
use tautline::{EngineChoice, Fused, Plain, PreparedServer, Server, Then, TlsEngine};
use tautline_proxy::edge::Edge;
use tautline_proxy::health::Checks;
use tautline_proxy::plan::Place;
use tautline_proxy::tally::Figures;
use tautline_proxy::{Live, Plan, config};

/// Time between two looks at the file. A changed file is read when it has not changed for this time.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

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
            Self::File(path) => config::read(path, before, now).map_err(|faults| Failure::usage(faults.to_string())),
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
    /// Those of the plan of the moment. The lock also keeps two reloads apart.
    checks: Mutex<Option<Checks>>,
}

impl Front {
    pub(super) fn new(source: Source, plan: Plan) -> Self {
        Self(Arc::new(Inner { source, live: Live::new(plan), checks: Mutex::new(None) }))
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

    /// Begins the checks of the servers, and the look-out for a change of the file.
    pub(super) fn begin(&self, gate: &mut Gate) -> Result<(), Failure> {
        let front = self.clone();
        gate.spawn("checks", move || front.check(&front.0.live.plan()))?;
        if let Source::File(path) = &self.0.source {
            let (front, path) = (self.clone(), path.clone());
            gate.spawn("configuration", move || front.watch(&path))?;
        }
        Ok(())
    }

    /// Reads the configuration again. If it has a fault, nothing changes.
    pub(super) fn reload(&self) {
        let before = self.0.live.plan();
        match self.0.source.plan(Some(&before)) {
            Err(faults) => {
                let faults = faults.to_string().replace('\n', "; "); // the log escapes ends of lines
                log::error!("the configuration is not reloaded, and nothing changes: {faults}");
            }
            Ok(plan) => {
                let stays = [
                    (plan.listen != before.listen, "listen"),
                    (plan.plain != before.plain, "plain"),
                    (plan.certificates != before.certificates, "certificates"),
                ];
                for (_, key) in stays.into_iter().filter(|(changed, _)| *changed) {
                    log::warn!(
                        "{key} has changed in the configuration: `taut upgrade` makes the change, a reload does not"
                    );
                }
                let plan = self.0.live.replace(plan);
                self.check(&plan);
                log::info!(
                    "the configuration is reloaded: {} routes, {} backends",
                    plan.routes.len(),
                    plan.backends.len()
                );
            }
        }
    }

    fn check(&self, plan: &Plan) {
        let mut checks = self.0.checks.lock().unwrap_or_else(PoisonError::into_inner);
        match Checks::start(plan) {
            Ok(started) => *checks = Some(started),
            Err(error) => log::error!("the servers are not checked: cannot start a thread: {error}"),
        }
    }

    /// Reloads the file after each change.
    fn watch(&self, path: &Path) {
        let mut seen = Stamp::of(path);
        loop {
            thread::sleep(WATCH_INTERVAL);
            let now = Stamp::of(path);
            if now == seen {
                continue;
            }
            // Half a file is not read.
            thread::sleep(WATCH_INTERVAL);
            if Stamp::of(path) == now {
                seen = now;
                self.reload();
            }
        }
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

    /// The servers that it may connect to. A reload may add others of the same kinds.
    pub(super) fn reach(&self, orders: bool) -> Reach {
        let plan = self.0.live.plan();
        let mut places = plan.backends.iter().flat_map(|backend| &backend.endpoints).map(|endpoint| &endpoint.place);
        let unix = places.clone().any(|place| matches!(place, Place::Unix(_)));
        Reach { internet: orders || places.any(|place| matches!(place, Place::Tcp { .. })), unix }
    }
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
