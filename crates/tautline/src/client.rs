use crate::thread::{Parts, Plan, Running};
use crate::way::Way;
use crate::{ClientConfig, Config, ConnectError, Error, Handler, Shard, Target};
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use tautline_engine::probe::{Off, Probe, Stamps};
use tautline_io::{Compose, Driver, Io, Spin};
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
    /// A library of the OpenSSL family.
    #[cfg(feature = "libssl")]
    Libssl(tautline_tls_libssl::Flavour, Box<ClientConfig>),
    /// The handshakes of a library of the OpenSSL family, and TLS 1.3 records opened and sealed in place.
    #[cfg(feature = "libssl")]
    FusedLibssl(tautline_tls_libssl::Flavour, Box<ClientConfig>),
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
    way: Way,
    config: Config,
    targets: Vec<Arc<Target>>,
    every: NonZeroU32,
    cpu: Option<usize>,
}

impl Client {
    /// A client without targets. Its default limits are those of [`Config::untrusted_internet`].
    pub fn new(tls: impl Into<ClientTls>) -> Self {
        let (way, config) = (Way::default(), Config::default());
        Self { tls: tls.into(), way, config, targets: Vec::new(), every: NonZeroU32::MIN, cpu: None }
    }

    /// How the loop reaches the wire: a driver with its settings, in place of [`io`](Self::io).
    pub fn way(mut self, way: Way) -> Self {
        self.way = way;
        self
    }

    /// How the loop reaches the wire.
    pub fn io(mut self, io: Io) -> Self {
        self.way.io = io;
        self
    }

    /// How it spins, where it does ([`Io::spins`]).
    pub fn spin(mut self, spin: Spin) -> Self {
        self.way.spin = spin;
        self
    }

    /// Takes frames past the kernel's TCP/IP stack instead.
    #[cfg(feature = "xdp")]
    pub fn xdp(mut self, config: tautline_xdp::Config) -> Self {
        self.way.xdp = Some(config);
        self
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

    /// Pins the loop's thread to this CPU; [`run`](Self::run) leaves the caller's where it is.
    pub fn pin(mut self, cpu: usize) -> Self {
        self.cpu = Some(cpu);
        self
    }

    /// Has [stages](Self::start_with_stages) taken of the messages of one read in `every`, chosen by chance. Default 1, all.
    pub fn stages_of_one_read_in(mut self, every: NonZeroU32) -> Self {
        self.every = every;
        self
    }

    /// Starts the loop on a thread of its own. It ends with the last connection that does not reconnect.
    ///
    /// # Errors
    /// Nothing runs where any of it fails.
    pub fn start<H: Handler>(self, make: impl Fn(u32) -> H + Send + Sync + 'static) -> Result<Running, Error> {
        self.launch(make, |_| Off)
    }

    /// As [`start`](Self::start), with a [probe](tautline_engine::probe) that takes the time of messages received:
    /// [`Running::stages`] tells it. Costs a quarter of a microsecond for each read, or
    /// [less](Self::stages_of_one_read_in); a program that never calls this has no trace of it.
    ///
    /// # Errors
    /// Nothing runs where any of it fails.
    pub fn start_with_stages<H: Handler>(
        self,
        make: impl Fn(u32) -> H + Send + Sync + 'static,
    ) -> Result<Running, Error> {
        self.launch(make, Stamps::of_one_in)
    }

    fn launch<H: Handler, Q: Probe>(
        self,
        make: impl Fn(u32) -> H + Send + Sync + 'static,
        probe: fn(NonZeroU32) -> Q,
    ) -> Result<Running, Error> {
        let plan = Plan {
            config: Arc::new(self.config.clone()),
            listen: Vec::new(),
            shards: 1,
            cpus: self.cpu.into_iter().collect(),
            backlog: 0,
            every: self.every,
            beside_others: false,
            name: "tautline-client",
        };
        self.compose(Start { plan, make, probe })
    }

    /// Runs the loop on this thread until the last connection that does not reconnect has ended; gives the handler back.
    ///
    /// # Errors
    /// Where it cannot start, or the driver fails.
    pub fn run<H: Handler>(self, handler: H) -> Result<H, Error> {
        let config = Arc::new(self.config.clone());
        self.compose(Run { config, handler })
    }

    /// Chooses engine and driver; behind this all is static.
    fn compose<W: Work>(self, work: W) -> Result<W::Output, Error> {
        let secure = self.is_secure()?;
        let Self { tls, way, targets, .. } = self;
        match tls {
            _ if !secure => way.choose(Composed { engine: plain::Engine, targets, work }),
            ClientTls::Fused(tls) => {
                let engine = Fused::client(&tls)?;
                way.settled(engine.name())?.choose(Composed { engine, targets, work })
            }
            ClientTls::Rustls(tls) => {
                let engine = Rustls::client(&tls)?;
                way.settled(engine.name())?.choose(Composed { engine, targets, work })
            }
            #[cfg(feature = "libssl")]
            ClientTls::Libssl(flavour, tls) => {
                let engine = tautline_tls_libssl::Engine::new(flavour, None, Some(&tls))?;
                way.settled(engine.name())?.choose(Composed { engine, targets, work })
            }
            #[cfg(feature = "libssl")]
            ClientTls::FusedLibssl(flavour, tls) => {
                let engine = tautline_tls_libssl::fused::Engine::new(flavour, None, Some(&tls))?;
                way.settled(engine.name())?.choose(Composed { engine, targets, work })
            }
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

/// What is done with a loop for outgoing connections.
trait Work {
    type Output;

    fn work<E: Engine, D: Driver>(
        self,
        engine: E,
        open: impl Fn() -> io::Result<D> + Send + Sync + 'static,
        targets: Vec<Arc<Target>>,
    ) -> Result<Self::Output, Error>;
}

/// A client whose engine is chosen.
struct Composed<E, W> {
    engine: E,
    targets: Vec<Arc<Target>>,
    work: W,
}

impl<E: Engine, W: Work> Compose for Composed<E, W> {
    type Output = Result<W::Output, Error>;

    fn with<D: Driver>(self, open: impl Fn() -> io::Result<D> + Clone + Send + Sync + 'static) -> Self::Output {
        self.work.work(self.engine, open, self.targets)
    }
}

/// Runs the loop on a thread of its own.
struct Start<M, Q> {
    plan: Plan,
    make: M,
    probe: fn(NonZeroU32) -> Q,
}

impl<H: Handler, M: Fn(u32) -> H + Send + Sync + 'static, Q: Probe> Work for Start<M, Q> {
    type Output = Running;

    fn work<E: Engine, D: Driver>(
        self,
        engine: E,
        open: impl Fn() -> io::Result<D> + Send + Sync + 'static,
        targets: Vec<Arc<Target>>,
    ) -> Result<Running, Error> {
        let Self { plan, make, probe } = self;
        let prepare = move |shard: &mut Shard<E, D, H, Q>| connect_all(shard, &targets);
        plan.start(Parts { engine, open, make, prepare, probe, work: run_until_idle })
    }
}

/// Runs the loop on this thread.
struct Run<H> {
    config: Arc<Config>,
    handler: H,
}

impl<H: Handler> Work for Run<H> {
    type Output = H;

    fn work<E: Engine, D: Driver>(
        self,
        engine: E,
        open: impl Fn() -> io::Result<D> + Send + Sync + 'static,
        targets: Vec<Arc<Target>>,
    ) -> Result<H, Error> {
        let machine = |error| Error::Machine { what: "cannot run a loop", error };
        let driver = open().map_err(machine)?;
        let mut shard = Shard::new(0, self.config, engine, driver, self.handler).map_err(machine)?;
        connect_all(&mut shard, &targets);
        run_until_idle(&mut shard).map_err(machine)?;
        Ok(shard.into_handler())
    }
}

fn connect_all<E: Engine, D: Driver, H: Handler, Q: Probe>(shard: &mut Shard<E, D, H, Q>, targets: &[Arc<Target>]) {
    for target in targets {
        shard.connect(target.clone());
    }
}

fn run_until_idle<E: Engine, D: Driver, H: Handler, Q: Probe>(shard: &mut Shard<E, D, H, Q>) -> io::Result<()> {
    while !shard.is_idle() && !shard.is_drained() {
        shard.turn(None)?;
    }
    Ok(())
}
