use crate::thread::{Parts, Plan, Running};
use crate::{ClientConfig, Config, ConnectError, Error, Handler, Shard, Target};
use std::io;
use std::sync::Arc;
use tautline_io::{Driver, epoll};
use tautline_tls::{Engine, plain};
use tautline_tls_rustls::{Engine as Rustls, fused::Engine as Fused};

/// Which TLS a client speaks to `wss://` targets.
#[derive(Clone)]
#[non_exhaustive]
pub enum ClientTls {
    /// The default: rustls' handshakes, and TLS 1.3 records opened and sealed in place.
    Fused(Box<ClientConfig>),
    /// rustls, handshakes and records.
    Rustls(Box<ClientConfig>),
}

impl Default for ClientTls {
    fn default() -> Self {
        Self::Fused(Box::default())
    }
}

impl From<ClientConfig> for ClientTls {
    fn from(config: ClientConfig) -> Self {
        Self::Fused(Box::new(config))
    }
}

/// Outgoing connections on one loop. All targets are `wss://`, or all are `ws://`.
#[must_use]
pub struct Client {
    tls: ClientTls,
    config: Config,
    targets: Vec<Arc<Target>>,
}

impl Client {
    /// A client without targets. Its default limits are those of [`Config::untrusted_internet`].
    pub fn new(tls: impl Into<ClientTls>) -> Self {
        Self { tls: tls.into(), config: Config::default(), targets: Vec::new() }
    }

    /// Connects here too. [`Conn::dial`](crate::Conn::dial) counts targets from 0, in this order.
    pub fn target(mut self, target: Target) -> Self {
        self.targets.push(Arc::new(target));
        self
    }

    /// Limits, deadlines and policies.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Starts the loop on a thread of its own. It ends with the last connection that does not reconnect.
    ///
    /// # Errors
    /// Nothing runs where any of it fails.
    pub fn start<H: Handler>(self, make: impl Fn(u32) -> H + Send + Sync + 'static) -> Result<Running, Error> {
        let secure = self.is_secure()?;
        let plan = Plan {
            config: Arc::new(self.config),
            listen: Vec::new(),
            shards: 1,
            cpus: Vec::new(),
            backlog: 0,
            name: "tautline-client",
        };
        let targets = self.targets;
        match self.tls {
            _ if !secure => start(plan, plain::Engine, make, targets),
            ClientTls::Fused(tls) => start(plan, Fused::client(&tls)?, make, targets),
            ClientTls::Rustls(tls) => start(plan, Rustls::client(&tls)?, make, targets),
        }
    }

    /// Runs the loop on this thread until the last connection that does not reconnect has ended; gives the handler back.
    ///
    /// # Errors
    /// Where it cannot start, or the driver fails.
    pub fn run<H: Handler>(self, handler: H) -> Result<H, Error> {
        let secure = self.is_secure()?;
        let config = Arc::new(self.config);
        match self.tls {
            _ if !secure => run_here(plain::Engine, config, &self.targets, handler),
            ClientTls::Fused(tls) => run_here(Fused::client(&tls)?, config, &self.targets, handler),
            ClientTls::Rustls(tls) => run_here(Rustls::client(&tls)?, config, &self.targets, handler),
        }
    }

    fn is_secure(&self) -> Result<bool, Error> {
        let secure = self.targets.iter().filter(|target| target.is_secure()).count();
        if self.targets.is_empty() {
            return Err(ConnectError::Target("no target to connect to was given".into()).into());
        }
        if secure != 0 && secure != self.targets.len() {
            let what = "ws:// and wss:// targets need a client each: a loop has one TLS engine";
            return Err(ConnectError::Target(what.into()).into());
        }
        Ok(secure != 0)
    }
}

fn start<E: Engine, H: Handler>(
    plan: Plan,
    engine: E,
    make: impl Fn(u32) -> H + Send + Sync + 'static,
    targets: Vec<Arc<Target>>,
) -> Result<Running, Error> {
    let prepare = move |shard: &mut Shard<E, epoll::Driver, H>| connect_all(shard, &targets);
    plan.start(Parts { engine, open: epoll::Driver::new, make, prepare, work: run_until_idle })
}

fn connect_all<E: Engine, D: Driver, H: Handler>(shard: &mut Shard<E, D, H>, targets: &[Arc<Target>]) {
    for target in targets {
        shard.connect(target.clone());
    }
}

fn run_until_idle<E: Engine, D: Driver, H: Handler>(shard: &mut Shard<E, D, H>) -> io::Result<()> {
    while !shard.is_idle() && !shard.is_drained() {
        shard.turn(None)?;
    }
    Ok(())
}

fn run_here<E: Engine, H: Handler>(
    engine: E,
    config: Arc<Config>,
    targets: &[Arc<Target>],
    handler: H,
) -> Result<H, Error> {
    let machine = |error| Error::Machine { what: "cannot run a loop", error };
    let driver = epoll::Driver::new().map_err(machine)?;
    let mut shard = Shard::new(0, config, engine, driver, handler).map_err(machine)?;
    connect_all(&mut shard, targets);
    run_until_idle(&mut shard).map_err(machine)?;
    Ok(shard.into_handler())
}
